"""Runs by what identifies them: their whole keys, their id, their trace."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.trace_store.store.locating import probable_days
from apps.trace_store.store.payloads import with_payloads
from apps.trace_store.store.pending_deletions import not_doomed
from apps.trace_store.store.rows import COLUMNS, Stored, select
from apps.trace_store.store.summing import with_sums, with_sums_of_whole
from apps.trace_store.store.types import Payload, RunDetail, RunRow

Key = tuple[UUID, UUID, datetime]
"""Run, project, place."""
_LATELY = timedelta(days=2)


def by_keys(
    workspace_id: UUID, keys: Sequence[Key], *, payloads: Collection[Payload]
) -> list[RunDetail]:
    """Those of the runs that are there, in no order, with what they say themselves: no sums."""
    if not keys:
        return []
    times = [key[2] for key in keys]
    statement = (
        f"SELECT {COLUMNS}"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, placed_at)"
        " JOIN tracing_run r ON r.workspace_id = %s AND r.id = k.id"
        " AND r.project_id = k.project_id AND r.placed_at = k.placed_at"
        " WHERE r.placed_at BETWEEN %s AND %s"
    )
    columns = [[key[0] for key in keys], [key[1] for key in keys], times]
    rows = select(statement, [*columns, workspace_id, min(times), max(times)])
    return with_payloads([row for row, _ in rows], payloads)


def by_id(
    workspace_id: UUID,
    run_id: UUID,
    *,
    project_id: UUID | None,
    payloads: Collection[Payload],
) -> RunDetail | None:
    """The run; the newest one when several projects have that id and none is named."""
    shown, given_shown = not_doomed(workspace_id)
    where = f"r.workspace_id = %s AND r.id = %s AND {shown}"
    values = [workspace_id, run_id, *given_shown]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    # Few days first: to look into all of them costs a hundred times as much.
    days = probable_days([run_id]) or _lately()
    attempts: list[tuple[str, list[Any]]] = [
        (f"{where} AND r.placed_at BETWEEN %s AND %s", [*values, *days]),
        (where, [*values]),
    ]
    for condition, given in attempts:
        statement = (
            f"SELECT {COLUMNS} FROM tracing_run r WHERE {condition}"
            " ORDER BY r.received_at DESC LIMIT 1"
        )
        if rows := select(statement, given):
            return with_payloads(with_sums(workspace_id, rows), payloads)[0]
    return None


def _lately() -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    return now - _LATELY, now + _LATELY


def whole_trace(workspace_id: UUID, trace_id: UUID, *, project_id: UUID | None) -> list[RunRow]:
    """All runs of the trace, depth first, parents before children."""
    shown, given_shown = not_doomed(workspace_id)
    where = f"r.workspace_id = %s AND r.trace_id = %s AND {shown}"
    values = [workspace_id, trace_id, *given_shown]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    rows: list[Stored] = []
    if days := probable_days([trace_id]):
        # Nothing of a trace is placed before its root was made.
        since: list[Any] = [*values, days[0]]
        rows = select(
            f"SELECT {COLUMNS} FROM tracing_run r WHERE {where} AND r.placed_at >= %s", since
        )
    if not any(row.is_root for row, _ in rows):
        rows = select(f"SELECT {COLUMNS} FROM tracing_run r WHERE {where}", values)
    # Sorted here: the server would sort whole rows, on disk when there are many.
    rows.sort(key=lambda one: one[0].dotted_order)
    return with_sums_of_whole(rows)
