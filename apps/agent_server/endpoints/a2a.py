"""The endpoints of the Agent2Agent protocol (docs/adr/0036)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from email.utils import format_datetime
from functools import partial
from typing import Any, Literal
from uuid import UUID, uuid5

from django.utils.http import parse_etags

from apps.agent_server.a2a import card, content, params, rpc
from apps.agent_server.a2a.params import SendParams
from apps.agent_server.a2a.rendering import TaskView, to_legacy_event, to_legacy_task
from apps.agent_server.a2a.rpc import A2AError, A2ARequest, A2ARequestRejected, Method
from apps.agent_server.endpoints.endpoint import Continuation, EndpointGroup, Result
from apps.agent_server.errors import AssistantNotFound, ThreadOrAssistantNotFound
from apps.agent_server.models import Assistant
from apps.agent_server.schemas.base import Body, Query
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import a2a_push, a2a_tasks, assistants
from apps.agent_server.services.graph_schemas import schema_cache
from apps.agent_server.statuses import TaskState
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import BEGINNING, END, Event, thread_channel
from apps.agent_server.web.http_context import JSON, HttpRequestContext, Response
from apps.core import errors
from apps.core.ids import uuid7
from apps.core.json import dumps, loads
from apps.core.sync_bridge import in_thread
from apps.deployments.routes import Route
from apps.organizations.permissions import Permission

JSONObject = dict[str, Any]
CARD_MAX_AGE_SECONDS = 60
STOP_TIMEOUT_SECONDS = 12.0
"""The engine abandons a run that does not stop within this time."""
_OPEN = frozenset({TaskState.SUBMITTED, TaskState.WORKING})
_PING = b": ping\r\n\r\n"

endpoints = EndpointGroup("a2a")


class A2AMessage(Body):
    """A JSON-RPC 2.0 request."""

    jsonrpc: Literal["2.0"]
    id: str | int | None = None
    method: str
    params: JSONObject = {}


class CardQuery(Query):
    assistant_id: str | None = None


class NoAssistantGiven(errors.BadRequest):
    code = "assistant_required"
    detail = "The agent has several assistants: name one with `assistant_id`."


# The card


@endpoints.get("/.well-known/agent-card.json", response=dict[str, Any])
def get_agent_card(context: HttpRequestContext, query: CardQuery) -> Response:
    """Get the agent card of an assistant; without an id, of the only one."""
    scope = context.admission.resolve_scope("assistants", "read", assistant_id=query.assistant_id)
    rows = assistants.available_queryset_for(scope)
    if query.assistant_id:
        return _send_card(context, _find_assistant(scope, query.assistant_id))
    candidates = list(rows.filter(graph_id__in=scope.route.graph_ids)[:2])
    if len(candidates) != 1:
        raise NoAssistantGiven
    return _send_card(context, candidates[0])


@endpoints.get("/a2a/{assistant_id}/.well-known/agent-card.json", response=dict[str, Any])
def get_card_of_assistant(context: HttpRequestContext, assistant_id: str) -> Response:
    """Get the agent card of an assistant."""
    scope = context.admission.resolve_scope("assistants", "read", assistant_id=assistant_id)
    return _send_card(context, _find_assistant(scope, assistant_id))


def _find_assistant(scope: Scope, name_or_id: str) -> Assistant:
    return assistants.get(scope, _resolve_id(scope.route, name_or_id))


def _resolve_id(route: Route, name_or_id: str) -> UUID:
    """The id of an assistant, or of the assistant of the graph with that name."""
    if name_or_id in route.graph_ids:
        return assistants.system_assistant_id(name_or_id)
    try:
        return UUID(name_or_id)
    except ValueError:
        raise AssistantNotFound(reference=name_or_id) from None


def _send_card(context: HttpRequestContext, assistant: Assistant) -> Response:
    """Send the card of the version that the client names, or one that both versions read."""
    route = context.admission.route
    version = rpc.requested_version(context.headers, context.query)
    build = {"": card.build_combined_card, "0.3": card.build_legacy_card}.get(
        version, card.build_card
    )
    body = dumps(build(route, assistant))
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = [
        (b"cache-control", f"private, max-age={CARD_MAX_AGE_SECONDS}".encode()),
        (b"etag", etag.encode()),
        (b"last-modified", format_datetime(assistant.updated_at, usegmt=True).encode()),
        (b"vary", b"A2A-Version"),
    ]
    tags = parse_etags(context.headers.get("if-none-match", ""))
    if {etag, f"W/{etag}", "*"}.intersection(tags):
        return Response(status=304, headers=headers, media=None)
    return Response(body, headers=headers)


# Requests


@endpoints.post(
    "/a2a/{assistant_id}",
    aliases=("/a2a/{assistant_id}/",),
    permission=Permission.AGENTS_READ,
    raw_body_model=A2AMessage,
    response=Any,
)
def handle_request(context: HttpRequestContext, assistant_id: str, raw_body: bytes) -> Result:
    """Handle a JSON-RPC request of A2A 1.0, or of 0.3 if the client speaks it.

    A context is a thread, a task is one or more runs on it. Streams are server-sent events.
    Sending and cancelling require the permission to run the agent.
    """
    try:
        request = rpc.read_request(context.headers, context.query, raw_body)
    except A2ARequestRejected as rejection:
        _check_assistant(context, assistant_id)
        return Response(rejection.body)
    return handle_checked(context, assistant_id, request)


def handle_checked(context: HttpRequestContext, assistant_id: str, request: A2ARequest) -> Result:
    """Handle a request of either binding; its errors are responses."""
    try:
        return _handle(context, assistant_id, request)
    except A2AError as error:
        _check_assistant(context, assistant_id)
        status = error.http_status if request.is_http else 200
        return Response(request.encode_error(error), status)


def _check_assistant(context: HttpRequestContext, assistant_id: str) -> UUID:
    """Authenticate the caller; return the id of the assistant in the path.

    Raises `AssistantNotFound`, as a request with other errors does too.
    """
    scope = Scope(context.admission.route)
    parsed_id = _resolve_id(scope.route, assistant_id)
    a2a_tasks.find_graph_id(scope, parsed_id)
    return parsed_id


def _handle(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Result:
    if request.method in {Method.SEND, Method.STREAM}:
        return _send_message(context, name_or_id, request)
    if request.method is Method.CANCEL:
        return _cancel(context, name_or_id, request)
    if request.method is Method.GET:
        return _get(context, name_or_id, request)
    if request.method is Method.LIST:
        return _list(context, name_or_id, request)
    if request.method is Method.SUBSCRIBE:
        return _subscribe(context, name_or_id, request)
    if request.method.is_push:
        return _handle_push(context, name_or_id, request)
    raise A2AError(rpc.UNSUPPORTED_OPERATION, "The agent has no extended card.")


# Tasks


@dataclass(frozen=True, slots=True)
class _TaskRef:
    """A task and the request about it."""

    scope: Scope
    assistant_id: UUID
    task_id: UUID
    request: A2ARequest
    history_length: int | None = None

    def read(self) -> TaskView:
        return a2a_tasks.get(self.scope, self.assistant_id, self.task_id)

    def encode(self, task: TaskView) -> bytes:
        return self.request.encode_result(_render(self, task))

    def encode_current(self) -> bytes:
        """Read and encode the task; encode the error if it was deleted."""
        try:
            return self.encode(self.read())
        except A2AError as error:
            return self.request.encode_error(error)


def _render(ref: _TaskRef, task: TaskView) -> JSONObject:
    """The result of a request: a send wraps the task in 1.0."""
    rendered = task.as_json(history_length=ref.history_length)
    if ref.request.is_legacy:
        return to_legacy_task(rendered)
    return {"task": rendered} if ref.request.method is Method.SEND else rendered


def _get(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Response:
    fields = params.read_task_params(request)
    ref = _find_task(context, "read", name_or_id, request, fields.task_id)
    ref = replace(ref, history_length=fields.history_length)
    return Response(ref.encode(ref.read()))


def _find_task(
    context: HttpRequestContext,
    action: Literal["read", "update"],
    name_or_id: str,
    request: A2ARequest,
    task_id: str,
) -> _TaskRef:
    """Authorize the action on the task's thread. Raises `A2AError` if the task is not visible."""
    assistant_id = _check_assistant(context, name_or_id)
    everything = Scope(context.admission.route)
    task = a2a_tasks.get(everything, assistant_id, task_id)
    scope = context.admission.resolve_scope("threads", action, thread_id=str(task.thread_id))
    ref = _TaskRef(scope, assistant_id, task.id, request)
    ref.read()
    return ref


