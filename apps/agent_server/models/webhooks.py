"""Webhook deliveries about ended runs, and the secrets that sign them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.agent_server.querysets import WebhookDeliveryQuerySet, WebhookSecretQuerySet
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.core.verbatim_json import VerbatimJSONField
from apps.deployments.models import Deployment
from apps.webhooks.statuses import DeliveryStatus


class WebhookDelivery(WorkspaceOwned):
    """One webhook, from the end of its run until it is delivered or given up.

    The transaction that ends the run inserts the row. A sender leases it until `due_at` with the
    token `attempts`; if the sender dies, the row is due again.
    """

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, related_name="webhook_deliveries", db_index=False
    )
    run_id = models.UUIDField(unique=True)
    """No foreign key: stateless runs are deleted before their deliveries."""
    thread_id = models.UUIDField()
    url = models.TextField()
    status = models.CharField(max_length=12, choices=DeliveryStatus, default=DeliveryStatus.DUE)
    attempts = models.PositiveIntegerField(db_default=0)
    due_at = models.DateTimeField(db_default=Now())
    payload = VerbatimJSONField(null=True, blank=True)
    """The run at its end, with the thread's values; null after the last attempt."""
    run_created_at = models.DateTimeField()
    run_started_at = models.DateTimeField(null=True, blank=True)
    run_ended_at = models.DateTimeField()
    response_status = models.PositiveIntegerField(null=True, blank=True)
    """The status of the newest attempt with a response."""
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
    """The encrypted signing secret of a deployment's webhooks."""

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, related_name="webhook_secrets", db_index=False
    )
    secret = models.BinaryField(editable=False)
    previous = models.BinaryField(null=True, editable=False)
    """Also signs for a day after its replacement, so that receivers can switch."""
    replaced_at = models.DateTimeField(null=True, blank=True)

    objects = TenantManager(WebhookSecretQuerySet)
    unscoped = WebhookSecretQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "deployment"], name="webhook_secret_once")
        ]

    def __str__(self) -> str:
        return str(self.deployment_id)
