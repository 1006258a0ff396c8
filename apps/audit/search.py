"""Finding entries, the newest first, page by page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from apps.audit.errors import InvalidCursor
from apps.audit.models import Entry
from apps.audit.querysets import EntryQuerySet

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1000
_EXPORTED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is looked for; empty is everything of the organization."""

    organization_id: UUID
    workspace_id: UUID | None = None
    action: str = ""
    """Or the first word of actions: `key` finds `key.created`."""
    actor: str = ""
    """An id, or a part of what the actor is called."""
    target: str = ""
    begin: datetime | None = None
    end: datetime | None = None
    """Not included."""

    def rows(self) -> EntryQuerySet:
        rows = Entry.objects.of_organization(self.organization_id).newest_first()
        if self.workspace_id is not None:
            rows = rows.filter(workspace_id=self.workspace_id)
        if self.action:
            kind = Q(action__startswith=f"{self.action.rstrip('.')}.")
            rows = rows.filter(Q(action=self.action) | kind)
        if self.actor:
            rows = rows.filter(_called("actor", self.actor) | _called("impersonator", self.actor))
        if self.target:
            rows = rows.filter(Q(target_id=self.target) | Q(target_name__icontains=self.target))
        if self.begin is not None:
            rows = rows.filter(at__gte=self.begin)
        if self.end is not None:
            rows = rows.filter(at__lt=self.end)
        return rows

    @property
    def filters(self) -> list[str]:
        """What narrows the search, in words."""
        said = {"action": self.action, "actor": self.actor, "target": self.target}
        return [f"{name}: {value}" for name, value in said.items() if value]


def _called(whose: str, said: str) -> Q:
    try:
        return Q(**{f"{whose}_id": UUID(said)})
    except ValueError:
        return Q(**{f"{whose}_label__icontains": said.replace("\0", "")})


def page(
    search: Search, *, cursor: str | None = None, limit: int = DEFAULT_PAGE_SIZE
) -> tuple[Sequence[Entry], str | None]:
    """A page, and the cursor of the next one if there is one; `InvalidCursor` for a made-up one."""
    rows = search.rows()
    if cursor:
        rows = rows.before(*_place(cursor))
    found = list(rows[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    return found, _cursor(found[-1]) if more else None


def iterate_entries(search: Search) -> Iterator[Entry]:
    """All entries, some at a time, however many there are."""
    cursor: str | None = None
    while True:
        found, cursor = page(search, cursor=cursor, limit=_EXPORTED_AT_ONCE)
        yield from found
        if cursor is None:
            return


def _cursor(entry: Entry) -> str:
    text = f"{entry.at.isoformat()} {entry.pk}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _place(cursor: str) -> tuple[datetime, UUID]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, entry_id = text.partition(" ")
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError(cursor)
        return moment, UUID(entry_id)
    except (ValueError, binascii.Error, OverflowError):
        raise InvalidCursor from None
