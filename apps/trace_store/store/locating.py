"""Where runs are: their project and place, by nothing but their ids."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from apps.trace_store.dotted_order import Place
from apps.trace_store.store.raw import raw_cursor, sql

_SLACK = timedelta(days=1)
_TIME_ORDERED = 7


@dataclass(frozen=True, slots=True)
class Located:
    project_id: UUID
    place: Place


def probable_days(run_ids: Collection[UUID]) -> tuple[datetime, datetime] | None:
    """When the runs most likely started: a UUIDv7 tells when it was made, others tell nothing."""
    if not run_ids or any(run_id.version != _TIME_ORDERED for run_id in run_ids):
        return None
    try:
        times = [datetime.fromtimestamp((one.int >> 80) / 1000, UTC) for one in run_ids]
        return min(times) - _SLACK, max(times) + _SLACK
    except (ValueError, OverflowError):
        return None


def locate(workspace_id: UUID, run_ids: Collection[UUID]) -> dict[UUID, Located]:
    """The runs that are there; of one id in several projects the one that came last."""
    if not run_ids:
        return {}
    found: dict[UUID, Located] = {}
    near = probable_days(run_ids)
    if near is not None:
        found = _located(workspace_id, run_ids, *near)
    missing = set(run_ids) - found.keys()
    if missing:
        found |= _located(workspace_id, missing, None, None)
    return found


def _located(
    workspace_id: UUID,
    run_ids: Collection[UUID],
    begin: datetime | None,
    end: datetime | None,
) -> dict[UUID, Located]:
    between = "" if begin is None else "AND placed_at BETWEEN %s AND %s"
    values: list[object] = [workspace_id, list(run_ids)]
    values += [] if begin is None else [begin, end]
    statement = (
        "SELECT id, project_id, dotted_order, trace_id, parent_run_id, placed_at FROM tracing_run"
        f" WHERE workspace_id = %s AND id = ANY(%s) {between} ORDER BY received_at"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        return {
            run_id: Located(project_id, Place(dotted_order, trace_id, parent_id, placed_at))
            for run_id, project_id, dotted_order, trace_id, parent_id, placed_at in cursor
        }
