"""The queue of pending runs: `trace_store_pending_run`, one entry per request."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.types import ChangedRun

PARK_DURATION = timedelta(hours=1)
_MAX_ENTRIES = 200
_COLUMNS = "run_ids, project_ids, partition_time, trace_ids"
_DUE_SQL = "(retry_at IS NULL OR retry_at <= now())"
_Row = tuple[int, list[UUID], list[UUID], list[datetime], list[UUID]]


@dataclass(frozen=True, slots=True)
class Claim:
    """Locked entries of one workspace, and the changed runs in them."""

    workspace_id: UUID
    entry_ids: Sequence[int]
    changed_runs: Sequence[ChangedRun]


def enqueue(workspace_id: UUID, changed_runs: Iterable[ChangedRun]) -> None:
    """Enqueue changed runs in the caller's transaction."""
    runs = list(changed_runs)
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
                [run.run_id for run in runs],
                [run.project_id for run in runs],
                [run.partition_time for run in runs],
                [run.trace_id for run in runs],
            ],
        )


def claim_oldest(runs: int) -> Claim | None:
    """Claim the oldest entries, with about this many runs, of a workspace without a processor."""
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "SELECT workspace_id FROM trace_store_pending_run"
                f" WHERE {_DUE_SQL} GROUP BY workspace_id ORDER BY min(id)"
            )
        )
        workspaces = [row[0] for row in cursor]
    for workspace_id in workspaces:
        if not lock_workspace(workspace_id, wait=False):
            continue
        clause = f"AND {_DUE_SQL} ORDER BY id LIMIT {_MAX_ENTRIES} FOR UPDATE SKIP LOCKED"
        rows = _select_entries(workspace_id, clause, [])
        if rows:
            return _make_claim(workspace_id, _take_entries(runs, rows))
    return None


def claim_entries(workspace_id: UUID, entry_ids: Collection[int]) -> Claim:
    """Claim those of the entries that still exist."""
    lock_workspace(workspace_id, wait=True)
    clause = "AND id = ANY(%s) ORDER BY id FOR UPDATE SKIP LOCKED"
    return _make_claim(workspace_id, _select_entries(workspace_id, clause, [list(entry_ids)]))


def newest_entry() -> tuple[int, int]:
    """The id of the newest entry and its number of runs; zeros if the queue is empty."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT id, cardinality(run_ids) FROM trace_store_pending_run ORDER BY id DESC LIMIT 1"
        )
        return cursor.fetchone() or (0, 0)


def count_entries() -> int:
    """The number of entries of all workspaces."""
    with raw_cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trace_store_pending_run")
        (count,) = cursor.fetchone() or (0,)
        return int(count)


def complete(claimed: Claim) -> None:
    """Delete the processed entries."""
    with raw_cursor() as cursor:
        cursor.execute(
            "DELETE FROM trace_store_pending_run WHERE workspace_id = %s AND id = ANY(%s)",
            [claimed.workspace_id, list(claimed.entry_ids)],
        )


def split_claim(claimed: Claim) -> list[int]:
    """Replace the claimed entries by two, each with half of the runs; return their ids."""
    middle = len(claimed.changed_runs) // 2
    complete(claimed)
    halves = claimed.changed_runs[:middle], claimed.changed_runs[middle:]
    return [_append_returning(claimed.workspace_id, half) for half in halves]


def _append_returning(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> int:
    enqueue(workspace_id, changed_runs)
    with raw_cursor() as cursor:
        cursor.execute("SELECT currval(pg_get_serial_sequence('trace_store_pending_run', 'id'))")
        result: int = cursor.fetchone()[0]  # type: ignore[index]
        return result


def park_claim(claimed: Claim, reason: str) -> None:
    """Skip the entries for a while. Readers still treat their runs as pending."""
    with raw_cursor() as cursor:
        cursor.execute(
            "UPDATE trace_store_pending_run SET failure = %s, retry_at = now() + %s"
            " WHERE workspace_id = %s AND id = ANY(%s)",
            [
                reason.replace("\x00", ""),
                PARK_DURATION,
                claimed.workspace_id,
                list(claimed.entry_ids),
            ],
        )


def lock_workspace(workspace_id: UUID, *, wait: bool) -> bool:
    """Lock the workspace for this transaction; False if another processor holds it.

    Two processors of one workspace could see different parts of a trace, and the one that saw less
    could write last.
    """
    lock = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                f"SELECT {lock}(hashtextextended('trace_store.postprocess:' || %s::uuid::text, 0))"
            ),
            [workspace_id],
        )
        return wait or cursor.fetchone() == (True,)


def _select_entries(workspace_id: UUID, clause: str, values: Sequence[object]) -> list[_Row]:
    statement = (
        f"SELECT id, {_COLUMNS} FROM trace_store_pending_run WHERE workspace_id = %s {clause}"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [workspace_id, *values], binary=True)
        return cursor.fetchall()


def _take_entries(runs: int, rows: Sequence[_Row]) -> list[_Row]:
    """The first entries with at least that many runs in total."""
    chosen: list[_Row] = []
    for row in rows:
        chosen.append(row)
        runs -= len(row[1])
        if runs <= 0:
            break
    return chosen


def _make_claim(workspace_id: UUID, rows: Sequence[_Row]) -> Claim:
    changed_runs = {
        ChangedRun(*item) for _, *columns in rows for item in zip(*columns, strict=True)
    }
    return Claim(workspace_id, [row[0] for row in rows], sorted(changed_runs))
