"""States of threads: reading them, going back in them, changing them.

A state that a finished run wrote is answered from its row; everything else is asked of a graph host
through a worker.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.consumers.edit_errors import editing
from apps.agent_server.consumers.graph_calls import ask
from apps.agent_server.consumers.http_request import Consumer, Exchange
from apps.agent_server.consumers.state_cache import remembered
from apps.agent_server.models import Thread
from apps.agent_server.schemas.base import CheckpointReference
from apps.agent_server.schemas.states import (
    HistoryBody,
    StateBody,
    StatePatch,
    StateUpdate,
    selected,
)
from apps.agent_server.schemas.threads import ThreadChanges
from apps.agent_server.scope import Scope
from apps.agent_server.services import threads
from apps.agent_server.services.threads import StateSource
from apps.agent_server.statuses import ThreadStatus
from apps.core.json import dumps, loads
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

_BLANK: dict[str, Any] = {
    "values": {},
    "next": [],
    "tasks": [],
    "metadata": None,
    "created_at": None,
    "checkpoint": None,
    "parent_checkpoint": None,
    "interrupts": [],
}
BLANK_STATE = dumps(_BLANK)


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
        """What the graph says of the thread; not asked again while the thread is as it was."""

        async def answer() -> bytes:
            return await self.ask_now(exchange, scope, source, method, params)

        if source.status == ThreadStatus.BUSY:
            return await answer()
        route, config = scope.route, [source.config, scope.user]
        question = route.active_revision_id, source.graph_id, method, dumps([params, config])
        return await remembered.answer(source.pk, source.version, question, answer)

    async def ask_now(
        self,
        exchange: Exchange,
        scope: Scope,
        source: StateSource,
        method: str,
        params: dict[str, Any],
    ) -> bytes:
        """What the graph says, or does, at this moment."""
        return await ask(
            scope.route,
            source.graph_id or "",
            method,
            {**params, "config": loads(source.config), "user": scope.user},
            thread=Thread(pk=source.pk, thread_id=exchange.uuid("thread_id")),
            revision_id=source.revision_id if source.status == ThreadStatus.BUSY else None,
        )


class ThreadState(ReadsThread):
    """`/threads/{id}/state`: the head, from the thread's row while nothing changes it."""

    methods = ("GET", "POST", "PATCH")

    async def handle(self, exchange: Exchange) -> None:
        await getattr(self, exchange.scope["method"].lower())(exchange)

    async def get(self, exchange: Exchange) -> None:
        scope, source = await exchange.perform(self.find, exchange)
        subgraphs, select = exchange.flag("subgraphs"), exchange.words("select")
        # Only a thread that has stopped on its way has tasks whose state could be asked for.
        nested = subgraphs and source.status != ThreadStatus.IDLE
        if source.is_blank or source.graph_id is None:
            answer = BLANK_STATE
        elif source.is_settled and not nested:
            answer = (source.state or "").encode()
        else:
            answer = await self.ask(exchange, scope, source, "state", {"subgraphs": subgraphs})
        await exchange.respond(_only(answer, select))

    async def post(self, exchange: Exchange) -> None:
        """Change the state as if a node had returned values; no node runs."""
        raw = await exchange.body()
        scope, source, update = await in_thread(_to_update, exchange, raw)
        params = {
            "values": update.values,
            "as_node": update.as_node,
            "checkpoint": update.base,
            "run_metadata": {"graph_id": source.graph_id},
        }
        async with editing(exchange.uuid("thread_id")):
            made = loads(await self.ask_now(exchange, scope, source, "update_state", params))
        answer = {"checkpoint": made, "configurable": made, "checkpoint_id": made["checkpoint_id"]}
        await exchange.respond(dumps(answer))

    async def patch(self, exchange: Exchange) -> None:
        """Merge metadata into the thread's: what the JavaScript client's `patchState` is for."""
        raw = await exchange.body()
        await in_thread(_merge_metadata, exchange, raw)
        await exchange.start(status=204)
        await exchange.finish()


def _to_update(exchange: Exchange, raw: bytes) -> tuple[Scope, StateSource, StateUpdate]:
    admission = exchange.admit(Permission.AGENTS_RUN)
    thread_id = exchange.uuid("thread_id")
    scope = admission.scope("threads", "update", thread_id=str(thread_id))
    source = threads.state_source(scope, thread_id)
    update = StateUpdate.parse(raw)
    if source.graph_id is None:
        raise errors.NoGraphKnown
    if source.graph_id not in scope.route.graph_ids:
        raise errors.GraphGone(source.graph_id)
    if source.status == ThreadStatus.BUSY:
        raise errors.ThreadBusy
    return scope, source, update


def _merge_metadata(exchange: Exchange, raw: bytes) -> None:
    admission = exchange.admit(Permission.AGENTS_RUN)
    thread_id = exchange.uuid("thread_id")
    changes = ThreadChanges(metadata=StatePatch.parse(raw).metadata)
    scope, changes = admission.grant("threads", "update", changes, thread_id=str(thread_id))
    threads.change(scope, thread_id, changes)


class ReadCheckpoint(ReadsThread):
    """`GET .../state/{checkpoint_id}` and `POST .../state/checkpoint`: the state as it once was."""

    methods = ("GET", "POST")

    async def handle(self, exchange: Exchange) -> None:
        scope, source = await exchange.perform(self.find, exchange)
        if exchange.scope["method"] == "POST":
            body = StateBody.parse(await exchange.body())
            reference, subgraphs, select = body.checkpoint, body.subgraphs, body.select or []
        else:
            given = exchange.kwargs["checkpoint_id"]
            subgraphs, select = exchange.flag("subgraphs"), exchange.words("select")
            if (checkpoint_id := _uuid(given)) is None:
                await exchange.respond(
                    _only(_nothing_at(exchange.kwargs["thread_id"], given), select)
                )
                return
            reference = CheckpointReference(checkpoint_id=checkpoint_id)
        if source.is_blank or source.graph_id is None:
            answer = _nothing_at(exchange.kwargs["thread_id"], str(reference.checkpoint_id or ""))
        else:
            asked = {"checkpoint": reference.model_dump(mode="json"), "subgraphs": subgraphs}
            answer = await self.ask(exchange, scope, source, "state", asked)
        await exchange.respond(_only(answer, select))


class ReadHistory(ReadsThread):
    """`GET` and `POST /threads/{id}/history`: past states, newest first."""

    methods = ("GET", "POST")

    async def handle(self, exchange: Exchange) -> None:
        scope, source = await exchange.perform(self.find, exchange)
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


def _only(answer: bytes, select: list[str]) -> bytes:
    """The fields of a state that were asked for; all of them without a choice."""
    if not select:
        return answer
    state, shown = loads(answer), {}
    for name in selected(select):
        if name in state:
            shown[name] = state[name]
    if "values" not in shown:
        keys = [name.removeprefix("values.") for name in select if name.startswith("values.")]
        values = state.get("values")
        if keys and isinstance(values, dict):
            shown["values"] = {key: values[key] for key in keys if key in values}
    return dumps(shown)


def _nothing_at(thread_id: str, checkpoint_id: str) -> bytes:
    """The state at a checkpoint that there is not: empty, and named."""
    if not checkpoint_id:
        return BLANK_STATE
    named = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    return dumps({**_BLANK, "checkpoint": named, "checkpoint_id": checkpoint_id})


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
