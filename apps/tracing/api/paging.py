"""Bidirectional keyset pagination of runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from apps.trace_store import Payload, RunDetail, RunQuery, RunRow, cursors, run_store

_BACKWARD_PREFIX = "~"
"""Prefix of cursors to the previous page; cursors of the store never start with it."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs in the requested order, with the cursors of the next and the previous page."""

    runs: Sequence[RunDetail]
    following: str | None
    previous: str | None


def read_page(
    workspace_id: UUID,
    query: RunQuery,
    *,
    limit: int,
    cursor: str | None = None,
    payloads: Collection[Payload] = (),
) -> RunPage:
    """Return the page at the cursor; raises `InvalidCursor` for a malformed one."""
    is_back = cursor is not None and cursor.startswith(_BACKWARD_PREFIX)
    if cursor is not None and is_back:
        query = replace(query, oldest_first=not query.oldest_first)
        cursor = cursor.removeprefix(_BACKWARD_PREFIX)
    page = run_store.query(workspace_id, query, limit=limit, cursor=cursor, payloads=payloads)
    if not is_back:
        first = page.runs[0].row if page.runs and cursor is not None else None
        return RunPage(page.runs, page.next_cursor, _backward_cursor(first))
    runs = list(reversed(page.runs))
    following = (
        cursors.encode_cursor(runs[-1].row.partition_time, runs[-1].row.id) if runs else None
    )
    first = runs[0].row if runs and page.next_cursor is not None else None
    return RunPage(runs, following, _backward_cursor(first))


def _backward_cursor(row: RunRow | None) -> str | None:
    return (
        None
        if row is None
        else _BACKWARD_PREFIX + cursors.encode_cursor(row.partition_time, row.id)
    )
