"""Deliveries: messages to addresses of tenants, with the log of their attempts."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.core.ids import uuid7
from apps.core.json import dumps_text, loads
from apps.core.secrets import decrypt, encrypt
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.core.verbatim_json import VerbatimJSONField
from apps.webhooks.statuses import DeliveryStatus


class WebhookEndpoint(WorkspaceOwned):
    """An address that is notified of events of the workspace."""

    url = models.TextField()
    encrypted_headers = models.BinaryField(editable=False)
    """JSON of the additional headers: they may contain credentials."""
    secret = models.BinaryField(editable=False)
    """The encrypted secret that signs deliveries."""
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.url

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = loads(decrypt(self.encrypted_headers))
        return headers

    @headers.setter
    def headers(self, headers: dict[str, str]) -> None:
        self.encrypted_headers = encrypt(dumps_text(headers))


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def due(self) -> DeliveryQuerySet:
        """Deliveries to be sent; a claimed one is due again after its lease."""
        return self.unfinished().filter(due_at__lte=Now())

    def unfinished(self) -> DeliveryQuerySet:
        return self.filter(status__in=["due", "sending"])

    def finished(self) -> DeliveryQuerySet:
        return self.filter(status__in=["delivered", "given_up"])

    def newest_first(self) -> DeliveryQuerySet:
        return self.order_by("-created_at", "-pk")


class Delivery(WorkspaceOwned):
    """One message about one event to one endpoint, until it is delivered or given up.

    The transaction of the event inserts the row. A sender leases it until `due_at` with the token
    `attempts`; if the sender dies, the row is due again.
    """

    kind = models.CharField(max_length=20)
    """The app that builds the request; see `request_builders`."""
    endpoint_id = models.UUIDField()
    """The row that has the address and the secrets. Deliveries of an endpoint share a limit."""
    subject_id = models.UUIDField()
    """The row that the event is about, such as an alert rule."""
    event = models.CharField(max_length=40)
    payload = VerbatimJSONField()
    """What the request is built from."""
    message_id = models.UUIDField(default=uuid7)
    """The `webhook-id`: that of the first delivery if this one is a replay."""
    is_replay = models.BooleanField(default=False)
    status = models.CharField(max_length=12, choices=DeliveryStatus, default=DeliveryStatus.DUE)
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(db_default=Now())
    response_status = models.PositiveIntegerField(null=True)
    """The status of the newest attempt with a response."""
    last_error = models.TextField(blank=True)
    log = models.JSONField(default=list)
    """An entry for each attempt: `{at, status, error, milliseconds}`."""
    delivered_at = models.DateTimeField(null=True)

    objects = TenantManager(DeliveryQuerySet)
    unscoped = DeliveryQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="delivery_newest"),
            models.Index(
                fields=["workspace", "endpoint_id", "-created_at", "-id"],
                name="delivery_of_endpoint",
            ),
            models.Index(
                fields=["workspace", "subject_id", "-created_at", "-id"],
                name="delivery_of_subject",
            ),
            models.Index(
                fields=["due_at"],
                condition=Q(status__in=["due", "sending"]),
                name="delivery_due",
            ),
            models.Index(fields=["created_at"], name="delivery_oldest"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.event}"

    @property
    def is_finished(self) -> bool:
        return self.status in {DeliveryStatus.DELIVERED, DeliveryStatus.GIVEN_UP}
