"""Reads that may need the graph itself: they wait, so they are consumers.

A state that a finished run wrote is answered from its row; everything else is asked of a graph host
through a worker.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from apps.agent_server.bodies import CheckpointReference, HistoryBody, StateBody
from apps.agent_server.calls import call
from apps.agent_server.exchange import Consumer, Exchange
from apps.agent_server.models import Thread
from apps.agent_server.services import assistants, threads
from apps.agent_server.services.threads import StateSource
from apps.agent_server.statuses import ThreadStatus
from apps.core.crossing import in_thread
from apps.core.errors import Invalid
from apps.core.json import dumps
from apps.deployments.models import Revision
from apps.deployments.routes import Route
from apps.organizations.permissions import Permission

MOST_CALLS_AT_ONCE = 32
BLANK_STATE = dumps(
    {
        "values": {},
        "next": [],
        "tasks": [],
        "metadata": None,
        "created_at": None,
        "checkpoint": None,
        "parent_checkpoint": None,
        "interrupts": [],
    }
)


@functools.cache
def _callers() -> ThreadPoolExecutor:
    """Threads that wait for graphs, apart from those that serve requests from the database."""
    return ThreadPoolExecutor(MOST_CALLS_AT_ONCE, thread_name_prefix="calls")


async def ask(
    route: Route,
    graph_id: str,
    method: str,
    params: dict[str, Any],
    *,
    thread: Thread | None = None,
    revision_id: UUID | None = None,
) -> bytes:
    """The graph's answer as JSON."""
    revision = Revision(
        pk=revision_id or route.active_revision_id,
        deployment_id=route.deployment_id,
        workspace_id=route.workspace_id,
    )
    question = functools.partial(call, revision, graph_id, method, params, thread=thread)
    return await asyncio.get_running_loop().run_in_executor(_callers(), question)


class ReadsThread(Consumer):
    """Reads one thread through its graph."""

    def find(self, exchange: Exchange) -> tuple[Route, StateSource]:
        """Let the caller in and see where the state is; for a thread."""
        route = exchange.admit(Permission.AGENTS_READ).route
        thread_id = exchange.uuid("thread_id")
        return route, threads.state_source(route, thread_id)

    async def ask(
        self,
        exchange: Exchange,
        route: Route,
        source: StateSource,
        method: str,
        params: dict[str, Any],
    ) -> bytes:
        thread = Thread(pk=source.pk, thread_id=exchange.uuid("thread_id"))
        busy = source.status == ThreadStatus.BUSY
        revision_id = source.revision_id if busy else None
        return await ask(
            route, source.graph_id or "", method, params, thread=thread, revision_id=revision_id
        )


class ReadState(ReadsThread):
    """`GET /threads/{id}/state`: the head, from the thread's row while nothing changes it."""

    methods = ("GET",)

    async def handle(self, exchange: Exchange) -> None:
        route, source = await in_thread(self.find, exchange)
        subgraphs = exchange.flag("subgraphs")
        # Only a thread that has stopped on its way has tasks whose state could be asked for.
        nested = subgraphs and source.status != ThreadStatus.IDLE
        if source.is_blank or source.graph_id is None:
            answer = BLANK_STATE
        elif source.is_settled and not nested:
            answer = (source.state or "").encode()
        else:
            answer = await self.ask(exchange, route, source, "state", {"subgraphs": subgraphs})
        await exchange.respond(answer)


class ReadCheckpoint(ReadsThread):
    """`GET .../state/{checkpoint_id}` and `POST .../state/checkpoint`: the state as it once was."""

    methods = ("GET", "POST")

    async def handle(self, exchange: Exchange) -> None:
        route, source = await in_thread(self.find, exchange)
        if exchange.scope["method"] == "POST":
            body = StateBody.parse(await exchange.body())
            reference, subgraphs = body.checkpoint, body.subgraphs
        else:
            checkpoint_id = exchange.uuid("checkpoint_id")
            reference = CheckpointReference(checkpoint_id=checkpoint_id)
            subgraphs = exchange.flag("subgraphs")
        if source.is_blank or source.graph_id is None:
            await exchange.respond(BLANK_STATE)
            return
        params = {"checkpoint": reference.model_dump(mode="json"), "subgraphs": subgraphs}
        await exchange.respond(await self.ask(exchange, route, source, "state", params))


class ReadHistory(ReadsThread):
    """`GET` and `POST /threads/{id}/history`: past states, newest first."""

    methods = ("GET", "POST")

    async def handle(self, exchange: Exchange) -> None:
        route, source = await in_thread(self.find, exchange)
        if exchange.scope["method"] == "POST":
            body = HistoryBody.parse(await exchange.body())
        else:
            asked = {
                name: exchange.query[name][-1]
                for name in ("limit", "before")
                if name in exchange.query
            }
            body = HistoryBody.check(asked)
        params = {
            "limit": body.limit,
            "before": body.before_id,
            "metadata": body.metadata,
            "checkpoint": body.checkpoint.model_dump(mode="json") if body.checkpoint else None,
        }
        if source.is_blank or source.graph_id is None:
            await exchange.respond(b"[]")
            return
        await exchange.respond(await self.ask(exchange, route, source, "history", params))


class DrawGraph(Consumer):
    """`GET /assistants/{id or graph}/graph`: as recorded, or opened up by the graph itself."""

    methods = ("GET",)

    async def handle(self, exchange: Exchange) -> None:
        route, graph = await in_thread(_graph, exchange)
        xray = _xray(exchange.query.get("xray", ["false"])[-1])
        if xray is False:
            await exchange.respond(dumps(graph.drawing))
            return
        await exchange.respond(await ask(route, graph.graph_id, "graph", {"xray": xray}))


class DescribeSubgraphs(Consumer):
    """`GET /assistants/{id}/subgraphs[/{namespace}]`: their schemas by namespace."""

    methods = ("GET",)

    async def handle(self, exchange: Exchange) -> None:
        route, graph = await in_thread(_graph, exchange)
        params = {
            "namespace": exchange.kwargs.get("namespace"),
            "recurse": exchange.flag("recurse"),
        }
        await exchange.respond(await ask(route, graph.graph_id, "subgraphs", params))


def _graph(exchange: Exchange) -> tuple[Route, Any]:
    route = exchange.admit(Permission.AGENTS_READ).route
    return route, assistants.graph_of(route, exchange.kwargs["assistant_id"])


def _xray(text: str) -> bool | int:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not text.isdigit():
        raise Invalid("xray: must be true, false or a number of levels")
    return int(text) or False
