"""The key table, which makes a run id one run per project whatever its start time says.

The tables of runs are partitioned by time, so their own keys would admit a second row of a run with
another time. A later operation with another position moves the stored run and the runs below it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.postgres.postprocess import queue
from apps.trace_store.postgres.writing.binary_copy import copy_rows
from apps.trace_store.run_writes import Row, RunWrite
from apps.trace_store.types import ChangedRun, RunKey

KEY_COLUMNS = {
    "workspace_id": "uuid",
    "id": "uuid",
    "project_id": "uuid",
    "partition_time": "timestamptz",
}

_CLAIM = sql(
    "INSERT INTO trace_store_run_key AS k (workspace_id, id, project_id, partition_time)"
    " SELECT * FROM unnest(%b::uuid[], %b::uuid[], %b::uuid[], %b::timestamptz[])"
    " ON CONFLICT (workspace_id, id, project_id)"
    " DO UPDATE SET partition_time = excluded.partition_time"
    # Without a change the row is locked and not written.
    " WHERE k.partition_time <> excluded.partition_time"
    " RETURNING new.id, new.project_id, old.partition_time"
)
_SELECT_STORED = """
SELECT r.id, r.project_id, r.partition_time, r.trace_id, r.dotted_order
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, partition_time)
JOIN trace_store_run r ON r.workspace_id = %s AND r.id = k.id AND r.project_id = k.project_id
    AND r.partition_time = k.partition_time
WHERE r.partition_time BETWEEN %s AND %s
FOR UPDATE OF r
"""
_MOVE_RUNS = """
UPDATE trace_store_run r
SET partition_time = m.new_time, trace_id = m.trace_id, parent_run_id = m.parent_run_id,
    dotted_order = m.dotted_order,
    start_time = CASE WHEN m.has_start_time OR r.start_time <= m.new_time - interval '1 day'
        OR r.start_time >= m.new_time + interval '1 day' THEN NULL ELSE r.start_time END
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::timestamptz[], %s::uuid[], %s::uuid[],
    %s::text[], %s::bool[])
    AS m(id, project_id, old_time, new_time, trace_id, parent_run_id, dotted_order, has_start_time)
WHERE r.workspace_id = %s AND r.id = m.id AND r.project_id = m.project_id
    AND r.partition_time = m.old_time AND r.partition_time BETWEEN %s AND %s
"""
_MOVE_PAYLOADS = """
UPDATE trace_store_run_payload p SET partition_time = m.new_time
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::timestamptz[])
    AS m(id, project_id, old_time, new_time)
WHERE p.workspace_id = %s AND p.id = m.id AND p.project_id = m.project_id
    AND p.partition_time = m.old_time AND p.partition_time BETWEEN %s AND %s
"""
_DELETE_TERMS = """
DELETE FROM trace_store_run_terms t
USING unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS m(id, project_id, old_time)
WHERE t.workspace_id = %s AND t.id = m.id AND t.project_id = m.project_id
    AND t.partition_time = m.old_time AND t.partition_time BETWEEN %s AND %s
"""
_MOVE_DESCENDANTS = """
UPDATE trace_store_run r
SET dotted_order = m.new || substr(r.dotted_order, length(m.old) + 1), trace_id = m.new_trace_id
FROM unnest(%s::text[], %s::text[], %s::uuid[], %s::uuid[], %s::uuid[])
    AS m(old, new, old_trace_id, new_trace_id, project_id)
WHERE r.workspace_id = %s AND r.trace_id = m.old_trace_id AND r.project_id = m.project_id
    AND left(r.dotted_order, %s) = m.old || '.'
