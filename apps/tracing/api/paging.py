"""Pages of runs in both directions, by the place of their first and last run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from apps.trace_store import Payload, RunDetail, RunQuery, RunRow, cursors, run_store

_BACK = "~"
"""Begins a cursor that leads back; none of the store's own has it."""


@dataclass(frozen=True, slots=True)
class Paged:
    """Some runs in the order that was asked for, and where it goes on from them."""

    runs: Sequence[RunDetail]
    following: str | None
    previous: str | None


def page(
    workspace_id: UUID,
    query: RunQuery,
    *,
    limit: int,
    cursor: str | None = None,
    payloads: Collection[Payload] = (),
) -> Paged:
    """The page at the cursor; `InvalidCursor` for one that nobody was given."""
    is_back = cursor is not None and cursor.startswith(_BACK)
    if cursor is not None and is_back:
        query = replace(query, oldest_first=not query.oldest_first)
        cursor = cursor.removeprefix(_BACK)
    found = run_store.query(workspace_id, query, limit=limit, cursor=cursor, payloads=payloads)
    if not is_back:
        first = found.runs[0].row if found.runs and cursor is not None else None
        return Paged(found.runs, found.next_cursor, _back_from(first))
    runs = list(reversed(found.runs))
    following = (
        cursors.encode_cursor(runs[-1].row.partition_time, runs[-1].row.id) if runs else None
    )
    first = runs[0].row if runs and found.next_cursor is not None else None
    return Paged(runs, following, _back_from(first))


def _back_from(row: RunRow | None) -> str | None:
    return None if row is None else _BACK + cursors.encode_cursor(row.partition_time, row.id)
