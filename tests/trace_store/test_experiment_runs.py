"""Runs of experiments, found by the examples that they refer to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection

from apps.trace_store import NO_PAYLOADS, Payload, RunQuery, filters, run_store
from apps.tracing.services import ensure_project
from apps.tracing.services.deletion import delete_traces
from tests.bench.plans import record_statements
from tests.factories.tracing import ingest, wire_run

A, B, C = (UUID(int=number) for number in (0xA, 0xB, 0xC))
START = datetime(2026, 11, 1, tzinfo=UTC)


def experiment_run(experiment, example_id, minute, **fields):
    return wire_run(
        session_name=experiment,
        reference_example_id=str(example_id),
        start=START + timedelta(minutes=minute),
        **fields,
    )


@pytest.fixture
def experiments(workspace):
    """Two experiments: the first on C, B and A in two repetitions, the second on A and B."""
    runs = [
        experiment_run("one", example_id, minute)
        for minute, example_id in enumerate((C, B, A, C, B, A))
    ]
    runs.append(experiment_run("two", A, 10, name="slow"))
    runs.append(experiment_run("two", B, 11))
    plain = wire_run(session_name="one", start=START)
    child = wire_run(runs[0], reference_example_id=str(UUID(int=0xD)))
    ingest(workspace, *runs, plain, child)
    return [ensure_project(workspace.pk, name).pk for name in ("one", "two")], runs


def ids(examples):
    return [item.example_id for item in examples]


def test_examples_are_found_in_the_order_of_their_first_runs(workspace, experiments):
    projects, _ = experiments

    examples = run_store.find_examples(workspace.pk, projects)

    assert ids(examples) == [C, B, A]
    minutes = [
        (START + timedelta(minutes=first), START + timedelta(minutes=last))
        for first, last in ((0, 3), (1, 11), (2, 10))
    ]
    assert [(item.first_time, item.last_time) for item in examples] == minutes
    assert ids(run_store.find_examples(workspace.pk, projects[1:])) == [A, B]


def test_pages_of_examples_continue_by_offset_or_after_the_last_one(workspace, experiments):
    projects, _ = experiments
    first, second, third = run_store.find_examples(workspace.pk, projects)

    assert run_store.find_examples(workspace.pk, projects, offset=1, limit=1) == [second]
    after = (second.first_time, second.example_id)
    assert run_store.find_examples(workspace.pk, projects, after=after) == [third]
    some = run_store.find_examples(workspace.pk, projects, example_ids=[A, C, UUID(int=1)])
    assert some == [first, third]


def test_examples_are_limited_to_those_with_matching_runs(workspace, experiments):
    projects, _ = experiments
    slow = RunQuery(project_ids=projects[1:], where=filters.parse('eq(name, "slow")'))
    step = RunQuery(project_ids=projects[:1], where=filters.parse('eq(name, "step")'))

    assert ids(run_store.find_examples(workspace.pk, projects, matching=[slow])) == [A]
    assert ids(run_store.find_examples(workspace.pk, projects, matching=[slow, step])) == [A]
    assert ids(run_store.find_examples(workspace.pk, projects, matching=[step])) == [C, B, A]


def test_runs_of_a_page_are_read_with_the_requested_payloads(workspace, experiments):
    projects, runs = experiments
    examples = run_store.find_examples(workspace.pk, projects, offset=1)

    result = run_store.fetch_example_runs(
        workspace.pk, projects, examples, payloads={Payload.OUTPUTS}
    )

    expected = [UUID(runs[index]["id"]) for index in (1, 2, 4, 5, 6, 7)]
    assert [run.row.id for run in result] == expected
    assert result[0].value(Payload.OUTPUTS) == {"answer": "because"}
    assert result[0].json(Payload.INPUTS) is None
    assert run_store.fetch_example_runs(workspace.pk, projects, [], payloads=NO_PAYLOADS) == []


def test_all_root_runs_of_a_query_are_listed_with_their_examples(workspace, experiments):
    projects, runs = experiments

    listed = run_store.list_experiment_runs(workspace.pk, RunQuery(project_ids=projects[1:]))

    assert {(item.example_id, str(item.run_id)) for item in listed} == {
        (A, runs[6]["id"]),
        (B, runs[7]["id"]),
    }
    assert {item.project_id for item in listed} == {projects[1]}


def test_runs_of_other_workspaces_and_deleted_traces_are_not_found(
    workspace, other_workspace, experiments
):
    projects, runs = experiments

    assert run_store.find_examples(other_workspace.pk, projects) == []
    query = RunQuery(project_ids=projects)
    assert run_store.list_experiment_runs(other_workspace.pk, query) == []
    project = ensure_project(workspace.pk, "two")
    delete_traces(project=project, trace_ids=[UUID(runs[6]["id"])])
    assert ids(run_store.find_examples(workspace.pk, projects[1:])) == [B]


_MANY_RUNS = """
INSERT INTO trace_store_run (workspace_id, id, project_id, partition_time, trace_id, is_created,
    reference_example_id, start_time, end_time, received_at, dotted_order, name, run_type,
    inputs_preview)
SELECT %(workspace)s, run_id, %(project)s, started, run_id, true,
    CASE WHEN %(has_example)s THEN md5((number %% 10000)::text)::uuid END,
    started, started, started, number::text, 'run', 'chain', repeat('preview ', 20)
FROM (SELECT number, gen_random_uuid() AS run_id,
             %(start)s::timestamptz + number * interval '1 second' AS started
      FROM generate_series(1, 50000) AS number) AS numbered
"""


@pytest.mark.exhaustive
def test_a_page_of_fifty_thousand_runs_is_read_by_the_index_of_experiments(workspace):
    large = ensure_project(workspace.pk, "large")
    others = [ensure_project(workspace.pk, name) for name in ("other", "plain")]
    # From noon to two o'clock: two partitions at any time of day.
    start = (datetime.now(UTC) - timedelta(days=1)).replace(hour=12, minute=0)
    with connection.cursor() as cursor:
        for project in (large, *others):
            cursor.execute(
                _MANY_RUNS,
                {
                    "workspace": workspace.pk,
                    "project": project.pk,
                    "start": start,
                    "has_example": project.name != "plain",
                },
            )
        cursor.execute("ANALYZE trace_store_run")

    with record_statements() as recording:
        examples = run_store.find_examples(workspace.pk, [large.pk], limit=100)
        runs = run_store.fetch_example_runs(
            workspace.pk, [large.pk], examples, payloads=NO_PAYLOADS
        )
        listed = run_store.list_experiment_runs(workspace.pk, RunQuery(project_ids=[large.pk]))

    assert (len(examples), len(runs), len(listed)) == (100, 500, 50_000)
    assert {table: rows for table, rows in recording.scanned().items() if rows > 1_000} == {}
    plans = recording.plans()
    # Named by PostgreSQL after the columns of `trace_store_run_experiment`.
    assert plans.count("project_id_reference_example_id_p_idx") >= 4, plans