RETURNING r.id, r.project_id, r.partition_time, r.trace_id
"""


@dataclass(frozen=True, slots=True)
class _Move:
    """A stored run and its new position."""

    run: RunWrite
    old_time: datetime
    old_trace_id: UUID
    old_dotted_order: str

    @property
    def identity(self) -> Row:
        return self.run.identity

    @property
    def has_start_time(self) -> bool:
        contents = (self.run.create, self.run.update)
        return any(content is not None and "start_time" in content.columns for content in contents)


def insert_keys(runs: Sequence[RunWrite]) -> None:
    """Insert the keys of new runs; an existing key is a unique violation."""
    copy_rows("trace_store_run_key", KEY_COLUMNS, [run.identity for run in runs])


def claim_keys(workspace_id: UUID, runs: Sequence[RunWrite]) -> None:
    """Insert or lock the keys in the order of `runs`; move stored runs to their new positions."""
    if not runs:
        return
    identities = [run.identity for run in runs]
    columns = [[identity[name] for identity in identities] for name in KEY_COLUMNS]
    with raw_cursor() as cursor:
        cursor.execute(_CLAIM, columns, binary=True, prepare=True)
        old_times = {(row[0], row[1]): row[2] for row in cursor if row[2] is not None}
    if old_times:
        _move_runs(workspace_id, [run for run in runs if _id_of(run) in old_times], old_times)


def delete_keys(workspace_id: UUID, keys: Collection[RunKey]) -> None:
    """Delete the keys of removed runs."""
    with raw_cursor() as cursor:
        cursor.execute(
            "DELETE FROM trace_store_run_key k"
            " USING unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
            " AS removed(id, project_id, partition_time)"
            " WHERE k.workspace_id = %s AND k.id = removed.id AND k.project_id = removed.project_id"
            " AND k.partition_time = removed.partition_time",
            [*([key[index] for key in keys] for index in range(3)), workspace_id],
        )


def _id_of(run: RunWrite) -> tuple[UUID, UUID]:
    return run.identity["id"], run.identity["project_id"]


def _move_runs(
    workspace_id: UUID, runs: Sequence[RunWrite], old_times: dict[tuple[UUID, UUID], datetime]
) -> None:
    times = [old_times[_id_of(run)] for run in runs]
    bounds = [workspace_id, min(times), max(times)]
    ids = [run.identity["id"] for run in runs]
    project_ids = [run.identity["project_id"] for run in runs]
    with raw_cursor() as cursor:
        cursor.execute(_SELECT_STORED, [ids, project_ids, times, *bounds])
        stored = {(row[0], row[1]): row[2:] for row in cursor}
    moves = [_Move(run, *stored[_id_of(run)]) for run in runs if _id_of(run) in stored]
    if not moves:
        return
    identities = [move.identity for move in moves]
    ids = [identity["id"] for identity in identities]
    project_ids = [identity["project_id"] for identity in identities]
    old = [move.old_time for move in moves]
    new = [identity["partition_time"] for identity in identities]
    with raw_cursor() as cursor:
        cursor.execute(
            _MOVE_RUNS,
            [
                *(ids, project_ids, old, new),
                *(
                    [identity[name] for identity in identities]
                    for name in ("trace_id", "parent_run_id", "dotted_order")
                ),
                [move.has_start_time for move in moves],
                *bounds,
            ],
        )
        cursor.execute(_MOVE_PAYLOADS, [ids, project_ids, old, new, *bounds])
        cursor.execute(_DELETE_TERMS, [ids, project_ids, old, *bounds])
    changed = [
        ChangedRun(run_id, project_id, move.old_time, move.old_trace_id)
        for run_id, project_id, move in zip(ids, project_ids, moves, strict=True)
    ]
    queue.enqueue(workspace_id, [*changed, *_move_descendants(workspace_id, moves)])


def _move_descendants(workspace_id: UUID, moves: Sequence[_Move]) -> list[ChangedRun]:
    """Adapt the dotted orders and traces below the moved runs, the deepest moved run first."""
    moved: list[ChangedRun] = []
    deepest_first = sorted(moves, key=lambda move: -len(move.old_dotted_order))
    for length, group in groupby(deepest_first, key=lambda move: len(move.old_dotted_order)):
        rows = list(group)
        with raw_cursor() as cursor:
            cursor.execute(
                _MOVE_DESCENDANTS,
                [
                    [move.old_dotted_order for move in rows],
                    [move.identity["dotted_order"] for move in rows],
                    [move.old_trace_id for move in rows],
                    [move.identity["trace_id"] for move in rows],
                    [move.identity["project_id"] for move in rows],
                    workspace_id,
                    length + 1,
                ],
            )
            moved += [ChangedRun(*row) for row in cursor]
    return moved
