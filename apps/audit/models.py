"""The audit log. A PostgreSQL trigger makes its rows append-only."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.core.ids import uuid7


class EntryQuerySet(models.QuerySet["Entry"]):
    def of_organization(self, organization_id: UUID) -> EntryQuerySet:
        """Entries that the organization's owners and admins may read."""
        return self.filter(organization_id=organization_id)

    def newest_first(self) -> EntryQuerySet:
        return self.order_by("-at", "-id")

    def before(self, at: datetime, entry_id: UUID) -> EntryQuerySet:
        """Entries older than the given one, for pagination."""
        return self.filter(Q(at__lt=at) | Q(at=at, id__lt=entry_id), at__lte=at)


class ActorKind(models.TextChoices):
    USER = "user"
    KEY = "key"
    OPERATOR = "operator"
    SYSTEM = "system"


class Entry(models.Model):
    """An action of an actor on a target.

    Entries outlive their targets: there are no foreign keys, and names are those at the time.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    at = models.DateTimeField(default=timezone.now, editable=False)
    organization_id = models.UUIDField(null=True, editable=False)
    """Empty for operator actions on the installation."""
    workspace_id = models.UUIDField(null=True, editable=False)
    action = models.CharField(max_length=64, editable=False)

    target_kind = models.CharField(max_length=32, editable=False)
    target_id = models.CharField(max_length=64, blank=True, editable=False)
    target_name = models.CharField(max_length=200, blank=True, editable=False)

    actor_kind = models.CharField(max_length=10, choices=ActorKind, editable=False)
    actor_id = models.UUIDField(null=True, editable=False)
    actor_label = models.CharField(max_length=254, editable=False)
    """An email address, a key's name and prefix, a command or a task."""
    impersonator_id = models.UUIDField(null=True, editable=False)
    """The operator who was signed in as the actor."""
    impersonator_label = models.CharField(max_length=254, blank=True, editable=False)

    ip = models.GenericIPAddressField(null=True, editable=False)
    request_id = models.CharField(max_length=64, blank=True, editable=False)
    before = models.JSONField(null=True, editable=False)
    after = models.JSONField(null=True, editable=False)

    objects = EntryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "audit log"
        indexes = [
            models.Index("organization_id", F("at").desc(), F("id").desc(), name="audit_by_time"),
            models.Index(
                "organization_id", "action", F("at").desc(), F("id").desc(), name="audit_by_action"
            ),
            models.Index(
                "organization_id",
                "actor_id",
                F("at").desc(),
                F("id").desc(),
                name="audit_by_actor",
            ),
            models.Index(F("at").desc(), F("id").desc(), name="audit_of_all"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_label} {self.action} {self.target_name}".strip()
