"""Addresses that A2A clients want to be notified at."""

from __future__ import annotations

from django.db import models

from apps.agent_server.models.a2a import A2ATask
from apps.agent_server.querysets import A2APushConfigQuerySet
from apps.core.json import dumps_text, loads
from apps.core.secrets import decrypt, encrypt
from apps.core.tenancy import TenantManager, WorkspaceOwned


class A2APushConfig(WorkspaceOwned):
    """An address that is sent the changes of a task. It is kept as long as the task is."""

    task = models.ForeignKey(A2ATask, models.CASCADE, related_name="push_configs", db_index=False)
    config_id = models.CharField(max_length=255)
    """The client's name of the configuration, unique within the task."""
    url = models.TextField()
    encrypted_secrets = models.BinaryField(editable=False)
    """JSON `{token, scheme, credentials}`: what the receiver knows the sender by."""
    is_legacy = models.BooleanField(default=False)
    """Whether a client of A2A 0.3 has set it: its receiver expects whole tasks."""

    objects = TenantManager(A2APushConfigQuerySet)
    unscoped = A2APushConfigQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["task", "config_id"], name="a2a_push_config_once")
        ]
        indexes = [models.Index(fields=["workspace"], name="a2a_push_workspace")]

    def __str__(self) -> str:
        return self.config_id

    @property
    def secrets(self) -> dict[str, str]:
        values: dict[str, str] = loads(decrypt(self.encrypted_secrets))
        return values

    @secrets.setter
    def secrets(self, values: dict[str, str]) -> None:
        self.encrypted_secrets = encrypt(dumps_text(values))
