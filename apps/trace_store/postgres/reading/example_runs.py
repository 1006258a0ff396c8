"""Reads the root runs of experiments by the examples that they refer to."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.postgres.payload_storage import with_payloads
from apps.trace_store.postgres.reading.pending_deletions import exclude_deleted
from apps.trace_store.postgres.reading.prepared_query import Condition
from apps.trace_store.postgres.reading.rows import COLUMNS, select_runs
from apps.trace_store.postgres.reading.scan import conjunction_sql, parameters
from apps.trace_store.postgres.reading.trace_totals import with_trace_totals
from apps.trace_store.postgres.statistics.run_selection import (
    InexactFilter,
    exact_conditions,
    resolve_query,
)
from apps.trace_store.types import ExampleRuns, ExperimentRun, Payload, RunDetail, RunQuery

if TYPE_CHECKING:
    from apps.trace_store.protocol import RunStore


def find_examples(
    store: RunStore,
    workspace_id: UUID,
    project_ids: Collection[UUID],
    *,
    matching: Sequence[RunQuery] = (),
    example_ids: Collection[UUID] | None = None,
    after: tuple[datetime, UUID] | None = None,
    offset: int = 0,
    limit: int | None = None,
) -> list[ExampleRuns]:
    """See `RunStore.find_examples`."""
    conditions = _experiment_conditions(workspace_id, project_ids)
    if example_ids is not None:
        conditions.append(("r.reference_example_id = ANY(%s)", [list(example_ids)]))
    conditions += (_has_run(store, workspace_id, query) for query in matching)
    values = parameters(conditions)
    having = ""
    if after is not None:
        having = "HAVING (min(r.partition_time), r.reference_example_id) > (%s, %s)"
        values += after
    statement = (
        "SELECT r.reference_example_id, min(r.partition_time), max(r.partition_time)"
        f" FROM trace_store_run r WHERE {conjunction_sql(conditions)}"
        f" GROUP BY r.reference_example_id {having} ORDER BY 2, 1 OFFSET %s LIMIT %s"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, offset, limit], binary=True)
        return [ExampleRuns(*row) for row in cursor.fetchall()]


def _experiment_conditions(workspace_id: UUID, project_ids: Collection[UUID]) -> list[Condition]:
    return [
        ("r.workspace_id = %s", [workspace_id]),
        ("r.project_id = ANY(%s)", [list(project_ids)]),
        ("r.parent_run_id IS NULL", []),
        ("r.reference_example_id IS NOT NULL", []),
        exclude_deleted(workspace_id),
    ]


def _has_run(store: RunStore, workspace_id: UUID, query: RunQuery) -> Condition:
    """The condition that a run of the query refers to the example."""
    conditions = list(_query_conditions(store, workspace_id, query))
    matches = (
        f"SELECT r.reference_example_id FROM trace_store_run r WHERE {conjunction_sql(conditions)}"
    )
    return f"r.reference_example_id IN ({matches})", parameters(conditions)


def _query_conditions(store: RunStore, workspace_id: UUID, query: RunQuery) -> Iterator[Condition]:
    yield "r.workspace_id = %s", [workspace_id]
    yield "r.parent_run_id IS NULL", []
    yield "r.reference_example_id IS NOT NULL", []
    try:
        # Unlike statistics, results of experiments are never limited to the newest runs.
        yield from exact_conditions(workspace_id, query)
    except InexactFilter:
        yield from resolve_query(store, workspace_id, query).conditions


def fetch_example_runs(
    workspace_id: UUID,
    project_ids: Collection[UUID],
    examples: Sequence[ExampleRuns],
    *,
    payloads: Collection[Payload],
) -> list[RunDetail]:
    """See `RunStore.fetch_example_runs`."""
    if not examples:
        return []
    conditions: list[Condition] = [
        *_experiment_conditions(workspace_id, project_ids),
        ("r.reference_example_id = ANY(%s)", [[item.example_id for item in examples]]),
        (
            "r.partition_time BETWEEN %s AND %s",
            [
                min(item.first_time for item in examples),
                max(item.last_time for item in examples),
            ],
        ),
    ]
    statement = (
        f"SELECT {COLUMNS} FROM trace_store_run r WHERE {conjunction_sql(conditions)}"
        " ORDER BY r.partition_time, r.id"
    )
    rows = select_runs(statement, parameters(conditions))
    return with_payloads(with_trace_totals(workspace_id, rows), payloads, lazily=True)


def experiment_runs_sql(workspace_id: UUID, project_ids: Collection[UUID]) -> tuple[str, list[Any]]:
    """See `RunStore.experiment_runs_sql`."""
    conditions = _experiment_conditions(workspace_id, project_ids)
    statement = (
        "SELECT r.project_id, r.reference_example_id AS example_id, r.id AS run_id"
        f" FROM trace_store_run r WHERE {conjunction_sql(conditions)}"
    )
    return statement, parameters(conditions)


def list_experiment_runs(
    store: RunStore, workspace_id: UUID, query: RunQuery
) -> list[ExperimentRun]:
    """See `RunStore.list_experiment_runs`."""
    conditions = [
        *_query_conditions(store, workspace_id, query),
        exclude_deleted(workspace_id),
    ]
    statement = (
        "SELECT r.project_id, r.reference_example_id, r.id FROM trace_store_run r"
        f" WHERE {conjunction_sql(conditions)}"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), parameters(conditions), binary=True)
        return [ExperimentRun(*row) for row in cursor.fetchall()]
