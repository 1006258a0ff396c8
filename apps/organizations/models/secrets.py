"""Workspace secrets: credentials of evaluators and the playground for other services."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.organizations.models.users import User
from apps.organizations.querysets import SecretQuerySet


class WorkspaceSecret(WorkspaceOwned):
    """A name and an encrypted, write-only value."""

    key = models.CharField(max_length=200)
    value = models.BinaryField(editable=False)
    updated_at = models.DateTimeField(auto_now=True)
    updated_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    objects = TenantManager(SecretQuerySet)
    unscoped = SecretQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [models.UniqueConstraint(fields=["workspace", "key"], name="secret_key_once")]

    def __str__(self) -> str:
        return self.key
