"""Pages found by what rollups leave room for: the same runs as without them, and fewer looks."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters import parse
from apps.trace_store.filters.reference import matches
from apps.trace_store.postgres.filtering.subjects import load_subjects
from apps.trace_store.postgres.reading.pruning import pruning_hint
from apps.trace_store.postgres.rollups import build
from apps.tracing.models import Project
from tests.bench.plans import recorded
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import NOON, model_call, project_of, roll_up, run, settle

NUMBERS = ["latency", "first_token_latency", "total_tokens", "prompt_tokens", "total_cost"]
KINDS = [
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
    """Over some days: most quarters of an hour have no run, some have several."""
    chance = random.Random(seed)
    made = []
    for _ in range(traces):
        root = _any_run(chance, chance.randint(-4000, 4000), None)
        made.append(root)
        above = [root]
        for _ in range(chance.randint(0, 4)):
            at = above[-1]["minutes"] + chance.choice([0, 0, 1, 20, 90, 1500])
            above.append(_any_run(chance, at, chance.choice(above)))
            made.append(above[-1])
    for one in made:
        del one["minutes"]
    ingest(workspace, *made)


def _any_run(chance, minutes, parent):
    make = chance.choice([run, model_call, model_call])
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
    made = make(minutes, below=parent, **fields)
    if chance.random() < 0.2:
        # It says that it began in another quarter of an hour than its place has.
        made["start_time"] = (NOON + timedelta(minutes=minutes + 20)).isoformat()
    if chance.random() < 0.2:
        token_time = made["end_time"] or made["start_time"]
        made["events"] = [{"name": "new_token", "time": token_time}]
    return made | {"minutes": minutes}


def queries():
    operators = st.sampled_from(["gt", "gte", "lt", "lte", "eq"])
    values = st.sampled_from(["-1", "0", "0.5", "1", "3", "5", "8", "15", "400", "905", "2000"])
    number = st.builds("{}({}, {})".format, operators, st.sampled_from(NUMBERS), values)
    parts = st.lists(number | number | st.sampled_from(KINDS), min_size=1, max_size=3)
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


def all_pages(workspace, query):
    found, cursor = [], None
    while True:
        page = run_store.query(workspace.pk, query, limit=9, cursor=cursor)
        found += [one.row.id for one in page.runs]
        if (cursor := page.next_cursor) is None:
            return found


def check(workspace, cases):
    rows = [one.row for one in run_store.query(workspace.pk, RunQuery(), limit=1000).runs]
    subjects = load_subjects(workspace.pk, rows)
    projects = list(Project.objects.for_workspace(workspace).values_list("pk", flat=True))

    @settings(max_examples=cases, deadline=None, suppress_health_check=list(HealthCheck))
    @given(queries(), st.sampled_from([projects, projects[:1], projects[1:]]))
    def agrees(said, asked):
        query = RunQuery(project_ids=asked, **said)
        expected = [one.run.id for one in subjects if _is_meant(query, one)]
        if query.oldest_first:
            expected.reverse()
        assert all_pages(workspace, query) == expected

    agrees()


def _is_meant(query, subject):
    one = subject.run
    return (
        one.project_id in query.project_ids
        and (query.is_root is None or one.is_root == query.is_root)
        and (query.run_type is None or one.run_type == query.run_type)
        and (query.started_from is None or one.start_time >= query.started_from)
        and (query.started_until is None or one.start_time <= query.started_until)
        and matches(query.where, subject)
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_pages_are_the_same_whatever_rollups_know(workspace, seed):
    populate(workspace, seed)
    roll_up()
    populate(workspace, seed + 50, traces=8)
    settle()
    populate(workspace, seed + 100, traces=8)

    check(workspace, 25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 210))
def test_pages_are_the_same_whatever_rollups_know_thousands_of_times(workspace, seed):
    populate(workspace, seed, traces=60)
    roll_up()
    populate(workspace, seed + 50, traces=15)
    settle()
    populate(workspace, seed + 100, traces=15)
    build.rebuild_dirty_intervals(quiet=timedelta(0))

    check(workspace, 200)


def test_a_rare_number_is_found_without_a_look_at_the_runs_of_other_times(workspace):
    ordinary = [run(minutes) for minutes in range(-3000, 3000, 150)]
    slow = run(-2000, seconds=500)
    ingest(workspace, *ordinary, slow)
    roll_up()
    query = RunQuery(project_ids=[project_of(workspace)], where=parse("gt(latency, 300)"))

    with recorded() as seen:
        page = run_store.query(workspace.pk, query, limit=50)

    assert [one.row.id for one in page.runs] == [UUID(slow["id"])]
    walked = [one for one in seen.statements if "AS q(project_id" in one.text]
    assert [one.values[1] for one in walked] == [[NOON - timedelta(minutes=2010)]]


@pytest.mark.parametrize(
    "fields",
    [
        {"where": parse('exists(metadata, "a")')},
        {"has_error": True},
        {"where": parse('eq(status, "error")'), "is_root": True},
        {"where": parse('like(name, "a%")')},
        {"where": parse("or(gt(latency, 3), gt(total_tokens, 5))")},
        # Of a run that is neither a root nor a call of a model, no row tells the sum.
        {"where": parse("gt(total_tokens, 5)")},
        {"where": parse("gt(latency, -1)")},
    ],
)
def test_nothing_is_left_out_where_rollups_do_not_tell(fields):
    assert pruning_hint(replace(RunQuery(project_ids=[UUID(int=1)]), **fields)) is None
