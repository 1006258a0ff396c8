"""Reading states of threads.

A state that a finished run wrote is answered from its row; everything else is asked of a graph host
through a worker.
"""

from __future__ import annotations

from typing import Any

from apps.agent_server.bodies.base import CheckpointReference
from apps.agent_server.bodies.threads import HistoryBody, StateBody
from apps.agent_server.consumers.asking import ask
from apps.agent_server.consumers.exchange import Consumer, Exchange
from apps.agent_server.models import Thread
from apps.agent_server.scope import Scope
from apps.agent_server.services import threads
from apps.agent_server.services.threads import StateSource
from apps.agent_server.statuses import ThreadStatus
from apps.core.crossing import in_thread
from apps.core.json import dumps
from apps.organizations.permissions import Permission

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


class ReadsThread(Consumer):
    """Reads one thread through its graph."""

    def find(self, exchange: Exchange) -> tuple[Scope, StateSource]:
        """Let the caller in and see where the state is; for a thread."""
        admission = exchange.admit(Permission.AGENTS_READ)
        thread_id = exchange.uuid("thread_id")
        scope = admission.scope("threads", "read", thread_id=str(thread_id))
        return scope, threads.state_source(scope, thread_id)

    async def ask(
        self,
        exchange: Exchange,
        scope: Scope,
        source: StateSource,
        method: str,
        params: dict[str, Any],
    ) -> bytes:
        thread = Thread(pk=source.pk, thread_id=exchange.uuid("thread_id"))
        busy = source.status == ThreadStatus.BUSY
        revision_id = source.revision_id if busy else None
        return await ask(
            scope.route,
            source.graph_id or "",
            method,
            params,
            thread=thread,
            revision_id=revision_id,
        )


class ReadState(ReadsThread):
    """`GET /threads/{id}/state`: the head, from the thread's row while nothing changes it."""

    methods = ("GET",)

    async def handle(self, exchange: Exchange) -> None:
        scope, source = await in_thread(self.find, exchange)
        subgraphs = exchange.flag("subgraphs")
        # Only a thread that has stopped on its way has tasks whose state could be asked for.
        nested = subgraphs and source.status != ThreadStatus.IDLE
        if source.is_blank or source.graph_id is None:
            answer = BLANK_STATE
        elif source.is_settled and not nested:
            answer = (source.state or "").encode()
        else:
            answer = await self.ask(exchange, scope, source, "state", {"subgraphs": subgraphs})
        await exchange.respond(answer)


class ReadCheckpoint(ReadsThread):
    """`GET .../state/{checkpoint_id}` and `POST .../state/checkpoint`: the state as it once was."""

    methods = ("GET", "POST")

    async def handle(self, exchange: Exchange) -> None:
        scope, source = await in_thread(self.find, exchange)
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
        await exchange.respond(await self.ask(exchange, scope, source, "state", params))


class ReadHistory(ReadsThread):
    """`GET` and `POST /threads/{id}/history`: past states, newest first."""

    methods = ("GET", "POST")

    async def handle(self, exchange: Exchange) -> None:
        scope, source = await in_thread(self.find, exchange)
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
        await exchange.respond(await self.ask(exchange, scope, source, "history", params))
