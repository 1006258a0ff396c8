"""The list of what is unsettled: `trace_store_pending_run`, a row a request."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.types import ChangedRun

PARK_DURATION = timedelta(hours=1)
_MAX_ENTRIES = 200
_COLUMNS = "run_ids, project_ids, partition_time, trace_ids"
_DUE_SQL = "(retry_at IS NULL OR retry_at <= now())"
_Row = tuple[int, list[UUID], list[UUID], list[datetime], list[UUID]]


@dataclass(frozen=True, slots=True)
class Claim:
    """Rows of one workspace that nobody else settles meanwhile, and the runs they name."""

    workspace_id: UUID
    rows: Sequence[int]
    touched: Sequence[ChangedRun]


def enqueue(workspace_id: UUID, touched: Iterable[ChangedRun]) -> None:
    """Say, in the caller's transaction, that these runs were written."""
    runs = list(touched)
    if not runs:
        return
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                f"INSERT INTO trace_store_pending_run (workspace_id, {_COLUMNS})"
                " VALUES (%s, %s, %s, %s, %s)"
            ),
            [
                workspace_id,
                [one.run_id for one in runs],
                [one.project_id for one in runs],
                [one.partition_time for one in runs],
                [one.trace_id for one in runs],
            ],
        )


def claim_oldest(runs: int) -> Claim | None:
    """The oldest rows of the first workspace that no other settler is in, until the commit."""
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "SELECT workspace_id FROM trace_store_pending_run"
                f" WHERE {_DUE_SQL} GROUP BY workspace_id ORDER BY min(id)"
            )
        )
        workspaces = [row[0] for row in cursor]
    for workspace_id in workspaces:
        if not _lock_workspace(workspace_id, wait=False):
            continue
        ending = f"AND {_DUE_SQL} ORDER BY id LIMIT {_MAX_ENTRIES} FOR UPDATE SKIP LOCKED"
        found = _select_entries(workspace_id, ending, [])
        if found:
            return _make_claim(workspace_id, _take_entries(runs, found))
    return None


def claim_entries(workspace_id: UUID, rows: Collection[int]) -> Claim:
    """Those of the rows that are still there."""
    _lock_workspace(workspace_id, wait=True)
    ending = "AND id = ANY(%s) ORDER BY id FOR UPDATE SKIP LOCKED"
    return _make_claim(workspace_id, _select_entries(workspace_id, ending, [list(rows)]))


def newest_entry() -> tuple[int, int]:
    """The number of the row that came last, and of how many runs it is; zeros when none is left."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT id, cardinality(run_ids) FROM trace_store_pending_run ORDER BY id DESC LIMIT 1"
        )
        return cursor.fetchone() or (0, 0)


def complete(claimed: Claim) -> None:
    """Take the rows off the list: what follows from them is done."""
    with raw_cursor() as cursor:
        cursor.execute(
            "DELETE FROM trace_store_pending_run WHERE workspace_id = %s AND id = ANY(%s)",
            [claimed.workspace_id, list(claimed.rows)],
        )


def split(claimed: Claim) -> list[int]:
    """Two rows in the place of the claimed ones, each with half of their runs."""
    middle = len(claimed.touched) // 2
    complete(claimed)
    halves = claimed.touched[:middle], claimed.touched[middle:]
    return [_append_returning(claimed.workspace_id, half) for half in halves]


def _append_returning(workspace_id: UUID, touched: Sequence[ChangedRun]) -> int:
    enqueue(workspace_id, touched)
    with raw_cursor() as cursor:
        cursor.execute("SELECT currval(pg_get_serial_sequence('trace_store_pending_run', 'id'))")
        found: int = cursor.fetchone()[0]  # type: ignore[index]
        return found


def park_claim(claimed: Claim, reason: str) -> None:
    """Leave the rows alone for a while. Readers go on looking at their runs themselves."""
    with raw_cursor() as cursor:
        cursor.execute(
            "UPDATE trace_store_pending_run SET failure = %s, retry_at = now() + %s"
            " WHERE workspace_id = %s AND id = ANY(%s)",
            [reason.replace("\x00", ""), PARK_DURATION, claimed.workspace_id, list(claimed.rows)],
        )


def _lock_workspace(workspace_id: UUID, *, wait: bool) -> bool:
    """Whether this transaction is the workspace's only settler.

    Of two that know different halves of a trace, the one that knows less could have the last word.
    """
    lock = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
    with raw_cursor() as cursor:
        cursor.execute(
            sql(f"SELECT {lock}(hashtextextended('tracing.settle:' || %s::uuid::text, 0))"),
            [workspace_id],
        )
        return wait or cursor.fetchone() == (True,)


def _select_entries(workspace_id: UUID, ending: str, values: Sequence[object]) -> list[_Row]:
    statement = (
        f"SELECT id, {_COLUMNS} FROM trace_store_pending_run WHERE workspace_id = %s {ending}"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [workspace_id, *values], binary=True)
        return cursor.fetchall()


def _take_entries(runs: int, rows: Sequence[_Row]) -> list[_Row]:
    """The first rows, enough for that many runs."""
    chosen: list[_Row] = []
    for row in rows:
        chosen.append(row)
        runs -= len(row[1])
        if runs <= 0:
            break
    return chosen


def _make_claim(workspace_id: UUID, rows: Sequence[_Row]) -> Claim:
    touched = {ChangedRun(*one) for _, *columns in rows for one in zip(*columns, strict=True)}
    return Claim(workspace_id, [row[0] for row in rows], sorted(touched))
