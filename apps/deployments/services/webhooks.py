"""Webhooks of deployments: create, change, and enqueue deliveries about revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import get_or_404
from apps.deployments import errors
from apps.deployments.models import DeploymentEvent, DeploymentWebhook, Revision
from apps.deployments.statuses import FAILED, RevisionStatus
from apps.webhooks import delivery_queue, endpoints
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.delivery_worker import OutboundRequest
from apps.webhooks.models import Delivery

KIND = "deployment"
TEST = "test"
MAX_WEBHOOKS = 20
_EVENTS = {
    RevisionStatus.DEPLOYED: DeploymentEvent.DEPLOYED,
    RevisionStatus.INTERRUPTED: DeploymentEvent.INTERRUPTED,
    **dict.fromkeys(FAILED, DeploymentEvent.FAILED),
}


@transaction.atomic
def create_webhook(
    *, workspace_id: UUID, fields: Mapping[str, Any]
) -> tuple[DeploymentWebhook, str]:
    """Create a webhook and return it with its signing secret.

    Raises `WebhookBlocked`, `InvalidHeaders`, `InvalidWebhookAddress` or `TooManyWebhooks`.
    """
    if DeploymentWebhook.objects.for_workspace(workspace_id).count() >= MAX_WEBHOOKS:
        raise errors.TooManyWebhooks(f"A workspace has at most {MAX_WEBHOOKS} of them.")
    webhook = DeploymentWebhook(workspace_id=workspace_id)
    webhook.headers = {}
    secret = endpoints.set_new_secret(webhook)
    _assign(webhook, fields)
    webhook.save(force_insert=True)
    _record(Action.DEPLOYMENT_WEBHOOK_CREATED, webhook, after=_audit_values(webhook))
    return webhook, secret


@transaction.atomic
def update_webhook(*, webhook: DeploymentWebhook, changes: Mapping[str, Any]) -> DeploymentWebhook:
    """Change the fields. Raises as `create_webhook`."""
    rows = DeploymentWebhook.objects.for_workspace(webhook.workspace_id)
    row = get_or_404(rows.select_for_update(no_key=True), pk=webhook.pk)
    before = _audit_values(row)
    _assign(row, changes)
    row.save()
    _record(Action.DEPLOYMENT_WEBHOOK_UPDATED, row, before=before, after=_audit_values(row))
    return row


@transaction.atomic
def replace_secret(*, webhook: DeploymentWebhook) -> str:
    """Replace the signing secret and return the new one."""
    secret = endpoints.set_new_secret(webhook)
    webhook.save(update_fields=["secret", "updated_at"])
    _record(Action.DEPLOYMENT_WEBHOOK_UPDATED, webhook, after=_audit_values(webhook))
    return secret


@transaction.atomic
def delete_webhook(*, webhook: DeploymentWebhook) -> None:
    """Delete the webhook with its unsent deliveries and its log."""
    _record(Action.DEPLOYMENT_WEBHOOK_DELETED, webhook, before=_audit_values(webhook))
    endpoints.delete_with_deliveries(webhook)


def _assign(webhook: DeploymentWebhook, fields: Mapping[str, Any]) -> None:
    endpoints.assign_address(webhook, fields)
    if "events" in fields:
        webhook.events = list(dict.fromkeys(fields["events"]))
    if "deployment" in fields:
        webhook.deployment = fields["deployment"]


def enqueue(revision: Revision) -> None:
    """Insert a delivery for each webhook of the revision's new status, in its transaction."""
    event = _EVENTS.get(RevisionStatus(revision.status))
    if event is None:
        return
    rows = DeploymentWebhook.objects.for_workspace(revision.workspace_id)
    rows = rows.filter(Q(deployment=None) | Q(deployment=revision.deployment_id))
    webhooks = rows.filter(events__contains=[event]).order_by("pk")
    ids = list(webhooks.values_list("pk", flat=True))
    if not ids:
        return
    deployment = revision.deployment
    path = reverse("revision-detail", args=[revision.workspace_id, deployment.pk, revision.pk])
    payload = {
        "event": event,
        "deployment_id": deployment.pk,
        "deployment_name": deployment.name,
        "revision_id": revision.pk,
        "revision_number": revision.number,
        "status": revision.status,
        "failure": revision.failure or None,
        "repo_url": revision.repo_url or None,
        "commit_sha": revision.commit_sha or None,
        "created_at": timezone.now(),
        "url": f"{settings.BASE_URL}{path}",
    }
    delivery_queue.enqueue(
        [_build_delivery(revision.workspace_id, id_, deployment.pk, payload) for id_ in ids]
    )


@transaction.atomic
def send_test(*, webhook: DeploymentWebhook) -> Delivery:
    """Enqueue a delivery of the event `test`; the log has its result."""
    payload = {"event": TEST, "created_at": timezone.now()}
    delivery = _build_delivery(webhook.workspace_id, webhook.pk, webhook.pk, payload)
    delivery_queue.enqueue([delivery], max_per_hour=endpoints.MAX_REPLAYED_PER_HOUR)
    return delivery


def _build_delivery(
    workspace_id: UUID, webhook_id: UUID, subject_id: UUID, payload: dict[str, Any]
) -> Delivery:
    return Delivery(
        workspace_id=workspace_id,
        kind=KIND,
        endpoint_id=webhook_id,
        subject_id=subject_id,
        event=payload["event"],
        payload=payload,
    )


def build_delivery_request(delivery: Delivery) -> OutboundRequest | DeliveryResult:
    """Build the request with the webhook's current address and secret."""
    rows = DeploymentWebhook.objects.for_workspace(delivery.workspace_id)
    webhook = rows.filter(pk=delivery.endpoint_id).first()
    if webhook is None:
        return DeliveryResult(error="The webhook was deleted.", is_final=True)
    return endpoints.build_endpoint_request(webhook, delivery, delivery.payload)


def _audit_values(webhook: DeploymentWebhook) -> dict[str, Any]:
    return {
        "url": webhook.url,
        "events": webhook.events,
        "headers": sorted(webhook.headers),
        "deployment_id": webhook.deployment_id,
    }


def _record(action: Action, webhook: DeploymentWebhook, **values: Any) -> None:
    target = Target("deployment_webhook", webhook.pk, webhook.url)
    record(action, target, workspace_id=webhook.workspace_id, **values)
