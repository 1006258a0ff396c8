"""Endpoints of threads, which keep state between runs."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.endpoints.endpoint import (
    EndpointGroup,
    Result,
    json_response,
    page_response,
)
from apps.agent_server.endpoints.graph_calls import edit_errors
from apps.agent_server.endpoints.serializers import json_fragment, thread_fields, thread_json
from apps.agent_server.messaging import calls
from apps.agent_server.models import Thread
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.threads import (
    NewThread,
    Prune,
    ThreadChanges,
    ThreadCount,
    ThreadQuery,
    ThreadSearch,
)
from apps.agent_server.scope import Scope
from apps.agent_server.services import checkpoints, delete_threads, threads
from apps.agent_server.web.http_context import NO_CONTENT, HttpRequestContext, Response
from apps.core.ids import uuid7
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

endpoints = EndpointGroup("threads")


@endpoints.post("/threads", runs_on_loop=True, is_body_optional=True, response=responses.Thread)
def create_thread(context: HttpRequestContext, body: NewThread) -> Result:
    """Create a thread.

    With `supersteps` the thread is visible once all are applied; if one fails there is no thread.
    """
    scope, body = context.admission.authorize("threads", "create", body)
    if body.supersteps:
        return partial(_create_with_history, scope, body)
    return json_response(thread_json(threads.create(scope, body)))


async def _create_with_history(scope: Scope, body: NewThread, _: HttpRequestContext) -> Response:
    graph_id = body.metadata.get("graph_id")
    if graph_id is None:
        raise errors.ThreadHasNoGraph
    if graph_id not in scope.route.graph_ids:
        raise errors.GraphGone(str(graph_id))
    pk, thread_id = uuid7(), body.thread_id or uuid7()

    def insert_hidden() -> threads.ThreadRow | None:
        options: dict[str, Any] = {"ttl": body.ttl, "pk": pk, "hidden": True}
        if threads.insert(scope, thread_id, body.metadata, **options) is None:
            return threads.get_existing(scope, thread_id, body)
        return None

    existing = await in_thread(insert_hidden)
    if existing is not None:
        return json_response(thread_json(existing))
    steps = [step.model_dump(mode="json") for step in body.supersteps]
    params = {
        "supersteps": [step["updates"] for step in steps],
        "run_metadata": {"graph_id": graph_id},
        "user": scope.user,
    }
    thread = Thread(pk=pk, thread_id=thread_id)
    try:
        async with edit_errors(thread_id):
            await calls.call_graph(scope.route, graph_id, "supersteps", params, thread=thread)
    except BaseException:
        await in_thread(_delete_hidden, pk)
        raise
    return json_response(thread_json(await in_thread(threads.get, scope, thread_id)))


def _delete_hidden(pk: UUID) -> None:
    """Delete the thread unless its edit succeeded after all and made it visible."""
    hidden = Thread.objects.across_workspaces(reason="created by this request")
    if hidden.filter(pk=pk, temporary=True).exists():
        delete_threads.purge([pk])


@endpoints.get("/threads/{thread_id}", runs_on_loop=True, response=responses.Thread)
def get_thread(context: HttpRequestContext, thread_id: UUID, query: ThreadQuery) -> Response:
    """Get a thread."""
    scope = context.admission.resolve_scope("threads", "read", **context.path_params)
    fields = thread_json(threads.get(scope, thread_id))
    if "ttl" in query.include:
        fields["ttl"] = json_fragment(threads.read_ttl(scope, thread_id))
    return json_response(fields)


@endpoints.patch(
    "/threads/{thread_id}",
    runs_on_loop=True,
    response=responses.Thread,
    other_statuses={204: "The thread is changed; the request sent `Prefer: return=minimal`."},
)
def update_thread(context: HttpRequestContext, thread_id: UUID, body: ThreadChanges) -> Response:
    """Merge into a thread's metadata."""
    scope, body = context.admission.authorize("threads", "update", body, **context.path_params)
    row = threads.update(scope, thread_id, body)
    if context.headers.get("Prefer") == "return=minimal":
        return NO_CONTENT
    return json_response(thread_json(row))


@endpoints.delete("/threads/{thread_id}")
def delete_thread(context: HttpRequestContext, thread_id: UUID) -> Response:
    """Delete a thread with its runs and its state."""
    scope = context.admission.resolve_scope("threads", "delete", **context.path_params)
    delete_threads.delete(scope, thread_id)
    return NO_CONTENT


@endpoints.post(
    "/threads/search",
    permission=Permission.AGENTS_READ,
    runs_on_loop=True,
    response=list[responses.SomeOfThread],
)
def search_threads(context: HttpRequestContext, body: ThreadSearch) -> Response:
    """List a page of threads."""
    scope, body = context.admission.authorize("threads", "search", body)
    page, has_more = threads.search(scope, body)
    return page_response([thread_fields(row) for row in page], body.offset, has_more=has_more)


@endpoints.post("/threads/count", permission=Permission.AGENTS_READ, response=int)
def count_threads(context: HttpRequestContext, body: ThreadCount) -> Response:
    """Count threads."""
    scope, body = context.admission.authorize("threads", "search", body)
    return json_response(threads.count(scope, body))


@endpoints.post("/threads/{thread_id}/copy", response=responses.Thread)
def copy_thread(context: HttpRequestContext, thread_id: UUID) -> Response:
    """Copy a thread with all its state.

    The copy belongs to the caller, who needs the rights to read the thread and to create one.
    """
    _, copy = context.admission.authorize("threads", "create", NewThread())
    scope = context.admission.resolve_scope("threads", "read", **context.path_params)
    return json_response(thread_json(checkpoints.copy(scope, thread_id, copy.metadata)))


@endpoints.post("/threads/prune", response=responses.Pruned)
def prune_threads(context: HttpRequestContext, body: Prune) -> Response:
    """Delete threads, or all of their checkpoints except the newest."""
    scope, body = context.admission.authorize("threads", "delete", body)
    pruned = delete_threads.prune(scope, body.thread_ids, body.strategy)
    return json_response({"pruned_count": pruned})


@endpoints.get("/threads/{thread_id}/storage", response=dict[str, Any])
def get_storage(context: HttpRequestContext, thread_id: UUID) -> Response:
    """Get the size of a thread's history in bytes."""
    scope = context.admission.resolve_scope("threads", "read", **context.path_params)
    return Response(checkpoints.measure_storage(scope, thread_id).encode())
