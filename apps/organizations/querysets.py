from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q

from apps.organizations.permissions import ORGANIZATION_ADMINS

if TYPE_CHECKING:
    from apps.organizations.models import User, Workspace  # noqa: F401


class WorkspaceQuerySet(models.QuerySet["Workspace"]):
    def open_to(self, user: User) -> WorkspaceQuerySet:
        """The workspaces that the person may enter: as a member, or as the organization's admin."""
        administers = Q(
            organization__memberships__user=user,
            organization__memberships__role__in=ORGANIZATION_ADMINS,
        )
        return self.filter(administers | Q(memberships__user=user)).distinct()
