"""API keys: only a hash is stored; the key itself is shown once."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from apps.core.ids import uuid7
from apps.organizations.models import Organization, User, Workspace


class ApiKey(models.Model):
    """A key of an organization: for one workspace, or for all when `workspace` is empty."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="api_keys")
    workspace = models.ForeignKey(
        Workspace, models.CASCADE, null=True, blank=True, related_name="api_keys"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, editable=False)
    """The visible beginning of the key."""
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    """SHA-256 of the key, which has 256 random bits, so that no slow hash is needed."""
    scopes = ArrayField(models.CharField(max_length=20))
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def is_live(self) -> bool:
        expired = self.expires_at is not None and self.expires_at <= timezone.now()
        return self.revoked_at is None and not expired
