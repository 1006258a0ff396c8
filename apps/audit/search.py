"""Search of audit entries, newest first, with cursor pagination."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from apps.audit.models import Entry, EntryQuerySet
from apps.core import errors

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1000
_EXPORT_BATCH_SIZE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Search filters; empty ones match every entry of the organization."""

    organization_id: UUID
    workspace_id: UUID | None = None
    action: str = ""
    """An action or a target kind: `key` matches `key.created`."""
    actor: str = ""
    """An id, or a part of the actor's label."""
    target: str = ""
    begin: datetime | None = None
    end: datetime | None = None
    """Exclusive."""

    def build_queryset(self) -> EntryQuerySet:
        rows = Entry.objects.of_organization(self.organization_id).newest_first()
        if self.workspace_id is not None:
            rows = rows.filter(workspace_id=self.workspace_id)
        if self.action:
            of_kind = Q(action__startswith=f"{self.action.rstrip('.')}.")
            rows = rows.filter(Q(action=self.action) | of_kind)
        if self.actor:
            rows = rows.filter(
                _match_actor("actor", self.actor) | _match_actor("impersonator", self.actor)
            )
        if self.target:
            rows = rows.filter(Q(target_id=self.target) | Q(target_name__icontains=self.target))
        if self.begin is not None:
            rows = rows.filter(at__gte=self.begin)
        if self.end is not None:
            rows = rows.filter(at__lt=self.end)
        return rows

    @property
    def filters(self) -> list[str]:
        """The filters as `name: value`."""
        filters = {"action": self.action, "actor": self.actor, "target": self.target}
        return [f"{name}: {value}" for name, value in filters.items() if value]


def _match_actor(column: str, text: str) -> Q:
    try:
        return Q(**{f"{column}_id": UUID(text)})
    except ValueError:
        return Q(**{f"{column}_label__icontains": text.replace("\0", "")})


def get_page(
    search: Search, *, cursor: str | None = None, limit: int = DEFAULT_PAGE_SIZE
) -> tuple[Sequence[Entry], str | None]:
    """Return a page and the cursor of the next one. Raises `InvalidCursor`."""
    rows = search.build_queryset()
    if cursor:
        rows = rows.before(*_parse_cursor(cursor))
    entries = list(rows[: limit + 1])
    has_more = len(entries) > limit
    entries = entries[:limit]
    return entries, _format_cursor(entries[-1]) if has_more else None


def iterate_entries(search: Search) -> Iterator[Entry]:
    """Yield all matching entries, fetched in batches."""
    cursor: str | None = None
    while True:
        entries, cursor = get_page(search, cursor=cursor, limit=_EXPORT_BATCH_SIZE)
        yield from entries
        if cursor is None:
            return


def _format_cursor(entry: Entry) -> str:
    text = f"{entry.at.isoformat()} {entry.pk}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        time_text, _, entry_id = text.partition(" ")
        timestamp = datetime.fromisoformat(time_text)
        if timestamp.tzinfo is None:
            raise ValueError(cursor)
        return timestamp, UUID(entry_id)
    except (ValueError, binascii.Error, OverflowError):
        raise errors.InvalidCursor from None
