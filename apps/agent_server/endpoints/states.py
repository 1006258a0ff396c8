"""Endpoints of thread states: read, history, change.

The thread's row contains the state that a finished run wrote; any other state comes from the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.endpoints.endpoint import EndpointGroup, Result, json_response
from apps.agent_server.endpoints.graph_calls import edit_errors, state_cache
from apps.agent_server.messaging import calls
from apps.agent_server.models import Thread
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.base import CheckpointReference, JSONObject, parse_checkpoint_id
from apps.agent_server.schemas.states import (
    HistoryBody,
    HistoryQuery,
    StateBody,
    StatePatch,
    StateQuery,
    StateUpdate,
    validate_select,
)
from apps.agent_server.schemas.threads import ThreadChanges
from apps.agent_server.scope import Action, Scope
from apps.agent_server.services import checkpoints, threads
from apps.agent_server.services.threads import StateSource
from apps.agent_server.statuses import ThreadStatus
from apps.agent_server.web.http_context import NO_CONTENT, HttpRequestContext, Response
from apps.core.json import dumps, loads, loads_exact
from apps.organizations.permissions import Permission
from apps.usage import storage
from apps.usage.models import StorageKind

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

endpoints = EndpointGroup("threads")


@dataclass(frozen=True, slots=True)
class _StoredThread:
    """A thread that the caller may read, and where its state is."""

    scope: Scope
    thread_id: UUID
    source: StateSource

    @property
    def has_no_state(self) -> bool:
        return self.source.is_blank or self.source.graph_id is None

    async def call_graph_cached(self, method: str, params: JSONObject) -> bytes:
        """Return the graph's answer about the thread; cached while the thread is unchanged."""
        if self.source.status == ThreadStatus.BUSY:
            return await self.call_graph(method, params)
        revision_id, graph_id = self.scope.route.active_revision_id, self.source.graph_id
        arguments = dumps([params, [self.source.config, self.scope.user]])
        return await state_cache.get(
            self.source.pk,
            self.source.version,
            (revision_id, graph_id, method, arguments),
            partial(self.call_graph, method, params),
        )

    async def call_graph(self, method: str, params: JSONObject) -> bytes:
        source = self.source
        return await calls.call_graph(
            self.scope.route,
            source.graph_id or "",
            method,
            {**params, "config": loads(source.config), "user": self.scope.user},
            thread=Thread(pk=source.pk, thread_id=self.thread_id),
            revision_id=source.revision_id if source.status == ThreadStatus.BUSY else None,
        )


def _find(context: HttpRequestContext, thread_id: UUID, action: Action = "read") -> _StoredThread:
    scope = context.admission.resolve_scope("threads", action, thread_id=str(thread_id))
    return _StoredThread(scope, thread_id, threads.get_state_source(scope, thread_id))


@endpoints.get("/threads/{thread_id}/state", runs_on_loop=True, response=responses.State)
def get_state(context: HttpRequestContext, thread_id: UUID, query: StateQuery) -> Result:
    """Get the current state of a thread."""
    thread = _find(context, thread_id)
    source = thread.source
    # Only a thread that stopped within a run has tasks with a state of their own.
    is_nested = query.subgraphs and source.status != ThreadStatus.IDLE
    if thread.has_no_state:
        return _state_response(BLANK_STATE, query.select)
    if source.has_current_state and not is_nested:
        return _state_response((source.state or "").encode(), query.select)
    return partial(_send_state, thread, {"subgraphs": query.subgraphs}, query.select)


@endpoints.post("/threads/{thread_id}/state", response=responses.StateUpdated)
def update_state(context: HttpRequestContext, thread_id: UUID, body: StateUpdate) -> Result:
    """Change the state of a thread as if a node had returned the values; no node runs."""
    thread = _find(context, thread_id, "update")
    source = thread.source
    if source.graph_id is None:
        raise errors.ThreadHasNoGraph
    if source.graph_id not in thread.scope.route.graph_ids:
        raise errors.GraphGone(source.graph_id)
    if source.status == ThreadStatus.BUSY:
        raise errors.ThreadBusy
    storage.check(thread.scope.route.workspace_id, StorageKind.THREADS)
    if body.checkpoint is not None:
        body.checkpoint.check_thread(thread_id)
    checkpoints.require(thread.scope, thread_id, body.checkpoint_keys)
    return partial(_apply_update, thread, body)


