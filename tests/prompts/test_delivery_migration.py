"""Deliveries of prompt webhooks keep their place in the log when they move to its table."""

from __future__ import annotations

from importlib import import_module
from uuid import uuid4

import pytest
from django.db import connection

from apps.webhooks import delivery_queue
from apps.webhooks.models import Delivery
from tests.factories.prompts import create_commit, create_webhook_row

pytestmark = pytest.mark.django_db
COPY = import_module("apps.prompts.migrations.0004_copy_deliveries").COPY
OLD_TABLE = """
CREATE TEMP TABLE prompts_promptwebhookdelivery (
    id uuid, workspace_id uuid, created_at timestamptz, webhook_id uuid, commit_id uuid, event text,
    tag_name text, author text, status text, attempts int, due_at timestamptz, response_status int,
    last_error text, log jsonb, delivered_at timestamptz
) ON COMMIT DROP
"""


def test_deliveries_are_copied_with_the_payload_that_the_service_writes(workspace, prompt):
    webhook, commit = create_webhook_row(workspace), create_commit(prompt)
    Delivery.unscoped.all().delete()
    ids = [uuid4(), uuid4()]
    with connection.cursor() as cursor:
        cursor.execute(OLD_TABLE)
        for id_, event, tag, status in (
            (ids[0], "commit", "", "due"),
            (ids[1], "tag:create", "v1", "delivered"),
        ):
            cursor.execute(
                "INSERT INTO prompts_promptwebhookdelivery VALUES (%s, %s, '2026-03-01T00:00Z', %s,"
                " %s, %s, %s, 'Ann', %s, 3, '2026-03-01T00:00Z', 503, 'busy',"
                """ '[{"status": 503}]', NULL)""",
                [id_, workspace.pk, webhook.pk, commit.pk, event, tag, status],
            )

        cursor.execute(COPY)
        cursor.execute(COPY)  # again after an interrupted migration

    rows = {row.pk: row for row in Delivery.objects.for_workspace(workspace)}
    assert set(rows) == set(ids)
    due, sent = rows[ids[0]], rows[ids[1]]
    assert due.payload == {
        "event": "commit", "prompt_id": str(prompt.pk), "prompt_name": "helper",
        "commit_hash": commit.commit_hash, "created_at": due.payload["created_at"],
        "created_by": "Ann",
    }  # fmt: skip
    assert sent.payload["tag_name"] == "v1"
    assert (due.kind, due.endpoint_id, due.subject_id, due.message_id) == (
        "prompt",
        webhook.pk,
        prompt.pk,
        ids[0],
    )
    assert (sent.status, sent.attempts, sent.response_status, sent.last_error, sent.log) == (
        "delivered", 3, 503, "busy", [{"status": 503}],
    )  # fmt: skip
    (claimed,) = delivery_queue.claim(10)
    assert b'"manifest":{' in claimed.request.body
