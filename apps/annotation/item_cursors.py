"""Cursors of the list of items: the place of an item in a reviewer's order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.annotation.querysets import QueueItemQuerySet
from apps.trace_store.cursors import decode_cursor, encode_cursor


def cursor_after(item: Any) -> str:
    """Return the cursor of the items after this item of `for_reviewer`."""
    return encode_cursor(item.effective_added_at, item.pk)


def page_after(rows: QueueItemQuerySet, cursor: str | None, size: int) -> tuple[list[Any], bool]:
    """Return the first items after the cursor, and whether there are more."""
    if cursor is not None:
        time, pk = decode_cursor(cursor)
        rows = rows.filter(_side("gt", time, pk))
    page: list[Any] = list(rows[: size + 1])
    return page[:size], len(page) > size


def page_before(rows: QueueItemQuerySet, cursor: str, size: int) -> tuple[Sequence[Any], bool]:
    """Return the last items before the cursor's item, in order, and whether there are more."""
    time, pk = decode_cursor(cursor)
    page: list[Any] = list(rows.filter(_side("lt", time, pk)).reverse()[: size + 1])
    return page[:size][::-1], len(page) > size


def items_before(rows: QueueItemQuerySet, item: Any) -> QueueItemQuerySet:
    """Return the items before this one."""
    return rows.filter(_side("lt", item.effective_added_at, item.pk))


def items_after(rows: QueueItemQuerySet, item: Any) -> QueueItemQuerySet:
    """Return the items after this one."""
    return rows.filter(_side("gt", item.effective_added_at, item.pk))


def _side(side: str, time: datetime, pk: UUID) -> Q:
    return Q(**{f"effective_added_at__{side}": time}) | Q(
        effective_added_at=time, **{f"pk__{side}": pk}
    )
