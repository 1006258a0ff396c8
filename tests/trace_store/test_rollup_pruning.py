"""Pages of runs pruned by rollups: the same runs as without them, with fewer scans."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters import parse
from apps.trace_store.filters.reference import matches
from apps.trace_store.postgres.filtering.subjects import load_subjects
from apps.trace_store.postgres.reading.pruning import derive_pruning_hint
from apps.trace_store.postgres.rollups import build
from apps.tracing.models import Project
from tests.bench.plans import record_statements
from tests.examples import fuzz_settings
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import (
    NOON,
    build_model_run,
    build_rollups,
    build_run,
    process_pending_runs,
    project_id_of,
)

NUMBERS = ["latency", "first_token_latency", "total_tokens", "prompt_tokens", "total_cost"]
CONDITIONS = [
    'eq(run_type, "llm")',
    'eq(run_type, "tool")',
    'eq(status, "pending")',
    'neq(status, "error")',
    'eq(name, "step")',
    'eq(model, "gpt-4o")',
    "eq(is_root, true)",
    "eq(is_root, false)",
    "eq(execution_order, 2)",
    'has(tags, "a")',
    'search("because")',
]


def populate(workspace, seed, *, traces=16):
    """Store traces over some days: most quarters of an hour have no run, some have several."""
    chance = random.Random(seed)
    runs = []
    for _ in range(traces):
        root = _any_run(chance, chance.randint(-4000, 4000), None)
        runs.append(root)
        ancestors = [root]
        for _ in range(chance.randint(0, 4)):
            minutes = ancestors[-1]["minutes"] + chance.choice([0, 0, 1, 20, 90, 1500])
            ancestors.append(_any_run(chance, minutes, chance.choice(ancestors)))
            runs.append(ancestors[-1])
    for fields in runs:
        del fields["minutes"]
    ingest(workspace, *runs)


def _any_run(chance, minutes, parent):
    build = chance.choice([build_run, build_model_run, build_model_run])
    fields = {
        "seconds": chance.choice([None, -1, 0, 1, 1, 5, 400]),
        "tags": chance.choice([["a"], ["b"], None]),
        "session_name": parent["session_name"] if parent else chance.choice(["default", "other"]),
    }
    if chance.random() < 0.3:
        fields["tokens"] = (chance.choice([0, 3, 900]), chance.choice([0, 5]))
        fields["cost"] = chance.choice([None, 0.5])
    if chance.random() < 0.2:
        fields["extra"] = {"metadata": {"ls_model_name": "gpt-4o"}}
    payload = build(minutes, parent=parent, **fields)
    if chance.random() < 0.2:
        # Its start time is in another quarter of an hour than its partition time.
        payload["start_time"] = (NOON + timedelta(minutes=minutes + 20)).isoformat()
    if chance.random() < 0.2:
        token_time = payload["end_time"] or payload["start_time"]
        payload["events"] = [{"name": "new_token", "time": token_time}]
    return payload | {"minutes": minutes}


def query_fields():
    operators = st.sampled_from(["gt", "gte", "lt", "lte", "eq"])
    values = st.sampled_from(["-1", "0", "0.5", "1", "3", "5", "8", "15", "400", "905", "2000"])
    number = st.builds("{}({}, {})".format, operators, st.sampled_from(NUMBERS), values)
    parts = st.lists(number | number | st.sampled_from(CONDITIONS), min_size=1, max_size=3)
    filters = parts.map(lambda all_: f"and({', '.join(all_)})")
    return st.builds(
        dict,
        where=filters.map(parse),
        is_root=st.sampled_from([None, True, True, False]),
        run_type=st.sampled_from([None, None, "llm", "prompt"]),
        oldest_first=st.booleans(),
        started_from=st.sampled_from([None, None, NOON - timedelta(hours=30)]),
        started_until=st.sampled_from([None, None, NOON + timedelta(hours=30, minutes=7)]),
    )


def query_ids(workspace, query):
    run_ids, cursor = [], None
    while True:
        page = run_store.query(workspace.pk, query, limit=9, cursor=cursor)
        run_ids += [run.row.id for run in page.runs]
        if (cursor := page.next_cursor) is None:
            return run_ids


def check_random_queries(workspace, cases):
    rows = [run.row for run in run_store.query(workspace.pk, RunQuery(), limit=1000).runs]
    subjects = load_subjects(workspace.pk, rows)
    projects = list(Project.objects.for_workspace(workspace).values_list("pk", flat=True))

    @fuzz_settings(cases)
    @given(query_fields(), st.sampled_from([projects, projects[:1], projects[1:]]))
    def check_query(fields, project_ids):
        query = RunQuery(project_ids=project_ids, **fields)
        expected = [subject.run.id for subject in subjects if _matches(query, subject)]
        if query.oldest_first:
            expected.reverse()
        assert query_ids(workspace, query) == expected

    check_query()


def _matches(query, subject):
    run = subject.run
    return (
        run.project_id in query.project_ids
        and (query.is_root is None or run.is_root == query.is_root)
        and (query.run_type is None or run.run_type == query.run_type)
        and (query.started_from is None or run.start_time >= query.started_from)
        and (query.started_until is None or run.start_time <= query.started_until)
        and matches(query.where, subject)
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_pages_are_the_same_with_partial_rollups(workspace, seed):
    populate(workspace, seed)
    build_rollups()
    populate(workspace, seed + 50, traces=8)
    process_pending_runs()
    populate(workspace, seed + 100, traces=8)

    check_random_queries(workspace, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 210))
def test_thousands_of_pages_are_the_same_with_partial_rollups(workspace, seed):
    populate(workspace, seed, traces=60)
    build_rollups()
    populate(workspace, seed + 50, traces=15)
    process_pending_runs()
    populate(workspace, seed + 100, traces=15)
    build.rebuild_dirty_intervals(quiet=timedelta(0))

    check_random_queries(workspace, 200)


def test_a_rare_number_is_searched_only_in_its_interval(workspace):
    ordinary = [build_run(minutes) for minutes in range(-3000, 3000, 150)]
    slow = build_run(-2000, seconds=500)
    ingest(workspace, *ordinary, slow)
    build_rollups()
    query = RunQuery(project_ids=[project_id_of(workspace)], where=parse("gt(latency, 300)"))

    with record_statements() as recording:
        page = run_store.query(workspace.pk, query, limit=50)

    assert [item.row.id for item in page.runs] == [UUID(slow["id"])]
    scans = [item for item in recording.statements if "AS q(project_id" in item.text]
    assert [scan.values[1] for scan in scans] == [[NOON - timedelta(minutes=2010)]]


@pytest.mark.parametrize(
    "fields",
    [
        {"where": parse('exists(metadata, "a")')},
        {"has_error": True},
        {"where": parse('eq(status, "error")'), "is_root": True},
        {"where": parse('like(name, "a%")')},
        {"where": parse("or(gt(latency, 3), gt(total_tokens, 5))")},
        # No rollup row has the sum of a run that is neither a root nor a model run.
        {"where": parse("gt(total_tokens, 5)")},
        {"where": parse("gt(latency, -1)")},
    ],
)
def test_conditions_without_rollup_values_prune_nothing(fields):
    assert derive_pruning_hint(replace(RunQuery(project_ids=[UUID(int=1)]), **fields)) is None
