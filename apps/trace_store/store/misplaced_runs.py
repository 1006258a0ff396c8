"""Runs that say they began in another quarter of an hour than the one they are placed in.

They are few: all others are found by the quarter in which they began.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rollup_intervals import ASTRAY

MOST = 2_000

Between = tuple[datetime | None, datetime | None]
"""From, and up to but without; either may be open."""


def astray(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    *,
    placed: Between = (None, None),
    started: Between = (None, None),
) -> list[tuple[datetime, UUID]] | None:
    """Their places and projects; None when there are more than `MOST` in a project."""
    conditions, values = [], []
    for column, between in (("placed_at", placed), ("start_time", started)):
        for sign, moment in zip((">=", "<"), between, strict=True):
            if moment is not None:
                conditions.append(f" AND r.{column} {sign} %s")
                values.append(moment)
    # In the order of their own index, so that no other is taken for it.
    statement = (
        "SELECT a.placed_at, a.project_id FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
        " (SELECT r.placed_at, r.project_id FROM tracing_run r WHERE r.workspace_id = %s"
        f" AND r.project_id = p.id AND {ASTRAY}{''.join(conditions)}"
        f" ORDER BY r.start_time LIMIT {MOST + 1}) a"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [list(project_ids), workspace_id, *values], binary=True)
        rows = cursor.fetchall()
    return None if len(rows) > MOST else rows
