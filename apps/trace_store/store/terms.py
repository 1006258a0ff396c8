"""The index of what runs hold: `tracing_runterms`, filled when runs are settled."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from uuid import UUID
from zlib import crc32

from apps.trace_store.store.raw import raw_cursor, sql

Key = tuple[UUID, UUID, datetime]
"""Run, project, place."""

_HEADER = struct.Struct(">5i")
_INTEGER_OID = 23
_KEYS = "unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, placed_at)"


def of_workspace(workspace_id: UUID, terms: Iterable[int]) -> list[int]:
    """The terms as the index has them: those of two workspaces do not meet in its lists."""
    salt = crc32(workspace_id.bytes) - 2**31
    return [term ^ salt for term in terms]


def write_terms(workspace_id: UUID, terms: Sequence[tuple[Key, Sequence[int]]]) -> None:
    """Make these the terms of the runs. The caller is the workspace's only writer of terms."""
    if not terms:
        return
    keys = [key for key, _ in terms]
    times = [key[2] for key in keys]
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                f"DELETE FROM tracing_runterms t USING {_KEYS} WHERE t.workspace_id = %s"
                " AND t.project_id = k.project_id AND t.placed_at = k.placed_at AND t.id = k.id"
                " AND t.placed_at BETWEEN %s AND %s"
            ),
            [
                [key[0] for key in keys],
                [key[1] for key in keys],
                times,
                workspace_id,
                min(times),
                max(times),
            ],
        )
    copy_terms(
        (workspace_id, project_id, placed_at, run_id, packed(of_workspace(workspace_id, found)))
        for (run_id, project_id, placed_at), found in terms
    )


def copy_terms(rows: Iterable[tuple[UUID, UUID, datetime, UUID, bytes]]) -> None:
    """Append rows that are not there yet."""
    statement = (
        "COPY tracing_runterms (workspace_id, project_id, placed_at, id, terms)"
        " FROM STDIN (FORMAT binary)"
    )
    with raw_cursor() as cursor, cursor.copy(sql(statement)) as copy:
        copy.set_types(["uuid", "uuid", "timestamptz", "uuid", "bytea"])
        for row in rows:
            copy.write_row(row)


def packed(terms: Sequence[int]) -> bytes:
    """An array of integers as PostgreSQL's binary form has it."""
    size = len(terms)
    if not size:
        return _EMPTY
    members = struct.pack(f">{2 * size}i", *chain.from_iterable((4, one) for one in terms))
    return _HEADER.pack(1, 0, _INTEGER_OID, size, 1) + members


_EMPTY = struct.pack(">3i", 0, 0, _INTEGER_OID)