async def _apply_update(
    thread: _StoredThread, body: StateUpdate, _: HttpRequestContext
) -> Response:
    params = {
        "values": body.values,
        "as_node": body.as_node,
        "checkpoint": body.base,
        "run_metadata": {"graph_id": thread.source.graph_id},
    }
    async with edit_errors(thread.thread_id):
        checkpoint = loads(await thread.call_graph("update_state", params))
    return json_response(
        {
            "checkpoint": checkpoint,
            "configurable": checkpoint,
            "checkpoint_id": checkpoint["checkpoint_id"],
        }
    )


@endpoints.patch("/threads/{thread_id}/state", status=204)
def patch_state(context: HttpRequestContext, thread_id: UUID, body: StatePatch) -> Response:
    """Merge into the metadata of a thread (`patchState` of the JavaScript client)."""
    changes = ThreadChanges(metadata=body.metadata)
    scope, changes = context.admission.authorize(
        "threads", "update", changes, thread_id=str(thread_id)
    )
    threads.update(scope, thread_id, changes)
    return NO_CONTENT


@endpoints.get(
    "/threads/{thread_id}/state/{checkpoint_id}", runs_on_loop=True, response=responses.State
)
def get_state_at(
    context: HttpRequestContext, thread_id: UUID, checkpoint_id: str, query: StateQuery
) -> Result:
    """Get the state of a thread at a checkpoint."""
    thread = _find(context, thread_id)
    parsed_id = parse_checkpoint_id("checkpoint_id", checkpoint_id)
    reference = CheckpointReference(checkpoint_id=parsed_id)
    return _state_at(thread, reference, query.select, subgraphs=query.subgraphs)


@endpoints.post(
    "/threads/{thread_id}/state/checkpoint",
    permission=Permission.AGENTS_READ,
    runs_on_loop=True,
    response=responses.State,
)
def get_state_at_checkpoint(
    context: HttpRequestContext, thread_id: UUID, body: StateBody
) -> Result:
    """Get the state of a thread at a checkpoint."""
    thread = _find(context, thread_id)
    return _state_at(thread, body.checkpoint, body.select or [], subgraphs=body.subgraphs)


def _state_at(
    thread: _StoredThread,
    reference: CheckpointReference,
    select: list[str],
    *,
    subgraphs: bool,
) -> Result:
    reference.check_thread(thread.thread_id)
    checkpoints.require(thread.scope, thread.thread_id, reference.keys)
    if thread.has_no_state:
        return _state_response(BLANK_STATE, select)
    params = {"checkpoint": reference.model_dump(mode="json"), "subgraphs": subgraphs}
    return partial(_send_state, thread, params, select)


async def _send_state(
    thread: _StoredThread, params: JSONObject, select: list[str], _: HttpRequestContext
) -> Response:
    return _state_response(await thread.call_graph_cached("state", params), select)


@endpoints.get("/threads/{thread_id}/history", runs_on_loop=True, response=list[responses.State])
def get_history(context: HttpRequestContext, thread_id: UUID, query: HistoryQuery) -> Result:
    """List past states of a thread, newest first."""
    body = HistoryBody(limit=query.limit, before=query.before)
    return _history(context, thread_id, body)


@endpoints.post(
    "/threads/{thread_id}/history",
    permission=Permission.AGENTS_READ,
    runs_on_loop=True,
    response=list[responses.State],
)
def search_history(context: HttpRequestContext, thread_id: UUID, body: HistoryBody) -> Result:
    """List past states of a thread, newest first."""
    return _history(context, thread_id, body)


def _history(context: HttpRequestContext, thread_id: UUID, body: HistoryBody) -> Result:
    thread = _find(context, thread_id)
    if body.checkpoint is not None:
        body.checkpoint.check_thread(thread_id)
    checkpoints.require(thread.scope, thread_id, body.checkpoint_keys)
    params = {
        "limit": body.limit,
        "before": body.before_id,
        "metadata": body.metadata,
        "checkpoint": body.checkpoint.model_dump(mode="json") if body.checkpoint else None,
    }
    return Response(b"[]") if thread.has_no_state else partial(_send_history, thread, params)


async def _send_history(
    thread: _StoredThread, params: JSONObject, _: HttpRequestContext
) -> Response:
    return Response(await thread.call_graph_cached("history", params))


def _state_response(state: bytes, select: list[str]) -> Response:
    """The selected fields of a state; all of them without a selection."""
    if not select:
        return Response(state)
    fields, selected = loads_exact(state), {}
    for name in validate_select(select):
        if name in fields:
            selected[name] = fields[name]
    if "values" not in selected:
        keys = [name.removeprefix("values.") for name in select if name.startswith("values.")]
        values = fields.get("values")
        if keys and isinstance(values, dict):
            selected["values"] = {key: values[key] for key in keys if key in values}
    return json_response(selected)
