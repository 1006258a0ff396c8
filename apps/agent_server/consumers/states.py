"""States of threads: reading them, going back in them, changing them.

A state that a finished run wrote is answered from its row; everything else is asked of a graph host
through a worker.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.consumers.edit_errors import edit_errors
from apps.agent_server.consumers.graph_calls import call_graph
from apps.agent_server.consumers.http_request import Consumer, HttpRequestContext
from apps.agent_server.consumers.state_cache import state_cache
from apps.agent_server.models import Thread
from apps.agent_server.schemas.base import CheckpointReference
from apps.agent_server.schemas.states import (
    HistoryBody,
    StateBody,
    StatePatch,
    StateUpdate,
    validate_select,
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


class ThreadConsumer(Consumer):
    """Reads one thread through its graph."""

    def find(self, context: HttpRequestContext) -> tuple[Scope, StateSource]:
        """Let the caller in and see where the state is; for a thread."""
        admission = context.admit(Permission.AGENTS_READ)
        thread_id = context.path_uuid("thread_id")
        scope = admission.resolve_scope("threads", "read", thread_id=str(thread_id))
        return scope, threads.get_state_source(scope, thread_id)

    async def ask(
        self,
        context: HttpRequestContext,
        scope: Scope,
        source: StateSource,
        method: str,
        params: dict[str, Any],
    ) -> bytes:
        """What the graph says of the thread; not asked again while the thread is as it was."""

        async def answer() -> bytes:
            return await self.ask_now(context, scope, source, method, params)

        if source.status == ThreadStatus.BUSY:
            return await answer()
        route, config = scope.route, [source.config, scope.user]
        question = route.active_revision_id, source.graph_id, method, dumps([params, config])
        return await state_cache.answer(source.pk, source.version, question, answer)

    async def ask_now(
        self,
        context: HttpRequestContext,
        scope: Scope,
        source: StateSource,
        method: str,
        params: dict[str, Any],
    ) -> bytes:
        """What the graph says, or does, at this moment."""
        return await call_graph(
            scope.route,
            source.graph_id or "",
            method,
            {**params, "config": loads(source.config), "user": scope.user},
            thread=Thread(pk=source.pk, thread_id=context.path_uuid("thread_id")),
            revision_id=source.revision_id if source.status == ThreadStatus.BUSY else None,
        )


class ThreadState(ThreadConsumer):
    """`/threads/{id}/state`: the head, from the thread's row while nothing changes it."""

    methods = ("GET", "POST", "PATCH")

    async def handle(self, context: HttpRequestContext) -> None:
        await getattr(self, context.scope["method"].lower())(context)

    async def get(self, context: HttpRequestContext) -> None:
        scope, source = await context.run_service(self.find, context)
        subgraphs, select = context.query_flag("subgraphs"), context.query_list("select")
        # Only a thread that has stopped on its way has tasks whose state could be asked for.
        nested = subgraphs and source.status != ThreadStatus.IDLE
        if source.is_blank or source.graph_id is None:
            answer = BLANK_STATE
        elif source.is_settled and not nested:
            answer = (source.state or "").encode()
        else:
            answer = await self.ask(context, scope, source, "state", {"subgraphs": subgraphs})
        await context.respond(_select_fields(answer, select))

    async def post(self, context: HttpRequestContext) -> None:
        """Change the state as if a node had returned values; no node runs."""
        raw = await context.body()
        scope, source, update = await in_thread(_prepare_update, context, raw)
        params = {
            "values": update.values,
            "as_node": update.as_node,
            "checkpoint": update.base,
            "run_metadata": {"graph_id": source.graph_id},
        }
        async with edit_errors(context.path_uuid("thread_id")):
            made = loads(await self.ask_now(context, scope, source, "update_state", params))
        answer = {"checkpoint": made, "configurable": made, "checkpoint_id": made["checkpoint_id"]}
        await context.respond(dumps(answer))

    async def patch(self, context: HttpRequestContext) -> None:
        """Merge metadata into the thread's: what the JavaScript client's `patchState` is for."""
        raw = await context.body()
        await in_thread(_merge_metadata, context, raw)
        await context.start(status=204)
        await context.finish()


