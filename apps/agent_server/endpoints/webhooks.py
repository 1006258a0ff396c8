"""Endpoints of the webhook deliveries of a run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.agent_server.endpoints.endpoint import EndpointGroup, json_response
from apps.agent_server.endpoints.serializers import format_optional_timestamp, format_timestamp
from apps.agent_server.models import WebhookDelivery
from apps.agent_server.schemas import responses
from apps.agent_server.services import webhooks
from apps.agent_server.web.http_context import HttpRequestContext, Response

endpoints = EndpointGroup("runs")


@endpoints.get("/threads/{thread_id}/runs/{run_id}/webhooks", response=list[responses.Delivery])
def list_deliveries(context: HttpRequestContext, thread_id: UUID, run_id: UUID) -> Response:
    """List the webhooks of a run with every attempt; an empty list before its end."""
    scope = context.admission.resolve_scope(
        "threads", "read", thread_id=context.path_params["thread_id"]
    )
    rows = webhooks.list_for_run(scope, run_id, thread_id)
    return json_response([_delivery_json(row) for row in rows])


@endpoints.get("/runs/{run_id}/webhooks", response=list[responses.Delivery])
def list_stateless_deliveries(context: HttpRequestContext, run_id: UUID) -> Response:
    """List the webhooks of a stateless run, also after its deletion."""
    scope = context.admission.resolve_scope("threads", "read")
    return json_response([_delivery_json(row) for row in webhooks.list_for_run(scope, run_id)])


def _delivery_json(row: WebhookDelivery) -> dict[str, Any]:
    is_open = row.status in {"due", "sending"}
    return {
        "webhook_id": f"msg_{row.pk}",
        "run_id": row.run_id,
        "thread_id": row.thread_id,
        "url": row.url,
        "status": row.status,
        "attempts": row.attempts,
        "response_status": row.response_status,
        "last_error": row.last_error or None,
        "log": row.log,
        "next_attempt_at": format_optional_timestamp(row.due_at) if is_open else None,
        "created_at": format_timestamp(row.created_at),
        "delivered_at": format_optional_timestamp(row.delivered_at),
    }
