"""Pages of runs: each query plan gives the same runs in the same order, without repeats."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.errors import InvalidCursor
from apps.trace_store import Payload, RunQuery, RunSort, SortField, filters, run_store
from apps.trace_store.errors import QueryTooSlow
from apps.trace_store.postgres.postprocess import processor
from apps.trace_store.postgres.reading import pages, scan
from apps.tracing.api import run_queries
from apps.tracing.services import ensure_project
from tests.examples import fuzz_settings
from tests.factories.tracing import ingest, wire_run

NOW = datetime.now(UTC).replace(microsecond=0)
WORDS = ("amber", "birch", "cedar")


def build_population():
    """Build runs over three weeks: roots and children, some at the same time, each with a word."""
    runs = []
    for number in range(60):
        start = NOW - timedelta(hours=9 * (number // 3))
        word = WORDS[number % 3]
        root = wire_run(
            start=start,
            name=f"step {number % 4}",
            outputs={"answer": f"the {word} tree"},
            tags=["even" if number % 2 == 0 else "odd"],
        )
        runs.append(root)
        if number % 5 == 0:
            runs.append(wire_run(parent=root, start=start, outputs={"answer": "a leaf"}))
    return runs


def newest_first(runs):
    return sorted(runs, key=lambda run: (run["dotted_order"][-58:-36], run["id"]), reverse=True)


def page_ids(page):
    return [str(run.row.id) for run in page.runs]


def query_all_ids(workspace, query, limit, between=lambda: None):
    """Return the run ids of all pages in order."""
    run_ids, cursor = [], None
    while True:
        page = run_store.query(workspace.pk, query, limit=limit, cursor=cursor)
        run_ids += page_ids(page)
        cursor = page.next_cursor
        if cursor is None:
            return run_ids
        between()


FILTERS = {
    None: lambda _: True,
    'search("cedar")': lambda run: "cedar" in run["outputs"]["answer"],
    'eq(name, "step 1")': lambda run: run["name"] == "step 1",
    'has(tags, "even")': lambda run: "even" in run.get("tags", []),
    'and(search(outputs, "tree"), has(tags, "odd"))': lambda run: "odd" in run.get("tags", []),
    'not(search("tree"))': lambda run: "tree" not in run["outputs"]["answer"],
    "gt(latency, 0.5)": lambda _: True,
}


@pytest.mark.parametrize("processed", ["nothing", "half", "everything"])
@pytest.mark.parametrize("probed_runs", [0, 2000], ids=["by the index", "by a scan of the newest"])
def test_pages_are_the_same_before_and_after_postprocessing(
    workspace, monkeypatch, processed, probed_runs
):
    monkeypatch.setattr(scan, "PROBED_RUNS", probed_runs)
    runs = build_population()
    if processed == "half":
        ingest(workspace, *runs[::2])
        processor.process_all()
        ingest(workspace, *runs[1::2])
    else:
        ingest(workspace, *runs)
    if processed == "everything":
        processor.process_all()
    project = ensure_project(workspace.pk, "default")

    for text, is_expected in FILTERS.items():
        expected = [run["id"] for run in newest_first(runs) if is_expected(run)]
        where = None if text is None else filters.parse(text)
        query = RunQuery(project_ids=[project.pk], where=where)
        assert query_all_ids(workspace, query, 7) == expected, text
        reversed_query = RunQuery(project_ids=[project.pk], where=where, oldest_first=True)
        assert query_all_ids(workspace, reversed_query, 50) == expected[::-1], text


@fuzz_settings(6)
@given(
    limit=st.integers(1, 40),
    text=st.sampled_from(list(FILTERS)),
    back_at=st.integers(0, 6),
    oldest_first=st.booleans(),
)
def test_cursors_page_forward_and_back_over_the_same_pages(
    stored_population, limit, text, back_at, oldest_first
):
    workspace, project, runs = stored_population
    expected = [run["id"] for run in newest_first(runs) if FILTERS[text](run)]
    expected = expected[::-1] if oldest_first else expected
    where = None if text is None else filters.parse(text)
    query = RunQuery(project_ids=[project.pk], where=where, oldest_first=oldest_first)

    pages = [run_queries.read_page(workspace.pk, query, limit=limit)]
    while pages[-1].next_cursor is not None:
        pages.append(
            run_queries.read_page(workspace.pk, query, limit=limit, cursor=pages[-1].next_cursor)
        )
    last_page = pages[min(back_at, len(pages) - 1)]

    assert [run_id for page in pages for run_id in page_ids(page)] == expected
    if last_page.previous_cursor is None:
        assert last_page is pages[0]
    else:
        back = run_queries.read_page(
            workspace.pk, query, limit=limit, cursor=last_page.previous_cursor
        )
        assert page_ids(back) == page_ids(pages[pages.index(last_page) - 1])


@pytest.fixture
def stored_population(workspace):
    runs = build_population()
    ingest(workspace, *runs[:40])
    processor.process_all()
    ingest(workspace, *runs[40:])
    return workspace, ensure_project(workspace.pk, "default"), runs


@pytest.mark.parametrize("text", [None, 'search("tree")'])
def test_runs_ingested_between_pages_do_not_move_other_runs(workspace, text):
    runs = build_population()
    ingest(workspace, *runs)
    project = ensure_project(workspace.pk, "default")
    where = None if text is None else filters.parse(text)
    query = RunQuery(project_ids=[project.pk], where=where)
    expected = query_all_ids(workspace, query, 100)
    late = []

    def ingest_more():
        """Ingest a newer run, which no later page shows, and an older one, which one shows."""
        for start in (NOW + timedelta(minutes=len(late)), NOW - timedelta(days=40)):
            late.append(wire_run(start=start, outputs={"answer": "the late tree"}))
            ingest(workspace, late[-1])
        processor.process_all()

    run_ids = query_all_ids(workspace, query, 20, between=ingest_more)

    assert [run_id for run_id in run_ids if run_id in expected] == expected
    assert len(run_ids) == len(set(run_ids))
    assert set(run_ids) - set(expected) == {run["id"] for run in late[1::2]}


def test_runs_of_several_projects_are_one_list(workspace):
    default_runs = [wire_run(start=NOW - timedelta(minutes=2 * n)) for n in range(6)]
    other_runs = [
        wire_run(start=NOW - timedelta(minutes=2 * n + 1), session_name="there") for n in range(6)
    ]
    elsewhere = [wire_run(session_name="elsewhere")]
    ingest(workspace, *default_runs, *other_runs, *elsewhere)
    processor.process_all()
    projects = [ensure_project(workspace.pk, name).pk for name in ("default", "there")]

    for where in (None, filters.parse('search("because")')):
        query = RunQuery(project_ids=projects, where=where)
        assert query_all_ids(workspace, query, 5) == [
            run["id"] for run in newest_first(default_runs + other_runs)
        ]


def test_a_query_without_projects_finds_no_run(workspace):
    ingest(workspace, wire_run())

    assert run_store.query(workspace.pk, RunQuery(project_ids=[]), limit=10).runs == []


@pytest.mark.parametrize(
    "condition",
    [
        'gt(start_time, "9999-12-31T23:59:59.999999Z")',
        'lt(start_time, "0001-01-01T00:00:00Z")',
    ],
)
def test_filter_beyond_the_range_of_times_finds_no_run(workspace, condition):
    ingest(workspace, wire_run())
    project = ensure_project(workspace.pk, "default")
    query = RunQuery(project_ids=[project.pk], where=filters.parse(condition))

    assert run_store.query(workspace.pk, query, limit=10).runs == []


def test_threads_are_found_between_the_first_and_the_last_time(workspace):
    ingest(workspace, wire_run(extra={"metadata": {"thread_id": "a"}}))
    project = ensure_project(workspace.pk, "default")
    query = RunQuery(
        project_ids=[project.pk],
        started_from=datetime.min.replace(tzinfo=UTC),
        started_until=datetime.max.replace(tzinfo=UTC),
    )

    page = run_store.query_threads(workspace.pk, query)

    assert [thread.thread_key for thread in page.threads] == ["a"]


def test_filters_on_the_root_and_on_any_run_of_the_trace(workspace):
    traces = []
    for name, leaf in (("one", "amber"), ("one", "birch"), ("two", "amber")):
        root = wire_run(name=name, outputs={"answer": "root"})
        traces.append((root, wire_run(parent=root, name="leaf", outputs={"answer": leaf})))
    ingest(workspace, *[run for trace in traces for run in trace])
    project = ensure_project(workspace.pk, "default")

    def query_ids(**fields):
        query = RunQuery(project_ids=[project.pk], **fields)
        return set(query_all_ids(workspace, query, 10))

    for _ in range(2):
        under_root = query_ids(is_root=False, where_root=filters.parse('eq(name, "one")'))
        assert under_root == {traces[0][1]["id"], traces[1][1]["id"]}
        with_amber = query_ids(is_root=True, where_any=filters.parse('search("amber")'))
        assert with_amber == {traces[0][0]["id"], traces[2][0]["id"]}
        combined = query_ids(
            where=filters.parse("eq(is_root, true)"),
            where_root=filters.parse('eq(name, "one")'),
            where_any=filters.parse('and(eq(name, "leaf"), search(outputs, "birch"))'),
        )
        assert combined == {traces[1][0]["id"]}
        processor.process_all()


def test_after_the_timeout_a_page_is_short_and_an_empty_page_is_an_error(workspace, monkeypatch):
    runs = build_population()
    ingest(workspace, *runs)
    project = ensure_project(workspace.pk, "default")
    monkeypatch.setattr(pages, "TIMEOUT_SECONDS", 0)
    monkeypatch.setattr(scan, "_MIN_BATCH", 10)
    some = RunQuery(project_ids=[project.pk], where=filters.parse('not(search("amber"))'))
    none = RunQuery(project_ids=[project.pk], where=filters.parse('not(search("e"))'))
    none_here = RunQuery(
        project_ids=[project.pk], where=filters.parse('eq(output_value, "nowhere")')
    )

    first = run_store.query(workspace.pk, some, limit=9)
    assert 0 < len(first.runs) < 10
    assert first.next_cursor is not None
    assert len(query_all_ids(workspace, none, 9)) == len(runs)
    with pytest.raises(QueryTooSlow):
        run_store.query(workspace.pk, none_here, limit=9)


def test_a_page_has_payloads_only_on_request(workspace):
    run = wire_run()
    ingest(workspace, run)
    processor.process_all()
    query = RunQuery(run_ids=[UUID(run["id"])], where=filters.parse('search("because")'))

    plain = run_store.query(workspace.pk, query, limit=1).runs[0]
    full = run_store.query(workspace.pk, query, limit=1, payloads=[Payload.OUTPUTS]).runs[0]

    assert plain.payloads == {}
    assert full.value(Payload.OUTPUTS) == {"answer": "because"}


def measured_runs():
    """Build runs over four days whose latency, tokens, cost and names vary or are missing."""
    runs = []
    for number in range(60):
        start = NOW - timedelta(hours=number % 30 * 3, minutes=number)
        fields = {"name": f"Step {number % 7}", "outputs": {"answer": WORDS[number % 3]}}
        if number % 11:
            seconds = number * 37 % 23 if number % 4 else 5
            fields["end_time"] = (start + timedelta(seconds=seconds)).isoformat()
        else:
            fields["end_time"] = None
        run = wire_run(start=start, **fields)
        runs.append(run)
        if number % 3 == 0:
            usage = {"input_tokens": number % 5, "output_tokens": 7, "total_tokens": number % 5 + 7}
            usage["total_cost"] = float(number % 5)
            runs.append(
                wire_run(
                    parent=run,
                    start=start + timedelta(milliseconds=1),
                    run_type="llm",
                    extra={"metadata": {"usage_metadata": usage}},
                )
            )
    return runs


def sort_value(row, field):
    match field:
        case SortField.LATENCY:
            return row.latency
        case SortField.TOKENS:
            return row.usage.total_tokens
        case SortField.COST:
            return row.usage.total_cost
    return row.name.casefold()


@pytest.mark.parametrize("processed", ["nothing", "half", "rollups"])
@pytest.mark.parametrize("is_root", [True, None], ids=["traces", "runs"])
def test_sorted_pages_have_each_run_once_in_order(workspace, processed, is_root):
    runs = measured_runs()
    half = len(runs) // 2
    ingest(workspace, *runs[:half])
    if processed != "nothing":
        processor.process_all()
        run_store.rebuild_rollups()
    ingest(workspace, *runs[half:])
    if processed == "rollups":
        processor.process_all()
        run_store.rebuild_rollups()
    project = ensure_project(workspace.pk, "default")

    texts = (None, 'search("cedar")', "not(search(outputs, 'amber'))", "gt(latency, 4)")
    for text in texts if processed == "rollups" else texts[:2]:
        where = None if text is None else filters.parse(text)
        query = RunQuery(project_ids=[project.pk], is_root=is_root, where=where)
        expected_ids = set(query_all_ids(workspace, query, 50))
        for field in SortField:
            if processed != "rollups" and field in {SortField.TOKENS, SortField.COST}:
                continue  # totals of descendants are stored by post-processing
            for descending in (True, False) if text is None else (True,):
                sorted_query = replace(query, sort=RunSort(field, descending))
                run_ids = query_all_ids(workspace, sorted_query, 31)
                assert len(run_ids) == len(set(run_ids)), (text, field, descending)
                assert set(run_ids) == expected_ids, (text, field, descending)
                page = run_store.query(workspace.pk, sorted_query, limit=len(run_ids))
                values = [sort_value(run.row, field) for run in page.runs]
                present = [value for value in values if value is not None]
                assert present == sorted(present, reverse=descending), (text, field, descending)
                assert values[len(present) :] == [None] * (len(values) - len(present))
                assert page_ids(page) == run_ids, (text, field, descending)


@pytest.mark.parametrize("cursor", ["x", "W10=", "WyJjb3N0IiwgdHJ1ZV0=", "MTIzNA=="])
def test_a_cursor_of_another_order_is_invalid(workspace, cursor):
    project = ensure_project(workspace.pk, "default")
    query = RunQuery(project_ids=[project.pk], sort=RunSort(SortField.LATENCY))

    with pytest.raises(InvalidCursor):
        run_store.query(workspace.pk, query, limit=5, cursor=cursor)
