"""API keys. Only hashes are stored; the secret is shown once."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.api_keys.querysets import ApiKeyQuerySet
from apps.core.ids import uuid7
from apps.organizations.models import Organization, User, Workspace


class KeyKind(models.TextChoices):
    SERVICE = "service"
    """Belongs to the organization and survives its creator."""
    PERSONAL = "personal"
    """Acts as its user, with the permissions that both its scopes and the user's roles allow."""


class ApiKey(models.Model):
    """A key of an organization: for all or some workspaces, or for those of its user."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="api_keys")
    kind = models.CharField(max_length=10, choices=KeyKind, default=KeyKind.SERVICE, editable=False)
    person = models.ForeignKey(
        User, models.CASCADE, null=True, editable=False, related_name="personal_keys"
    )
    """The user of a personal key."""
    workspace = models.ForeignKey(
        Workspace, models.SET_NULL, null=True, blank=True, related_name="api_keys"
    )
    """The default workspace of requests that name none."""
    is_organization_wide = models.BooleanField(default=False, editable=False)
    """A service key for every current and future workspace."""
    workspaces = models.ManyToManyField(Workspace, related_name="+", blank=True)
    """The workspaces of other service keys; none if all were deleted."""
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, editable=False)
    """The visible prefix of the secret."""
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    """SHA-256 of the secret, whose 256 random bits need no slow hash."""
    previous_prefix = models.CharField(max_length=16, blank=True, editable=False)
    previous_digest = models.BinaryField(max_length=32, unique=True, null=True, editable=False)
    """The secret before the last rotation."""
    previous_until = models.DateTimeField(null=True, editable=False)
    previous_used_at = models.DateTimeField(null=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=20))
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    rotated_at = models.DateTimeField(null=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind=KeyKind.PERSONAL, person__isnull=False, is_organization_wide=False)
                | Q(kind=KeyKind.SERVICE, person=None),
                name="api_key_of_person_or_service",
            )
        ]
        indexes = [
            models.Index(fields=["organization", "kind", "-created_at"], name="api_key_list")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def is_live(self) -> bool:
        expired = self.expires_at is not None and self.expires_at <= timezone.now()
        return self.revoked_at is None and not expired

    @property
    def is_expired(self) -> bool:
        return self.revoked_at is None and not self.is_live

    @property
    def is_read_only(self) -> bool:
        return self.scopes == ["read"]

    @property
    def is_rotating(self) -> bool:
        """Whether the secret before the last rotation is still valid."""
        return self.previous_until is not None and self.previous_until > timezone.now()
