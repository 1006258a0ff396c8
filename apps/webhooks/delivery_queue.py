"""Inserts, claims, records and replays deliveries (a `DeliveryQueue`)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.webhooks import dispatch, errors
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.delivery_worker import (
    LEASE_SECONDS,
    RETRY_SECONDS,
    ClaimedDelivery,
    retry_delay,
)
from apps.webhooks.models import Delivery, DeliveryQuerySet
from apps.webhooks.request_builders import build_request
from apps.webhooks.statuses import DeliveryStatus

DELETE_BATCH_SIZE = 1000


def _all_deliveries() -> DeliveryQuerySet:
    return Delivery.objects.across_workspaces(
        reason="a worker sends the deliveries of all workspaces"
    )


def enqueue(deliveries: Collection[Delivery], *, max_per_hour: int | None = None) -> None:
    """Insert deliveries of one workspace and kind, in the transaction of their event.

    With `max_per_hour`, those beyond the limit of the workspace are logged as given up.
    """
    if not deliveries:
        return
    rows = list(deliveries)
    if max_per_hour is not None:
        since = timezone.now() - timedelta(hours=1)
        recent = Delivery.objects.for_workspace(rows[0].workspace_id).filter(
            kind=rows[0].kind, created_at__gt=since
        )
        for row in rows[max(0, max_per_hour - recent.count()) :]:
            row.status = DeliveryStatus.GIVEN_UP
            row.last_error = f"The workspace has reached {max_per_hour} deliveries in an hour."
    Delivery.objects.for_workspace(rows[0].workspace_id).bulk_create(rows)
    dispatch.deliver()


@transaction.atomic
def replay(*, delivery: Delivery, max_per_hour: int | None = None) -> Delivery:
    """Send the message again, under its `webhook-id`. Raises `DeliveryUnfinished`."""
    if not delivery.is_finished:
        raise errors.DeliveryUnfinished
    copy = Delivery(
        workspace_id=delivery.workspace_id,
        kind=delivery.kind,
        endpoint_id=delivery.endpoint_id,
        subject_id=delivery.subject_id,
        event=delivery.event,
        payload=delivery.payload,
        message_id=delivery.message_id,
        is_replay=True,
    )
    enqueue([copy], max_per_hour=max_per_hour)
    return copy


@transaction.atomic
def claim(limit: int, excluded: Collection[UUID] = ()) -> list[ClaimedDelivery]:
    """Lease due deliveries of endpoints and organizations that are not excluded."""
    rows = _all_deliveries().due().select_related("workspace").order_by("due_at")
    rows = rows.exclude(endpoint_id__in=excluded)
    rows = rows.exclude(workspace__organization_id__in=excluded)
    claimed = list(rows.select_for_update(skip_locked=True, of=("self",))[:limit])
    lease_ends_at = timezone.now() + timedelta(seconds=LEASE_SECONDS)
    for row in claimed:
        row.status, row.attempts = DeliveryStatus.SENDING, row.attempts + 1
        row.due_at = lease_ends_at
    _all_deliveries().bulk_update(claimed, ["status", "attempts", "due_at"])
    return [
        ClaimedDelivery(
            row.pk,
            row.attempts,
            row.endpoint_id,
            build_request(row),
            row.workspace.organization_id,
        )
        for row in claimed
    ]


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
    row.save(
        update_fields=[
            *("status", "due_at", "delivered_at"),
            *("response_status", "last_error", "log"),
        ]
    )


def to_json(row: Delivery) -> dict[str, Any]:
    """Return a delivery in the format of the APIs, without its payload."""
    return {
        "id": row.pk,
        "event": row.event,
        "message_id": f"msg_{row.message_id}",
        "is_replay": row.is_replay,
        "status": row.status,
        "attempts": row.attempts,
        "response_status": row.response_status,
        "last_error": row.last_error or None,
        "log": row.log,
        "created_at": row.created_at,
        "delivered_at": row.delivered_at,
    }


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
