from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from apps.audit.models import Entry  # noqa: F401


class EntryQuerySet(models.QuerySet["Entry"]):
    def of_organization(self, organization_id: UUID) -> EntryQuerySet:
        """Entries that the organization's owners and admins may read."""
        return self.filter(organization_id=organization_id)

    def newest_first(self) -> EntryQuerySet:
        return self.order_by("-at", "-id")

    def before(self, at: datetime, entry_id: UUID) -> EntryQuerySet:
        """Entries older than the given one, for pagination."""
        return self.filter(Q(at__lt=at) | Q(at=at, id__lt=entry_id), at__lte=at)
