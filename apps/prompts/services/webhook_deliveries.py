"""Claims due deliveries of prompt webhooks and records their results (a `DeliveryQueue`)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.core.json import dumps
from apps.core.secrets import decrypt
from apps.prompts.models import PromptWebhookDelivery, WebhookEvent
from apps.prompts.querysets import PromptWebhookDeliveryQuerySet
from apps.prompts.services.webhooks import build_request
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest
from apps.webhooks.delivery_worker import (
    LEASE_SECONDS,
    RETRY_SECONDS,
    ClaimedDelivery,
    retry_delay,
)
from apps.webhooks.policy import WebhookBlocked
from apps.webhooks.statuses import DeliveryStatus

DELETE_BATCH_SIZE = 1000


def _all_deliveries() -> PromptWebhookDeliveryQuerySet:
    return PromptWebhookDelivery.objects.across_workspaces(
        reason="a worker sends the webhooks of all workspaces"
    )


@transaction.atomic
def claim(limit: int, excluded: Collection[UUID] = ()) -> list[ClaimedDelivery]:
    """Lease due deliveries of webhooks that are not excluded."""
    rows = _all_deliveries().due().exclude(webhook__in=excluded).order_by("due_at")
    rows = rows.select_for_update(skip_locked=True, of=("self",))
    claimed = list(rows.select_related("webhook", "commit__repository")[:limit])
    lease_ends_at = timezone.now() + timedelta(seconds=LEASE_SECONDS)
    for row in claimed:
        row.status, row.attempts = DeliveryStatus.SENDING, row.attempts + 1
        row.due_at = lease_ends_at
    _all_deliveries().bulk_update(claimed, ["status", "attempts", "due_at"])
    return [ClaimedDelivery(row.pk, row.attempts, row.webhook_id, _request(row)) for row in claimed]


def _request(row: PromptWebhookDelivery) -> WebhookRequest | DeliveryResult:
    webhook = row.webhook
    try:
        return build_request(
            webhook.url, webhook.headers, decrypt(webhook.secret), f"msg_{row.pk}", _body(row)
        )
    except WebhookBlocked as error:
        return DeliveryResult(error=error.detail, is_final=True)


def _body(row: PromptWebhookDelivery) -> bytes:
    commit = row.commit
    payload = {
        "event": row.event,
        "prompt_id": commit.repository_id,
        "prompt_name": commit.repository.handle,
        "commit_hash": commit.commit_hash,
        "created_at": row.created_at,
        "created_by": row.author,
        "manifest": commit.manifest,
    }
    if row.event != WebhookEvent.COMMIT:
        payload["tag_name"] = row.tag_name
    return dumps(payload)


@transaction.atomic
def record(delivery: ClaimedDelivery, result: DeliveryResult, seconds: float) -> None:
    """Record an attempt and schedule the next one. The result of a stale attempt is discarded."""
    claimed = _all_deliveries().filter(
        pk=delivery.id, attempts=delivery.attempt, status=DeliveryStatus.SENDING
    )
    row = claimed.select_for_update().first()
    if row is None:
        return
    now = timezone.now()
    row.log = [
        *row.log,
        {
            "at": now.isoformat(timespec="microseconds"),
            "status": result.status,
            "error": result.error or None,
            "milliseconds": round(seconds * 1000),
        },
    ]
    row.response_status = result.status if result.status is not None else row.response_status
    row.last_error = result.error
    delay = retry_delay(delivery.attempt, result, RETRY_SECONDS)
    if result.is_delivered:
        row.status, row.delivered_at = DeliveryStatus.DELIVERED, now
    elif delay is None:
        row.status = DeliveryStatus.GIVEN_UP
    else:
        row.status, row.due_at = DeliveryStatus.DUE, now + timedelta(seconds=delay)
    row.save()


def delete_old() -> int:
    """Delete old finished deliveries; return how many. Safe to repeat."""
    cutoff = timezone.now() - timedelta(days=settings.WEBHOOK_LOG_DAYS)
    deleted = 0
    while True:
        old = _all_deliveries().finished().filter(created_at__lt=cutoff)
        ids = list(old.order_by("created_at").values_list("pk", flat=True)[:DELETE_BATCH_SIZE])
        deleted += _all_deliveries().filter(pk__in=ids).delete()[0]
        if len(ids) < DELETE_BATCH_SIZE:
            return deleted
