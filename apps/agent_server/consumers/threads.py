"""Making threads: at once, or with a state that its graph has to make first."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.api.serializers import thread_json
from apps.agent_server.consumers.edit_errors import edit_errors
from apps.agent_server.consumers.graph_calls import call_graph
from apps.agent_server.consumers.http_request import Consumer, HttpRequestContext
from apps.agent_server.models import Thread
from apps.agent_server.schemas.threads import NewThread
from apps.agent_server.scope import Scope
from apps.agent_server.services import delete_threads, threads
from apps.core.ids import uuid7
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission


class CreateThread(Consumer):
    """`POST /threads`.

    With `supersteps` the thread is seen once they are all applied; if one fails there is none.
    """

    async def handle(self, context: HttpRequestContext) -> None:
        raw = await context.body()
        scope, body, row = await context.run_service(_begin, context, raw)
        if row is None:
            row = await _with_history(scope, body)
        await context.respond(dumps(thread_json(row)))


def _begin(
    context: HttpRequestContext, raw: bytes
) -> tuple[Scope, NewThread, threads.ThreadRow | None]:
    """Let the caller in and make the thread, unless its graph has work to do for it."""
    admission = context.admit(Permission.AGENTS_RUN)
    scope, body = admission.authorize("threads", "create", NewThread.parse(raw or b"{}"))
    return scope, body, None if body.supersteps else threads.create(scope, body)


async def _with_history(scope: Scope, body: NewThread) -> threads.ThreadRow:
    graph_id = body.metadata.get("graph_id")
    if graph_id is None:
        raise errors.ThreadHasNoGraph
    if graph_id not in scope.route.graph_ids:
        raise errors.GraphGone(str(graph_id))
    pk, thread_id = uuid7(), body.thread_id or uuid7()

    def hide() -> threads.ThreadRow | None:
        given: dict[str, Any] = {"ttl": body.ttl, "pk": pk, "hidden": True}
        if threads.insert(scope, thread_id, body.metadata, **given) is None:
            return threads.get_existing(scope, thread_id, body)
        return None

    there = await in_thread(hide)
    if there is not None:
        return there
    steps = [step.model_dump(mode="json") for step in body.supersteps]
    params = {
        "supersteps": [step["updates"] for step in steps],
        "run_metadata": {"graph_id": graph_id},
        "user": scope.user,
    }
    thread = Thread(pk=pk, thread_id=thread_id)
    try:
        async with edit_errors(thread_id):
            await call_graph(scope.route, graph_id, "supersteps", params, thread=thread)
    except BaseException:
        await in_thread(_take_back, pk)
        raise
    return await in_thread(threads.get, scope, thread_id)


def _take_back(pk: UUID) -> None:
    """Remove a thread that nobody has seen; one whose edit came through after all stays."""
    hidden = Thread.objects.across_workspaces(reason="made a moment ago by this request")
    if hidden.filter(pk=pk, temporary=True).exists():
        delete_threads.purge([pk])
