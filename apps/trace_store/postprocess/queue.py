"""The list of what is unsettled: `tracing_unsettled`, a row a request."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from apps.trace_store.postprocess import Touched
from apps.trace_store.store.raw import raw_cursor, sql

PARKED_FOR = timedelta(hours=1)
_ROWS_AT_ONCE = 200
_COLUMNS = "run_ids, project_ids, placed_at, trace_ids"
_DUE = "(retry_at IS NULL OR retry_at <= now())"
_Row = tuple[int, list[UUID], list[UUID], list[datetime], list[UUID]]


@dataclass(frozen=True, slots=True)
class Claim:
    """Rows of one workspace that nobody else settles meanwhile, and the runs they name."""

    workspace_id: UUID
    rows: Sequence[int]
    touched: Sequence[Touched]


def append(workspace_id: UUID, touched: Iterable[Touched]) -> None:
    """Say, in the caller's transaction, that these runs were written."""
    runs = list(touched)
    if not runs:
        return
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                f"INSERT INTO tracing_unsettled (workspace_id, {_COLUMNS})"
                " VALUES (%s, %s, %s, %s, %s)"
            ),
            [
                workspace_id,
                [one.run_id for one in runs],
                [one.project_id for one in runs],
                [one.placed_at for one in runs],
                [one.trace_id for one in runs],
            ],
        )


def claim_oldest(runs: int) -> Claim | None:
    """The oldest rows of the first workspace that no other settler is in, until the commit."""
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "SELECT workspace_id FROM tracing_unsettled"
                f" WHERE {_DUE} GROUP BY workspace_id ORDER BY min(id)"
            )
        )
        workspaces = [row[0] for row in cursor]
    for workspace_id in workspaces:
        if not _is_alone(workspace_id, wait=False):
            continue
        ending = f"AND {_DUE} ORDER BY id LIMIT {_ROWS_AT_ONCE} FOR UPDATE SKIP LOCKED"
        found = _rows(workspace_id, ending, [])
        if found:
            return _claim(workspace_id, _up_to(runs, found))
    return None


def claim(workspace_id: UUID, rows: Collection[int]) -> Claim:
    """Those of the rows that are still there."""
    _is_alone(workspace_id, wait=True)
    ending = "AND id = ANY(%s) ORDER BY id FOR UPDATE SKIP LOCKED"
    return _claim(workspace_id, _rows(workspace_id, ending, [list(rows)]))


def newest() -> tuple[int, int]:
    """The number of the row that came last, and of how many runs it is; zeros when none is left."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT id, cardinality(run_ids) FROM tracing_unsettled ORDER BY id DESC LIMIT 1"
        )
        return cursor.fetchone() or (0, 0)


def forget(claimed: Claim) -> None:
    """Take the rows off the list: what follows from them is done."""
    with raw_cursor() as cursor:
        cursor.execute(
            "DELETE FROM tracing_unsettled WHERE workspace_id = %s AND id = ANY(%s)",
            [claimed.workspace_id, list(claimed.rows)],
        )


def halve(claimed: Claim) -> list[int]:
    """Two rows in the place of the claimed ones, each with half of their runs."""
    middle = len(claimed.touched) // 2
    forget(claimed)
    halves = claimed.touched[:middle], claimed.touched[middle:]
    return [_append_returning(claimed.workspace_id, half) for half in halves]


def _append_returning(workspace_id: UUID, touched: Sequence[Touched]) -> int:
    append(workspace_id, touched)
    with raw_cursor() as cursor:
        cursor.execute("SELECT currval(pg_get_serial_sequence('tracing_unsettled', 'id'))")
        found: int = cursor.fetchone()[0]  # type: ignore[index]
        return found


def park(claimed: Claim, reason: str) -> None:
    """Leave the rows alone for a while. Readers go on looking at their runs themselves."""
    with raw_cursor() as cursor:
        cursor.execute(
            "UPDATE tracing_unsettled SET failure = %s, retry_at = now() + %s"
            " WHERE workspace_id = %s AND id = ANY(%s)",
            [reason.replace("\x00", ""), PARKED_FOR, claimed.workspace_id, list(claimed.rows)],
        )


def _is_alone(workspace_id: UUID, *, wait: bool) -> bool:
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


def _rows(workspace_id: UUID, ending: str, values: Sequence[object]) -> list[_Row]:
    statement = f"SELECT id, {_COLUMNS} FROM tracing_unsettled WHERE workspace_id = %s {ending}"
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [workspace_id, *values], binary=True)
        return cursor.fetchall()


def _up_to(runs: int, rows: Sequence[_Row]) -> list[_Row]:
    """The first rows, enough for that many runs."""
    chosen: list[_Row] = []
    for row in rows:
        chosen.append(row)
        runs -= len(row[1])
        if runs <= 0:
            break
    return chosen


def _claim(workspace_id: UUID, rows: Sequence[_Row]) -> Claim:
    touched = {Touched(*one) for _, *columns in rows for one in zip(*columns, strict=True)}
    return Claim(workspace_id, [row[0] for row in rows], sorted(touched))
