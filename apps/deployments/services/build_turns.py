"""Builders take the organizations in turn.

A message means that some revision waits. An organization may hold all threads of a builder but one,
at least one. Among the others, the one that holds the fewest is next, and of these the one whose
last build began the longest ago.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from apps.deployments import dispatch
from apps.deployments.models import Revision
from apps.deployments.querysets import RevisionQuerySet
from apps.deployments.services import progress

_REASON = "builders take the organizations in turn"
_ORGANIZATION = "workspace__organization_id"
_RECENT = timedelta(hours=1)
"""An earlier build gives an organization no later turn."""
_claiming = threading.Lock()
"""Two threads of a builder must not both take the last place of an organization."""


def claim_next(revision_id: UUID, *, owner: str) -> Revision | None:
    """Claim the revision whose turn it is, rather this one than others of its organization."""
    with _claiming:
        for candidate in _in_turn(revision_id, owner):
            if (revision := progress.claim(candidate, owner=owner)) is not None:
                return revision
    return None


def wake_builder() -> None:
    """Send a message if a revision waits, after a build that may have kept it waiting."""
    waiting = _revisions().unclaimed().order_by("updated_at").values_list("pk", flat=True).first()
    if waiting is not None:
        dispatch.build_revision(waiting)


def _in_turn(preferred: UUID, owner: str) -> Iterator[UUID]:
    """Yield the waiting revisions that may be claimed, the next one first."""
    waiting: dict[UUID, list[UUID]] = {}
    rows = _revisions().unclaimed().order_by("updated_at").values_list("pk", _ORGANIZATION)
    for pk, organization_id in rows:
        waiting.setdefault(organization_id, []).append(pk)
    held = _count_held(owner)
    limit = max(1, settings.BUILD_THREADS - 1)
    allowed = [organization_id for organization_id in waiting if held[organization_id] < limit]
    began = _last_begun(allowed) if len(allowed) > 1 else {}
    never = timezone.now() - _RECENT
    allowed.sort(key=lambda organization: (held[organization], began.get(organization, never)))
    for organization_id in allowed:
        yield from sorted(waiting[organization_id], key=lambda pk: pk != preferred)


def _count_held(owner: str) -> Counter[UUID]:
    """Return how many revisions of each organization a builder is working on."""
    held = _revisions().filter(lease_owner=owner, lease_expires_at__gt=timezone.now())
    return Counter(held.values_list(_ORGANIZATION, flat=True))


def _last_begun(organization_ids: list[UUID]) -> dict[UUID, datetime]:
    begun = _revisions().filter(
        workspace__organization__in=organization_ids,
        started_at__gt=timezone.now() - _RECENT,
    )
    last = begun.values_list(_ORGANIZATION).annotate(last=Max("started_at")).order_by()
    return dict(last)


def _revisions() -> RevisionQuerySet:
    return Revision.objects.across_workspaces(reason=_REASON)
