"""What is told to other servers about runs that ended, and how that went."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.agent_server.querysets import WebhookDeliveryQuerySet, WebhookSecretQuerySet
from apps.agent_server.statuses import DeliveryStatus
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.deployments.models import Deployment


class WebhookDelivery(WorkspaceOwned):
    """One webhook, from the end of its run until it is delivered or given up. `id` is its id.

    The row is inserted by the transaction that ends the run. A sender holds it until `due_at` under
    the token `attempts`; when the sender dies it simply is due again.
    """

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, related_name="webhook_deliveries", db_index=False
    )
    run_id = models.UUIDField(unique=True)
    """No foreign key: stateless runs go sooner than the log of their webhooks."""
    thread_id = models.UUIDField()
    url = models.TextField()
    status = models.CharField(max_length=12, choices=DeliveryStatus, default=DeliveryStatus.DUE)
    attempts = models.PositiveIntegerField(db_default=0)
    due_at = models.DateTimeField(db_default=Now())
    payload = models.JSONField(null=True, blank=True)
    """The run as it ended, with the thread's values of that moment; null once nobody needs it."""
    run_created_at = models.DateTimeField()
    run_started_at = models.DateTimeField(null=True, blank=True)
    run_ended_at = models.DateTimeField()
    response_status = models.PositiveIntegerField(null=True, blank=True)
    """Of the newest attempt that was answered."""
    last_error = models.TextField(db_default="")
    log = models.JSONField(db_default=[])
    """An entry for each attempt: `{at, status, error, milliseconds}`."""
    created_at = models.DateTimeField(db_default=Now())
    delivered_at = models.DateTimeField(null=True, blank=True)

    objects = TenantManager(WebhookDeliveryQuerySet)
    unscoped = WebhookDeliveryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "webhook deliveries"
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(status__in=["due", "sending"]), name="webhook_due"
            ),
            models.Index(fields=["workspace", "deployment", "-created_at"], name="webhook_newest"),
            models.Index(fields=["created_at"], name="webhook_oldest"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class WebhookSecret(WorkspaceOwned):
    """What a deployment signs its webhooks with, encrypted."""

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, related_name="webhook_secrets", db_index=False
    )
    secret = models.BinaryField(editable=False)
    previous = models.BinaryField(null=True, editable=False)
    """Signs as well for a day after it was replaced, so that receivers can follow."""
    replaced_at = models.DateTimeField(null=True, blank=True)

    objects = TenantManager(WebhookSecretQuerySet)
    unscoped = WebhookSecretQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "deployment"], name="webhook_secret_once")
        ]

    def __str__(self) -> str:
        return str(self.deployment_id)