def _prepare_update(
    context: HttpRequestContext, raw: bytes
) -> tuple[Scope, StateSource, StateUpdate]:
    admission = context.admit(Permission.AGENTS_RUN)
    thread_id = context.path_uuid("thread_id")
    scope = admission.resolve_scope("threads", "update", thread_id=str(thread_id))
    source = threads.get_state_source(scope, thread_id)
    update = StateUpdate.parse(raw)
    if source.graph_id is None:
        raise errors.ThreadHasNoGraph
    if source.graph_id not in scope.route.graph_ids:
        raise errors.GraphGone(source.graph_id)
    if source.status == ThreadStatus.BUSY:
        raise errors.ThreadBusy
    return scope, source, update


def _merge_metadata(context: HttpRequestContext, raw: bytes) -> None:
    admission = context.admit(Permission.AGENTS_RUN)
    thread_id = context.path_uuid("thread_id")
    changes = ThreadChanges(metadata=StatePatch.parse(raw).metadata)
    scope, changes = admission.authorize("threads", "update", changes, thread_id=str(thread_id))
    threads.update(scope, thread_id, changes)


class ReadCheckpoint(ThreadConsumer):
    """`GET .../state/{checkpoint_id}` and `POST .../state/checkpoint`: the state as it once was."""

    methods = ("GET", "POST")

    async def handle(self, context: HttpRequestContext) -> None:
        scope, source = await context.run_service(self.find, context)
        if context.scope["method"] == "POST":
            body = StateBody.parse(await context.body())
            reference, subgraphs, select = body.checkpoint, body.subgraphs, body.select or []
        else:
            given = context.kwargs["checkpoint_id"]
            subgraphs, select = context.query_flag("subgraphs"), context.query_list("select")
            if (checkpoint_id := _parse_uuid(given)) is None:
                await context.respond(
                    _select_fields(_blank_state_at(context.kwargs["thread_id"], given), select)
                )
                return
            reference = CheckpointReference(checkpoint_id=checkpoint_id)
        if source.is_blank or source.graph_id is None:
            answer = _blank_state_at(
                context.kwargs["thread_id"], str(reference.checkpoint_id or "")
            )
        else:
            asked = {"checkpoint": reference.model_dump(mode="json"), "subgraphs": subgraphs}
            answer = await self.ask(context, scope, source, "state", asked)
        await context.respond(_select_fields(answer, select))


class ReadHistory(ThreadConsumer):
    """`GET` and `POST /threads/{id}/history`: past states, newest first."""

    methods = ("GET", "POST")

    async def handle(self, context: HttpRequestContext) -> None:
        scope, source = await context.run_service(self.find, context)
        if context.scope["method"] == "POST":
            body = HistoryBody.parse(await context.body())
        else:
            asked = {
                name: context.query[name][-1]
                for name in ("limit", "before")
                if name in context.query
            }
            body = HistoryBody.check(asked)
        params = {
            "limit": body.limit,
            "before": body.before_id,
            "metadata": body.metadata,
            "checkpoint": body.checkpoint.model_dump(mode="json") if body.checkpoint else None,
        }
        if source.is_blank or source.graph_id is None:
            await context.respond(b"[]")
            return
        await context.respond(await self.ask(context, scope, source, "history", params))


def _select_fields(answer: bytes, select: list[str]) -> bytes:
    """The fields of a state that were asked for; all of them without a choice."""
    if not select:
        return answer
    state, shown = loads(answer), {}
    for name in validate_select(select):
        if name in state:
            shown[name] = state[name]
    if "values" not in shown:
        keys = [name.removeprefix("values.") for name in select if name.startswith("values.")]
        values = state.get("values")
        if keys and isinstance(values, dict):
            shown["values"] = {key: values[key] for key in keys if key in values}
    return dumps(shown)


def _blank_state_at(thread_id: str, checkpoint_id: str) -> bytes:
    """The state at a checkpoint that there is not: empty, and named."""
    if not checkpoint_id:
        return BLANK_STATE
    named = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    return dumps({**_BLANK, "checkpoint": named, "checkpoint_id": checkpoint_id})


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
