"""Endpoints of background runs: create, read, cancel, delete, list webhook deliveries."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

from apps.agent_server import results
from apps.agent_server.endpoints.endpoint import EndpointGroup, Result, json_response
from apps.agent_server.endpoints.run_streams import (
    find_run,
    read_until_end,
    reconnect_location,
)
from apps.agent_server.endpoints.serializers import (
    format_optional_timestamp,
    format_timestamp,
    run_json,
    select_fields,
)
from apps.agent_server.errors import (
    AgentRunNotFound,
    InvalidIdAtRunCreation,
    NoRunsToCancel,
    NothingToCancel,
)
from apps.agent_server.models import WebhookDelivery
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.runs import (
    BatchedRun,
    CancelRunQuery,
    CancelRunsQuery,
    RunBody,
    RunListQuery,
    RunsToCancel,
)
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs, runs, webhooks
from apps.agent_server.services.cancel_runs import Action
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import END
from apps.agent_server.web.http_context import JSON, NO_CONTENT, HttpRequestContext, Response
from apps.core.sync_bridge import in_thread

STOP_TIMEOUT_SECONDS = 12.0
"""The engine abandons a run that does not stop within this time."""
ACCEPTED = Response(status=202, media=None)

endpoints = EndpointGroup("runs")


@endpoints.get("/threads/{thread_id}/runs", response=list[responses.SomeOfRun])
def list_runs(context: HttpRequestContext, thread_id: UUID, query: RunListQuery) -> Response:
    """List the runs of a thread, newest first."""
    scope = context.admission.resolve_scope("threads", "read", **context.path_params)
    rows = runs.list_newest(
        scope, thread_id, limit=query.limit, offset=query.offset, status=query.status
    )
    select = query.select or None
    return json_response([select_fields(run_json(row), select) for row in rows])


@endpoints.post(
    "/threads/{thread_id}/runs", response=responses.Run, invalid_id=InvalidIdAtRunCreation
)
def create_run(context: HttpRequestContext, thread_id: UUID, body: RunBody) -> Response:
    """Start a run on a thread."""
    scope, body = context.admission.authorize("threads", "create_run", body, **context.path_params)
    run = runs.create_on_thread(scope, thread_id, body)
    path = f"/threads/{run.thread_id}/runs/{run.run_id}"
    return json_response(run_json(run), (b"content-location", path.encode()))


@endpoints.post("/runs", response=responses.Run)
def create_stateless_run(context: HttpRequestContext, body: RunBody) -> Response:
    """Start a run on its own thread."""
    scope, body = context.admission.authorize("threads", "create_run", body)
    run = runs.create_stateless(scope, body)
    path = f"/runs/{run.run_id}"
    return json_response(run_json(run), (b"content-location", path.encode()))


@endpoints.post("/runs/batch", response=list[responses.Run])
def create_runs(context: HttpRequestContext, body: list[BatchedRun]) -> Response:
    """Start several runs at once."""
    authorized = []
    for run in body:
        ids = {"thread_id": str(run.thread_id)} if run.thread_id else {}
        authorized.append(context.admission.authorize("threads", "create_run", run, **ids))
    return json_response([run_json(run) for run in runs.create_batch(authorized)])


@endpoints.get("/threads/{thread_id}/runs/{run_id}", response=responses.Run)
def get_run(context: HttpRequestContext, thread_id: UUID, run_id: UUID) -> Response:
    """Get a run."""
    scope = context.admission.resolve_scope(
        "threads", "read", thread_id=context.path_params["thread_id"]
    )
    return json_response(run_json(runs.get(scope, thread_id, run_id)))


@endpoints.delete("/threads/{thread_id}/runs/{run_id}")
def delete_run(context: HttpRequestContext, thread_id: UUID, run_id: UUID) -> Result:
    """Delete a run; an active run is stopped first."""
    scope, run = find_run(context, "delete", run_id, thread_id)
    if run is None:
        raise AgentRunNotFound
    if run.is_open:
        return partial(_stop_and_delete, scope, thread_id, run_id)
    runs.delete(scope, thread_id, run_id)
    return NO_CONTENT


async def _stop_and_delete(
    scope: Scope, thread_id: UUID, run_id: UUID, _: HttpRequestContext
) -> Response:
    """Stop the run, wait `STOP_TIMEOUT_SECONDS` for its end, and delete it."""
    async with get_hub().open(run_id, None) as reader:
        stopped = await in_thread(
            cancel_runs.cancel, scope, "interrupt", run_ids=[run_id], status="running"
        )
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                while stopped and not any(event.name == END for event in await reader.next()):
                    pass
        except TimeoutError:
            pass
    await in_thread(runs.delete, scope, thread_id, run_id)
    return NO_CONTENT


@endpoints.post(
    "/threads/{thread_id}/runs/{run_id}/cancel",
    status=202,
    other_statuses={200: "The run has stopped (`wait`)."},
)
def cancel_run(
    context: HttpRequestContext, thread_id: UUID, run_id: UUID, query: CancelRunQuery
) -> Result:
    """Stop a run; with `wait`, respond when it has stopped."""
    scope, run = find_run(context, "update", run_id, thread_id)
    if run is None:
        raise NothingToCancel
    if query.wait:
        return partial(_cancel_and_wait, scope, run_id, query.action)
    if not cancel_runs.cancel(scope, query.action, run_ids=[run_id]):
        raise NothingToCancel
    return ACCEPTED


async def _cancel_and_wait(
    scope: Scope, run_id: UUID, action: Action, context: HttpRequestContext
) -> None:
    # Subscribe before the run is cancelled, so that its end is not missed.
    async with get_hub().open(run_id, None) as reader:
        if not await in_thread(cancel_runs.cancel, scope, action, run_ids=[run_id]):
            raise NothingToCancel
        location = reconnect_location(context)[1].removesuffix(b"/cancel") + b"/join"
        await context.start(JSON, (b"location", location))
        async with context.keep_alive(reader.wake):
            end = await read_until_end(context, reader)
    if end is not None:
        await context.finish(b"{}")
    elif context.refusal is not None:
        await context.finish(results.refusal_result(context.refusal))


@endpoints.post("/runs/cancel", status=204)
def cancel_several_runs(
    context: HttpRequestContext, body: RunsToCancel, query: CancelRunsQuery
) -> Response:
    """Stop several runs."""
    ids = {"thread_id": str(body.thread_id)} if body.thread_id else {}
    scope = context.admission.resolve_scope("threads", "update", **ids)
    stopped = cancel_runs.cancel(
        scope,
        query.action,
        thread_id=body.thread_id,
        run_ids=body.run_ids,
        status=body.status or "all",
    )
    if not stopped:
        raise NoRunsToCancel
    return NO_CONTENT


# Webhook deliveries


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
