"""Pages of runs: every way to them gives the same runs in the same order, none twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.trace_store import Payload, RunQuery, filters, run_store
from apps.trace_store.errors import QueryTooSlow
from apps.trace_store.postgres.postprocess import processor
from apps.trace_store.postgres.reading import pages, scan
from apps.tracing.api import paging
from apps.tracing.services import ensure_project
from tests.factories.tracing import ingest, wire_run

NOW = datetime.now(UTC).replace(microsecond=0)
WORDS = ("amber", "birch", "cedar")


def population():
    """Runs over three weeks, several at one moment, roots and children, each with a word."""
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


def ids(page):
    return [str(one.row.id) for one in page.runs]


def walk(workspace, query, limit, between=lambda: None):
    """All pages, one after the other."""
    found, cursor = [], None
    while True:
        page = run_store.query(workspace.pk, query, limit=limit, cursor=cursor)
        found += ids(page)
        cursor = page.next_cursor
        if cursor is None:
            return found
        between()


QUESTIONS = {
    None: lambda _: True,
    'search("cedar")': lambda run: "cedar" in run["outputs"]["answer"],
    'eq(name, "step 1")': lambda run: run["name"] == "step 1",
    'has(tags, "even")': lambda run: "even" in run.get("tags", []),
    'and(search(outputs, "tree"), has(tags, "odd"))': lambda run: "odd" in run.get("tags", []),
    'not(search("tree"))': lambda run: "tree" not in run["outputs"]["answer"],
    "gt(latency, 0.5)": lambda _: True,
}


@pytest.mark.parametrize("settled", ["nothing", "half", "everything"])
@pytest.mark.parametrize("probed", [0, 2000], ids=["by the index", "by a look at the newest"])
def test_pages_are_the_same_however_much_is_settled(workspace, monkeypatch, settled, probed):
    monkeypatch.setattr(scan, "PROBED_RUNS", probed)
    runs = population()
    if settled == "half":
        ingest(workspace, *runs[::2])
        processor.process_all()
        ingest(workspace, *runs[1::2])
    else:
        ingest(workspace, *runs)
    if settled == "everything":
        processor.process_all()
    project = ensure_project(workspace.pk, "default")

    for text, is_meant in QUESTIONS.items():
        expected = [run["id"] for run in newest_first(runs) if is_meant(run)]
        where = None if text is None else filters.parse(text)
        query = RunQuery(project_ids=[project.pk], where=where)
        assert walk(workspace, query, 7) == expected, text
        upside_down = RunQuery(project_ids=[project.pk], where=where, oldest_first=True)
        assert walk(workspace, upside_down, 50) == expected[::-1], text


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    limit=st.integers(1, 40),
    text=st.sampled_from(list(QUESTIONS)),
    back_at=st.integers(0, 6),
    oldest_first=st.booleans(),
)
def test_a_cursor_leads_on_and_back_to_the_same_pages(standing, limit, text, back_at, oldest_first):
    workspace, project, runs = standing
    expected = [run["id"] for run in newest_first(runs) if QUESTIONS[text](run)]
    expected = expected[::-1] if oldest_first else expected
    where = None if text is None else filters.parse(text)
    query = RunQuery(project_ids=[project.pk], where=where, oldest_first=oldest_first)

    pages = [paging.read_page(workspace.pk, query, limit=limit)]
    while pages[-1].following is not None:
        pages.append(paging.read_page(workspace.pk, query, limit=limit, cursor=pages[-1].following))
    turned = pages[min(back_at, len(pages) - 1)]

    assert [one for page in pages for one in ids(page)] == expected
    if turned.previous is None:
        assert turned is pages[0]
    else:
        back = paging.read_page(workspace.pk, query, limit=limit, cursor=turned.previous)
        assert ids(back) == ids(pages[pages.index(turned) - 1])


@pytest.fixture
def standing(workspace):
    runs = population()
    ingest(workspace, *runs[:40])
    processor.process_all()
    ingest(workspace, *runs[40:])
    return workspace, ensure_project(workspace.pk, "default"), runs


@pytest.mark.parametrize("text", [None, 'search("tree")'])
def test_runs_that_come_meanwhile_move_none_of_the_others(workspace, text):
    runs = population()
    ingest(workspace, *runs)
    project = ensure_project(workspace.pk, "default")
    where = None if text is None else filters.parse(text)
    query = RunQuery(project_ids=[project.pk], where=where)
    expected = walk(workspace, query, 100)
    late = []

    def more():
        """A newer one, which no page shows any more, and an older one, which a later page does."""
        for start in (NOW + timedelta(minutes=len(late)), NOW - timedelta(days=40)):
            late.append(wire_run(start=start, outputs={"answer": "the late tree"}))
            ingest(workspace, late[-1])
        processor.process_all()

    found = walk(workspace, query, 20, between=more)

    assert [one for one in found if one in expected] == expected
    assert len(found) == len(set(found))
    assert set(found) - set(expected) == {run["id"] for run in late[1::2]}


def test_several_projects_are_one_list(workspace):
    here = [wire_run(start=NOW - timedelta(minutes=2 * n)) for n in range(6)]
    there = [
        wire_run(start=NOW - timedelta(minutes=2 * n + 1), session_name="there") for n in range(6)
    ]
    elsewhere = [wire_run(session_name="elsewhere")]
    ingest(workspace, *here, *there, *elsewhere)
    processor.process_all()
    projects = [ensure_project(workspace.pk, name).pk for name in ("default", "there")]

    for where in (None, filters.parse('search("because")')):
        query = RunQuery(project_ids=projects, where=where)
        assert walk(workspace, query, 5) == [run["id"] for run in newest_first(here + there)]


def test_no_project_at_all_is_no_run(workspace):
    ingest(workspace, wire_run())

    assert run_store.query(workspace.pk, RunQuery(project_ids=[]), limit=10).runs == []


def test_filters_on_the_root_and_on_any_run_of_the_trace(workspace):
    traces = []
    for name, leaf in (("one", "amber"), ("one", "birch"), ("two", "amber")):
        root = wire_run(name=name, outputs={"answer": "root"})
        traces.append((root, wire_run(parent=root, name="leaf", outputs={"answer": leaf})))
    ingest(workspace, *[run for trace in traces for run in trace])
    project = ensure_project(workspace.pk, "default")

    def found(**asked):
        query = RunQuery(project_ids=[project.pk], **asked)
        return set(walk(workspace, query, 10))

    for _ in range(2):
        of_one = found(is_root=False, where_root=filters.parse('eq(name, "one")'))
        assert of_one == {traces[0][1]["id"], traces[1][1]["id"]}
        with_amber = found(is_root=True, where_any=filters.parse('search("amber")'))
        assert with_amber == {traces[0][0]["id"], traces[2][0]["id"]}
        both = found(
            where=filters.parse("eq(is_root, true)"),
            where_root=filters.parse('eq(name, "one")'),
            where_any=filters.parse('and(eq(name, "leaf"), search(outputs, "birch"))'),
        )
        assert both == {traces[1][0]["id"]}
        processor.process_all()


def test_when_time_is_over_a_page_may_be_short_and_an_empty_one_is_an_error(workspace, monkeypatch):
    runs = population()
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
    assert len(walk(workspace, none, 9)) == len(runs)
    with pytest.raises(QueryTooSlow):
        run_store.query(workspace.pk, none_here, limit=9)


def test_a_page_brings_payloads_only_when_asked(workspace):
    run = wire_run()
    ingest(workspace, run)
    processor.process_all()
    query = RunQuery(run_ids=[UUID(run["id"])], where=filters.parse('search("because")'))

    plain = run_store.query(workspace.pk, query, limit=1).runs[0]
    full = run_store.query(workspace.pk, query, limit=1, payloads=[Payload.OUTPUTS]).runs[0]

    assert plain.payloads == {}
    assert full.value(Payload.OUTPUTS) == {"answer": "because"}
