"""The log of deliveries: leases, results, retention."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from apps.webhooks import delivery_queue, request_builders
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.models import Delivery

pytestmark = pytest.mark.django_db


def create_delivery(workspace, **fields):
    row = Delivery(
        **{
            "workspace": workspace, "kind": "other", "endpoint_id": uuid4(),
            "subject_id": uuid4(), "event": "fired", "payload": {}, **fields,
        }
    )  # fmt: skip
    row.save(force_insert=True)
    return row


def test_stale_result_is_discarded_and_a_lost_sender_is_replaced(workspace):
    row = create_delivery(workspace)
    (first,) = delivery_queue.claim(10)
    assert delivery_queue.claim(10) == []
    Delivery.unscoped.update(due_at=timezone.now())
    assert delivery_queue.claim(10, [row.endpoint_id]) == []
    assert delivery_queue.claim(10, [workspace.organization_id]) == []
    (second,) = delivery_queue.claim(10)
    assert second.owner_id == workspace.organization_id

    delivery_queue.record(first, DeliveryResult(500, "failed"), 0.1)
    delivery_queue.record(second, DeliveryResult(200), 0.1)

    row.refresh_from_db()
    assert (row.status, row.attempts, row.response_status) == ("delivered", 2, 200)
    assert [entry["status"] for entry in row.log] == [200]


def test_delivery_is_given_up_after_the_last_retry_and_deleted_later(workspace):
    row = create_delivery(workspace)
    for _ in range(9):
        Delivery.unscoped.update(due_at=timezone.now())
        (delivery,) = delivery_queue.claim(1)
        delivery_queue.record(delivery, DeliveryResult(503, "busy"), 0.1)

    row.refresh_from_db()
    assert (row.status, row.attempts, row.last_error, len(row.log)) == ("given_up", 9, "busy", 9)
    assert delivery_queue.delete_old() == 0
    Delivery.unscoped.update(created_at=timezone.now() - timedelta(days=20))
    assert delivery_queue.delete_old() == 1


def test_failing_builder_does_not_stop_other_deliveries(workspace, monkeypatch):
    def fail(_):
        raise KeyError("title")

    result = DeliveryResult(200)
    monkeypatch.setattr(request_builders, "_builders", {"broken": fail, "fine": lambda _: result})
    create_delivery(workspace, kind="broken")
    create_delivery(workspace, kind="fine")
    create_delivery(workspace, kind="unknown")

    requests = [delivery.request for delivery in delivery_queue.claim(10)]

    assert requests == [
        DeliveryResult(error="The request could not be built."),
        result,
        DeliveryResult(error="Deliveries of this kind are not supported.", is_final=True),
    ]


def test_claim_reads_the_index_of_due_deliveries(workspace):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        rows = Delivery.objects.across_workspaces(reason="test").due().order_by("due_at")[:10]
        plan = rows.explain()

    assert "delivery_due" in plan
