from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.utils import timezone

if TYPE_CHECKING:
    from apps.api_keys.models import ApiKey  # noqa: F401


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def live(self) -> ApiKeyQuerySet:
        """Neither revoked nor expired."""
        now = timezone.now()
        return self.filter(Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now)))

    def unrevoked(self) -> ApiKeyQuerySet:
        """Keys to list; includes expired ones, so that they can be removed."""
        return self.filter(revoked_at=None)

    def service(self) -> ApiKeyQuerySet:
        return self.filter(kind="service")

    def personal(self) -> ApiKeyQuerySet:
        return self.filter(kind="personal")

    def of_person(self, person_id: UUID) -> ApiKeyQuerySet:
        return self.personal().filter(person_id=person_id)

    def reaching(self, workspace_id: UUID) -> ApiKeyQuerySet:
        """Service keys with access to the workspace."""
        through = self.model.workspaces.through.objects.filter(workspace_id=workspace_id)
        chosen = Q(pk__in=through.values("apikey_id"))
        return self.service().filter(chosen | Q(is_organization_wide=True))

    def newest_first(self) -> ApiKeyQuerySet:
        return self.order_by("-created_at", "-pk")
