"""What a query asks of the root of a run's trace and of its whole trace, as SQL over the run."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from apps.trace_store.filters import Expression
from apps.trace_store.store.filtering import compile_where_root
from apps.trace_store.store.filtering.terms import Terms, needed_terms
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.terms import of_workspace
from apps.trace_store.store.types import RunQuery

FEW = 1_000
"""Runs that the index names: for more of them, walking through the runs finds a page sooner."""

FEW_TRACES = "r.trace_id = ANY(%s)"

Condition = tuple[str, Sequence[Any]]


def related_conditions(workspace_id: UUID, query: RunQuery) -> Iterator[Condition]:
    """No run that the query means fails them; `Decider` decides where they leave it open."""
    for where in (query.where_root, query.where_any):
        traces = None if where is None else _few_traces(workspace_id, where, query.project_ids)
        if traces is not None:
            yield FEW_TRACES, [traces]
    if query.where_root is not None:
        compiled = compile_where_root(workspace_id, query.where_root, table="r", one_by_one=True)
        yield compiled.sql, compiled.values
    # Any run of a trace is looked for in each day of it: `Decider` asks that of many runs at once.


def _few_traces(
    workspace_id: UUID, where: Expression, project_ids: Sequence[UUID] | None
) -> list[UUID] | None:
    """The traces that may have such a run; None when they are not known to be few."""
    terms = needed_terms(where)
    if terms is None:
        return None
    # What is unsettled comes first: what is settled meanwhile is found both ways.
    unsettled = _unsettled(workspace_id)
    if len(unsettled) > FEW:
        return None
    indexed = _indexed(workspace_id, terms, project_ids)
    return None if len(indexed) > FEW else list({*unsettled, *indexed})


def _unsettled(workspace_id: UUID) -> list[UUID]:
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "SELECT DISTINCT k FROM tracing_unsettled CROSS JOIN unnest(trace_ids) AS k"
                f" WHERE workspace_id = %s LIMIT {FEW + 1}"
            ),
            [workspace_id],
        )
        return [row[0] for row in cursor]


def _indexed(workspace_id: UUID, terms: Terms, project_ids: Sequence[UUID] | None) -> list[UUID]:
    """The trace of each run that has the terms: of `FEW` and one at most."""
    has = " ".join("AND t.terms && %s" for _ in terms)
    values: list[Any] = [workspace_id, *(of_workspace(workspace_id, clause) for clause in terms)]
    if project_ids is not None:
        has += " AND t.project_id = ANY(%s)"
        values.append(list(project_ids))
    statement = (
        "SELECT r.trace_id FROM (SELECT t.id, t.project_id, t.placed_at FROM tracing_runterms t"
        f" WHERE t.workspace_id = %s {has} LIMIT {FEW + 1}) t JOIN tracing_run r"
        " ON r.workspace_id = %s AND r.id = t.id AND r.project_id = t.project_id"
        " AND r.placed_at = t.placed_at"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, workspace_id])
        return [row[0] for row in cursor]
