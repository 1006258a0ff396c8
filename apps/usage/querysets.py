from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models import Q

from apps.organizations.models import Workspace

if TYPE_CHECKING:
    from apps.usage.models import UsageDay, UsageLimit  # noqa: F401


class UsageDayQuerySet(models.QuerySet["UsageDay"]):
    def between(self, first: date, last: date) -> UsageDayQuerySet:
        """The days from `first` to `last`, both included."""
        return self.filter(day__gte=first, day__lte=last)


class UsageLimitQuerySet(models.QuerySet["UsageLimit"]):
    def applying_to(self, workspace_id: UUID) -> UsageLimitQuerySet:
        """Limits that apply to the workspace: its own, and its organization's."""
        organization = Workspace.objects.filter(pk=workspace_id).values("organization_id")
        return self.filter(
            Q(workspace_id=workspace_id) | Q(workspace=None, organization_id__in=organization)
        )

    def of_organization(self, organization_id: UUID) -> UsageLimitQuerySet:
        """Limits of the organization itself."""
        return self.filter(organization_id=organization_id, workspace=None)

    def of_workspace(self, workspace_id: UUID) -> UsageLimitQuerySet:
        return self.filter(workspace_id=workspace_id)