def _list(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Response:
    scope = context.admission.resolve_scope("threads", "search")
    assistant_id = _check_assistant(context, name_or_id)
    fields = params.read_list_params(request)
    page = a2a_tasks.list_newest(scope, assistant_id, fields)
    rendered = [
        task.as_json(
            history_length=fields.history_length, includes_artifacts=fields.includes_artifacts
        )
        for task in page.tasks
    ]
    result = {
        "tasks": [to_legacy_task(task) for task in rendered] if request.is_legacy else rendered,
        "nextPageToken": page.next_token,
        "pageSize": fields.page_size,
        "totalSize": page.total,
    }
    return Response(request.encode_result(result))


def _cancel(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Result:
    task_id = params.read_task_params(request).task_id
    context.admit(Permission.AGENTS_RUN)
    ref = _find_task(context, "update", name_or_id, request, task_id)
    task = ref.read()
    a2a_tasks.cancel(ref.scope, task)
    task = ref.read()
    if task.state == TaskState.CANCELED:
        return Response(ref.encode(task))
    return partial(_send_cancelled, ref, task.run_id)


async def _send_cancelled(ref: _TaskRef, run_id: UUID, context: HttpRequestContext) -> None:
    """Send the task once its run has stopped; it may also have ended by itself."""
    await context.start(JSON)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_SECONDS), run_events(context, run_id) as events:
            async for _ in events:
                pass
    await context.finish(await in_thread(_encode_cancelled, ref))


def _encode_cancelled(ref: _TaskRef) -> bytes:
    try:
        task = ref.read()
        if task.state.is_final and task.state != TaskState.CANCELED:
            text = f"The task has ended: it is {task.state}."
            raise A2AError(rpc.TASK_NOT_CANCELABLE, text)
        return ref.encode(task)
    except A2AError as error:
        return ref.request.encode_error(error)


# Push notifications


def _handle_push(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Response:
    """Set, read, list or delete addresses that are notified of a task."""
    a2a_push.require_offered(Scope(context.admission.route))
    if request.method is Method.CREATE_PUSH:
        return _create_push(context, name_or_id, request)
    needs_config = request.method is Method.DELETE_PUSH or (
        request.method is Method.GET_PUSH and not request.is_legacy
    )
    fields = params.read_push_params(request, needs_config=needs_config)
    # A configuration has the receiver's credentials, which readers of tasks do not need.
    context.admit(Permission.AGENTS_RUN)
    action: Literal["read", "update"] = "update" if request.method is Method.DELETE_PUSH else "read"
    ref = _find_task(context, action, name_or_id, request, fields.task_id)
    task = ref.read()
    if request.method is Method.GET_PUSH:
        row = a2a_push.get(ref.scope, task, fields.config_id)
        return Response(request.encode_result(a2a_push.as_json(row, is_legacy=request.is_legacy)))
    if request.method is Method.DELETE_PUSH:
        a2a_push.delete(ref.scope, task, fields.config_id or "")
        return Response(request.encode_result(None if request.is_legacy else {}))
    page, next_token = a2a_push.list_page(ref.scope, task, fields)
    configs = [a2a_push.as_json(row, is_legacy=request.is_legacy) for row in page]
    result = configs if request.is_legacy else {"configs": configs, "nextPageToken": next_token}
    return Response(request.encode_result(result))


def _create_push(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Response:
    task_id, config = params.read_new_push_params(request)
    context.admit(Permission.AGENTS_RUN)
    ref = _find_task(context, "update", name_or_id, request, task_id)
    a2a_push.check_address(ref.scope, config)
    row = a2a_push.save(ref.scope, ref.read(), config, is_legacy=request.is_legacy)
    return Response(request.encode_result(a2a_push.as_json(row, is_legacy=request.is_legacy)))


def _push_request(
    scope: Scope, request: A2ARequest, fields: SendParams
) -> a2a_tasks.PushRequest | None:
    """The address that came with a message, once it is checked."""
    if fields.push_config is None:
        return None
    a2a_push.check_address(scope, fields.push_config)
    return a2a_tasks.PushRequest(fields.push_config, request.is_legacy)


# Messages


def _send_message(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Result:
    fields = params.read_send_params(request)
    context.admit(Permission.AGENTS_RUN)
    start = _start_task if fields.task_id is None else _resume_task
    ref, task = start(context, name_or_id, request, fields)
    if request.method is Method.STREAM:
        return partial(_stream_task, ref, task, is_subscription=False)
    if fields.returns_immediately:
        return Response(ref.encode(task))
    return partial(_send_ended_task, ref, task.run_id)


def _run_body(assistant_id: UUID, request: A2ARequest, fields: SendParams, **how: Any) -> RunBody:
    # Other clients may subscribe to the task, but a client that waits needs no tokens.
    streams = request.method is Method.STREAM or fields.returns_immediately
    return RunBody.check(
        {
            "assistant_id": str(assistant_id),
            "stream_mode": ["messages-tuple"] if streams else ["updates"],
            "metadata": fields.metadata,
            **how,
        }
    )


def _start_task(
    context: HttpRequestContext, name_or_id: str, request: A2ARequest, fields: SendParams
) -> tuple[_TaskRef, TaskView]:
    """Start a task."""
    everything = Scope(context.admission.route)
    assistant_id = _resolve_id(everything.route, name_or_id)
    schemas = schema_cache.get(everything, a2a_tasks.find_graph_id(everything, assistant_id))
    thread_id, message = None, fields.message
    if fields.context_id is not None:
        thread_id = _thread_of_context(context, assistant_id, fields.context_id)
    is_repeated = thread_id is not None and a2a_tasks.has_message(
        everything, thread_id, message["messageId"]
    )
    graph_input = content.to_graph_input(message, schemas, is_repeated=is_repeated)
    body = _run_body(assistant_id, request, fields, input=graph_input)
    # A handler is asked again after its answer, so the id of a new thread must not be in it.
    requested = {} if thread_id is None else {"thread_id": str(thread_id)}
    scope, body = context.admission.authorize("threads", "create_run", body, **requested)
    thread_id = thread_id or uuid7()
    context_id = fields.context_id or str(thread_id)
    try:
        task = a2a_tasks.create(
            scope,
            thread_id=thread_id,
            context_id=context_id,
            message=message,
            body=body,
            push=_push_request(scope, request, fields),
        )
    except ThreadOrAssistantNotFound:
        raise params.invalid("contextId: belongs to another caller.") from None
    return _TaskRef(scope, assistant_id, task.id, request, fields.history_length), task


def _thread_of_context(context: HttpRequestContext, assistant_id: UUID, context_id: str) -> UUID:
    """The thread of a context: a UUID is its id, any other name is that of the caller alone."""
    with contextlib.suppress(ValueError):
        return UUID(context_id)
    user = context.admission.user()
    return uuid5(assistant_id, f"{user['identity'] if user else ''}\n{context_id}")


def _resume_task(
    context: HttpRequestContext, name_or_id: str, request: A2ARequest, fields: SendParams
) -> tuple[_TaskRef, TaskView]:
    """Start a new run of a task that waits for input."""
    everything = Scope(context.admission.route)
    assistant_id = _resolve_id(everything.route, name_or_id)
    a2a_tasks.find_graph_id(everything, assistant_id)
    task = a2a_tasks.get(everything, assistant_id, fields.task_id or "")
    if fields.context_id is not None and fields.context_id != task.context_id:
        raise params.invalid("contextId: is not that of the task.")
    if task.state.is_final:
        raise A2AError(rpc.UNSUPPORTED_OPERATION, f"The task has ended: it is {task.state}.")
    if task.state != TaskState.INPUT_REQUIRED:
        raise params.invalid("taskId: the task does not wait for input.")
    ids = [str(interrupt.get("id")) for interrupt in task.pending_interrupts]
    answer = content.to_resume_value(fields.message, ids)
    body = _run_body(assistant_id, request, fields, command={"resume": answer})
    scope, body = context.admission.authorize(
        "threads", "create_run", body, thread_id=str(task.thread_id)
    )
    task = a2a_tasks.get(scope, assistant_id, task.id)
    push = _push_request(scope, request, fields)
    task = a2a_tasks.resume(scope, task, message=fields.message, body=body, push=push)
    return _TaskRef(scope, assistant_id, task.id, request, fields.history_length), task


async def _send_ended_task(ref: _TaskRef, run_id: UUID, context: HttpRequestContext) -> None:
    """Send the task at its end or when it requires input, after newlines that keep it open."""
    await context.start(JSON)
    async with run_events(context, run_id, heartbeat=b"\n") as events:
        async for _ in events:
            pass
    if not context.must_end():
        await context.finish(await in_thread(ref.encode_current))
    elif context.refusal is not None:
        await context.finish(ref.request.encode_error(_access_lost(context)))


def _access_lost(context: HttpRequestContext) -> A2AError:
    detail = context.refusal.detail if context.refusal is not None else ""
    return A2AError(rpc.UNSUPPORTED_OPERATION, f"Access was lost: {detail}")


# Streams


def _subscribe(context: HttpRequestContext, name_or_id: str, request: A2ARequest) -> Continuation:
    task_id = params.read_task_params(request).task_id
    ref = _find_task(context, "read", name_or_id, request, task_id)
    task = ref.read()
    if task.state.is_final:
        raise A2AError(rpc.UNSUPPORTED_OPERATION, f"The task has ended: it is {task.state}.")
    return partial(_stream_task, ref, task, is_subscription=True)


async def _stream_task(
    ref: _TaskRef, task: TaskView, context: HttpRequestContext, *, is_subscription: bool
) -> None:
    """Send the task and its events: of a new run until it stops, of a subscription to the end."""
    await context.start(*sse.HEADERS)
    stream = _TaskStream(ref, task, context.write)
    await stream.send({"task": task.as_json(history_length=ref.history_length)})
    try:
        await _relay_runs(stream, ref, task, context, is_subscription=is_subscription)
    except A2AError as error:  # the task was deleted
        await stream.send_error(error)
    if context.refusal is not None:
        await stream.send_error(_access_lost(context))
    await context.finish()


async def _relay_runs(
    stream: _TaskStream,
    ref: _TaskRef,
    task: TaskView,
    context: HttpRequestContext,
    *,
    is_subscription: bool,
) -> None:
    ended_run_id = None if task.state in _OPEN else task.run_id
    while not context.must_end():
        if task.run_id != ended_run_id:
            # A run that has already ended is read from its beginning, too.
            async with run_events(context, task.run_id, heartbeat=_PING) as events:
                async for event in events:
                    await stream.relay(event)
            if context.must_end():
                break
            ended_run_id = task.run_id
            task = await in_thread(ref.read)
            await stream.end_run(task)
            if task.run_id != ended_run_id:
                continue  # it was resumed in the meantime
        if task.state.is_final or not is_subscription:
            break
        task = await _wait_for_change(ref, task, context)
        if not context.must_end():
            await stream.begin_run(task, is_new=task.run_id != ended_run_id)


class _ThreadListener:
    """Wakes a waiting stream at each notice of a thread."""

    def __init__(self, thread_pk: UUID, woken: asyncio.Event) -> None:
        self.channel = thread_channel(thread_pk).encode()
        self._woken = woken

    def on_message(self, payload: bytes) -> None:
        self._woken.set()

    def mark_stale(self) -> None:
        self._woken.set()


async def _wait_for_change(
    ref: _TaskRef, paused: TaskView, context: HttpRequestContext
) -> TaskView:
    """Wait until a paused task is resumed or cancelled, or the context must end.

    The task is read at each notice of its thread, and at each heartbeat in case one was lost.
    """
    woken = asyncio.Event()
    thread_pk = await in_thread(a2a_tasks.find_thread_pk, paused)
    async with _listening(thread_pk, woken), context.keep_alive(woken.set):
        while not context.must_end():
            task = await in_thread(ref.read)
            if (task.run_id, task.state) != (paused.run_id, paused.state):
                return task
            await woken.wait()
            woken.clear()
            await context.write(_PING)
    return paused


@contextlib.asynccontextmanager
async def _listening(thread_pk: UUID | None, woken: asyncio.Event) -> AsyncIterator[None]:
    """Set the event at each notice of the thread; a deleted task has none."""
    if thread_pk is None:
        yield
        return
    listener = _ThreadListener(thread_pk, woken)
    get_hub().listen(listener)
    try:
        yield
    finally:
        get_hub().remove_listener(listener)


@contextlib.asynccontextmanager
async def run_events(
    context: HttpRequestContext, run_id: UUID, *, heartbeat: bytes = b""
) -> AsyncIterator[AsyncIterator[Event]]:
    """The events of a run from its beginning to its end, with heartbeats in between."""
    async with get_hub().open(run_id, BEGINNING) as reader, context.keep_alive(reader.wake):

        async def read() -> AsyncIterator[Event]:
            while not context.must_end():
                events = await reader.next()
                if not events and heartbeat:
                    await context.write(heartbeat)
                for event in events:
                    yield event
                    if event.name == END:
                        return

        iterator = read()
        try:
            yield iterator
        finally:
            await iterator.aclose()  # type: ignore[attr-defined]


class _TaskStream:
    """Sends the events of one task as JSON-RPC responses."""

    def __init__(self, ref: _TaskRef, task: TaskView, write: Callable[[bytes], Any]) -> None:
        self._ref, self._task, self._write = ref, task, write
        self._message_id: object = None
        self._text = ""
        """What was sent of the artifact."""

    async def send(self, event: JSONObject) -> None:
        request = self._ref.request
        result = to_legacy_event(event) if request.is_legacy else event
        await self._write(sse.encode_event(b"message", request.encode_result(result)))

    async def send_error(self, error: A2AError) -> None:
        request = self._ref.request
        # In HTTP+JSON, only the name of the event tells an error from a result.
        name = sse.ERROR if request.is_http else b"message"
        await self._write(sse.encode_event(name, request.encode_error(error)))

    async def relay(self, event: Event) -> None:
        """Send what follows from an event of the run: that it started, or a token."""
        if event.name == b"metadata" and self._task.state == TaskState.SUBMITTED:
            self._task = replace(self._task, state=TaskState.WORKING)
            await self.send(self._task.status_update())
        elif event.name == b"messages":
            await self._relay_token(event)

    async def _relay_token(self, event: Event) -> None:
        message, _ = loads(event.data)
        if message.get("type") not in {"ai", "AIMessageChunk"}:
            return
        parts = content.to_message_parts(message.get("content"))
        text = "".join(part.get("text", "") for part in parts)
        if not text:
            return
        # A new message of the model replaces the artifact.
        append = message.get("id") == self._message_id
        self._message_id = message.get("id")
        if message["type"] == "ai" and append:
            return  # the whole message after its chunks
        self._text = self._text + text if append else text
        await self.send(self._task.artifact_update([{"text": text}], append=append, is_last=False))

    async def begin_run(self, task: TaskView, *, is_new: bool) -> None:
        """Send the state of a task that was resumed, or that was cancelled without a new run."""
        self._message_id, self._text = None, ""
        if not is_new:
            await self.end_run(task)
            return
        # However far the new run is: its events are still to be sent from the first.
        self._task = replace(task, state=TaskState.SUBMITTED, error=None)
        await self.send(self._task.status_update())

    async def end_run(self, task: TaskView) -> None:
        """Send the artifact, unless all of it was sent, and the state at the end of a run."""
        self._task = task
        for artifact in task.artifacts:
            parts = artifact["parts"]
            if self._text and parts == [{"text": self._text}]:
                await self.send(task.artifact_update([{"text": ""}], append=True, is_last=True))
            else:
                await self.send(task.artifact_update(parts, append=False, is_last=True))
        await self.send(task.status_update())
