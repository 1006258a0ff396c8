"""Calls of MCP: runs of assistants, their questions to clients, and their results.

A call is a tool's; prompts and resources of graphs are calls with another result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from apps.agent_server import prepared_sql, results
from apps.agent_server.auth.access import Admission
from apps.agent_server.auth.custom_auth import AuthPending
from apps.agent_server.endpoints.endpoint import Result
from apps.agent_server.errors import ThreadNotFound
from apps.agent_server.mcp import (
    asking_runs,
    log_messages,
    prompts,
    questions,
    resources,
    tasks,
    tools,
)
from apps.agent_server.mcp.asking_runs import CallState, LockedRun
from apps.agent_server.mcp.content import to_content
from apps.agent_server.mcp.questions import Question, to_questions, to_requests
from apps.agent_server.mcp.sessions import Session
from apps.agent_server.mcp.tasks import TaskId
from apps.agent_server.mcp.tools import Tool
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs, delete_threads, dispatch, runs, threads
from apps.agent_server.services.graph_schemas import OUTPUT_FIELD, find_problem
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import BEGINNING, END, Event
from apps.agent_server.web.http_context import JSON, HttpRequestContext, Response
from apps.core import errors
from apps.core.ids import uuid7
from apps.core.json import dumps_text, loads, loads_exact
from apps.core.mcp import messages
from apps.core.mcp.messages import McpMessage, RpcError
from apps.core.mcp.server import McpServer, cache_hints, failure, success, tool_call
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

JSONObject = dict[str, Any]
Beat = Callable[[], Awaitable[None]]
"""Keeps a quiet connection open."""
ToResult = Callable[[Any, Tool], JSONObject]
"""Makes the result of what a run that asks nothing returned."""
SERVER_CAPABILITIES: JSONObject = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": False},
    "tools": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": True},
}
INPUT_REQUIRED = "input_required"
_GONE = "The run is gone."
_DECLINED = "The user did not answer the assistant's question."


def server_of(context: HttpRequestContext) -> McpServer:
    name = context.admission.route.name
    return McpServer(name, SERVER_CAPABILITIES, extensions=(tasks.EXTENSION,))


def respond(context: HttpRequestContext, message: McpMessage, result: JSONObject) -> Response:
    return Response(server_of(context).encode(message, result))


class Callee(NamedTuple):
    """What is called: an assistant as a tool, a prompt or a resource."""

    tool: Tool
    state_name: str
    """Its name in the state that clients carry, unlike that of another callee."""
    to_result: ToResult


@dataclass(frozen=True, slots=True)
class McpCall:
    """A call whose run was created."""

    message: McpMessage
    callee: Callee
    scope: Scope
    admission: Admission
    run_id: UUID
    server: McpServer
    capabilities: frozenset[str]
    """What the client answers questions with."""
    session: Session | None = None
    thread_id: UUID | None = None
    """The thread of a call that its client may have to continue; it is deleted after the call."""
    may_be_task: bool = False
    log_level: str | None = None
    """The least level of the log messages that the client wants."""

    def encode(self, result: JSONObject) -> bytes:
        """Encode a result. Raises `RpcError` for a failure that is not the result of a tool."""
        if result.get("isError") and self.message.method != "tools/call":
            raise RpcError(messages.INTERNAL_ERROR, result["content"][0]["text"])
        return self.server.encode(self.message, result)


def _run_body(message: McpMessage, tool: Tool, session: Session | None, **how: Any) -> RunBody:
    modes = ["values"] if message.progress_token is None else ["updates"]
    if session is not None or message.log_level is not None:
        modes.append("custom")
    return RunBody.check(
        {
            "assistant_id": str(tool.assistant_id),
            "stream_mode": modes,
            "metadata": _metadata(message, session),
            **how,
        }
    )


def _metadata(message: McpMessage, session: Session | None) -> JSONObject:
    if session is not None:
        return asking_runs.metadata_of(session, message.id)
    return {asking_runs.TASK_KEY: True} if _may_be_task(message) else {}


def _may_be_task(message: McpMessage) -> bool:
    """Whether the result may be a task; a client that follows the progress waits instead."""
    return (
        message.is_stateless
        and message.method == "tools/call"
        and tasks.is_offered(message)
        and message.progress_token is None
    )


def call_tool(context: HttpRequestContext, message: McpMessage, session: Session | None) -> Result:
    """Run the assistant of a tool, or continue its run with the answers of the client."""
    name, arguments = tool_call(message)
    context.admit(Permission.AGENTS_RUN)
    tool = tools.find(context.admission.resolve_scope("assistants", "search"), name)
    if message.is_stateless:
        tool.check_headers(context.headers, arguments)
    problem = tool.schemas.describe_problem(arguments)
    if problem is not None:
        return respond(context, message, failure(f"Invalid arguments: {problem}"))
    to_result = partial(to_call_result, has_links=message.has_links)
    return _call(context, message, session, Callee(tool, tool.name, to_result), arguments)


def get_prompt(context: HttpRequestContext, message: McpMessage, session: Session | None) -> Result:
    """Run the assistant of a prompt for its messages."""
    name = message.params.get("name")
    if not isinstance(name, str):
        raise RpcError(messages.INVALID_PARAMS, "name: must be a string.")
    context.admit(Permission.AGENTS_RUN)
    prompt = prompts.find(context.admission.resolve_scope("assistants", "search"), name)
    arguments = prompts.read_arguments(prompt, message.params.get("arguments"))
    to_result = partial(prompts.to_result, has_links=message.has_links)
    callee = Callee(prompt, f"{prompts.PREFIX}{prompt.name}", to_result)
    return _call(context, message, session, callee, arguments)


def read_resource(
    context: HttpRequestContext, message: McpMessage, session: Session | None, uri: str
) -> Result | None:
    """Run the assistant that has the content of an address; None if there is none."""
    match = resources.find_named(context.admission.resolve_scope("assistants", "search"), uri)
    if match is None:
        return None
    context.admit(Permission.AGENTS_RUN)
    tool, values = match
    if problem := tool.schemas.describe_problem(values):
        raise RpcError(messages.INVALID_PARAMS, f"uri: {problem}")

    def to_result(output: Any, _: Tool) -> JSONObject:
        return {**resources.to_result(output, uri), **cache_hints(message)}

    callee = Callee(tool, f"{resources.STATE_PREFIX}{uri}", to_result)
    return _call(context, message, session, callee, values)


def _call(
    context: HttpRequestContext,
    message: McpMessage,
    session: Session | None,
    callee: Callee,
    arguments: JSONObject,
) -> Result:
    """Run an assistant with these arguments, or continue its run."""
    if message.is_stateless:
        if message.log_level is not None:
            log_messages.check_level(message.log_level)
        capabilities = questions.offered_by(message.capabilities)
    else:
        capabilities = session.capabilities if session else frozenset()
    if message.is_stateless and message.params.get("requestState") is not None:
        return _continue_call(context, message, callee, capabilities)
    run_input = callee.tool.schemas.to_input(arguments)
    body = _run_body(message, callee.tool, session, input=run_input)
    scope, body = context.admission.authorize("threads", "create_run", body)
    if capabilities or _may_be_task(message):
        thread_id, run_id = _start_on_thread(scope, body)
    else:
        thread_id, run_id = None, runs.create_stateless(scope, body).run_id
    return _follow_run(
        context,
        message,
        callee,
        scope=scope,
        run_id=run_id,
        thread_id=thread_id,
        capabilities=capabilities,
        session=session,
    )


def _follow_run(
    context: HttpRequestContext, message: McpMessage, callee: Callee, **run: Any
) -> Result:
    """Follow a run that was created for a call; `run` are the other fields of `McpCall`."""
    call = McpCall(
        message,
        callee,
        admission=context.admission,
        server=server_of(context),
        may_be_task=_may_be_task(message),
        log_level=message.log_level,
        **run,
    )
    return partial(_follow, call)


async def _follow(call: McpCall, context: HttpRequestContext) -> Response | None:
    """Send the result, after the questions, steps and log messages that the client wants."""
    if call.session is not None:
        level = await in_thread(log_messages.read_level, call.session)
        call = replace(call, log_level=level)
        if call.capabilities:
            await _send_dialog(call, context)
            return None
    if call.message.progress_token is None and call.log_level is None:
        return await _send_result(call, context)
    await _send_stream(call, context)
    return None


@transaction.atomic
def _start_on_thread(scope: Scope, body: RunBody) -> tuple[UUID, UUID]:
    """Start a run on a thread that outlives its interrupts for the time of an answer."""
    thread_id = uuid7()
    threads.insert(scope, thread_id, scope.owner_metadata, ttl=asking_runs.TIME_TO_LIVE)
    return thread_id, runs.create_on_thread(scope, thread_id, body).run_id


@transaction.atomic
def _continue_call(
    context: HttpRequestContext,
    message: McpMessage,
    callee: Callee,
    capabilities: frozenset[str],
) -> Result:
    """Resume the run of a call that is repeated with the answers of the client.

    Answers that are missing are asked for again, with all others.
    """
    state = asking_runs.read_state(context.admission, message.params["requestState"])
    if state is None or state.tool != callee.state_name:
        raise _unknown_state()
    thread_id = state.thread_id
    scope = context.admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    locked = asking_runs.lock_asking(scope, state.run_id)
    if locked is None or locked.run.is_answered:
        raise _unknown_state()
    try:
        interrupts = asking_runs.pending(threads.get(scope, thread_id).interrupts)
    except ThreadNotFound:
        raise _unknown_state() from None
    open_questions = to_questions(interrupts)
    if not open_questions:
        raise _unknown_state()
    selection = questions.select(open_questions, capabilities)
    responses = questions.read_responses(message.params.get("inputResponses"))
    if any(question.key not in responses for question in selection):
        return respond(context, message, _input_required(context.admission, state, selection))
    answers = {question.key: responses[question.key] for question in selection}
    try:
        answer = questions.to_resume_value(open_questions, answers)
    except questions.Declined:
        _delete_thread(scope, thread_id)
        return _refuse(context, message, _DECLINED)
    body = _run_body(message, callee.tool, None, command={"resume": answer})
    scope, body = context.admission.authorize(
        "threads", "create_run", body, thread_id=str(thread_id)
    )
    run_id = runs.create_on_thread(scope, thread_id, body).run_id
    locked.run.set_next_run(scope, run_id)
    return _follow_run(
        context,
        message,
        callee,
        scope=scope,
        run_id=run_id,
        thread_id=thread_id,
        capabilities=capabilities,
    )


def _refuse(context: HttpRequestContext, message: McpMessage, text: str) -> Response:
    """The response to a call that fails: of a tool, a result that its model reads."""
    if message.method == "tools/call":
        return respond(context, message, failure(text))
    return Response(RpcError(messages.INTERNAL_ERROR, text, request_id=message.id).as_json())


def _unknown_state() -> RpcError:
    text = "requestState: is unknown, has expired or was answered before."
    return RpcError(messages.INVALID_PARAMS, text)


def resume(
    context: HttpRequestContext, scope: Scope, locked: LockedRun, open_questions: list[Question]
) -> None:
    """Start a run with the stored answers, and wake the call that waits for them.

    Requires the transaction that locked the thread of the run that asks.
    """
    run = locked.run
    try:
        answer = questions.to_resume_value(open_questions, run.answers)
        body = RunBody.check({**locked.run_fields, "command": {"resume": answer}})
        scope, body = context.admission.authorize(
            "threads", "create_run", body, thread_id=str(locked.thread_id)
        )
        with transaction.atomic():
            next_run = runs.create_on_thread(scope, locked.thread_id, body)
        run.set_next_run(scope, next_run.run_id)
    except questions.Declined:
        run.set_problem(scope, _DECLINED)
    except AuthPending:
        raise  # the request is restarted once the agent's code has answered
    except (RpcError, errors.AppError) as error:
        run.set_problem(scope, str(error))
    channel = asking_runs.channel(run.id)
    prepared_sql.on_commit(lambda: dispatch.publish(channel, b""))


def _delete_thread(scope: Scope, thread_id: UUID) -> None:
    """Delete the thread of a call and stop its run."""
    with contextlib.suppress(ThreadNotFound):
        delete_threads.delete(scope, thread_id)


async def _send_result(call: McpCall, context: HttpRequestContext) -> Response | None:
    """Send the result as JSON, after newlines if they had to keep the connection open."""

    async def beat() -> None:
        if not context.is_started:
            await context.start(JSON)
        await context.write(b"\n")

    status = 200
    try:
        result = await _wait(call, context, beat)
        if result is None:
            return None
        body = call.encode(result)
    except RpcError as error:
        body, status = _encode_error(call, error), error.status
    if not context.is_started:
        return Response(body, status)
    await context.finish(body)
    return None


async def _send_stream(call: McpCall, context: HttpRequestContext) -> None:
    """Send notifications of steps and log messages, then the result."""
    await context.start(*sse.HEADERS)
    try:
        result = await _wait(call, context, partial(context.write, sse.HEARTBEAT))
        body = None if result is None else call.encode(result)
    except RpcError as error:
        body = _encode_error(call, error)
    if body is not None:
        await context.finish(sse.encode_event(b"message", body))


def _encode_error(call: McpCall, error: RpcError) -> bytes:
    error.request_id = call.message.id
    return error.as_json()


async def _send_dialog(call: McpCall, context: HttpRequestContext) -> None:
    """Send the graph's questions as requests, resume it with the answers, then send the result."""
    await context.start(*sse.HEADERS)
    while True:
        try:
            result = await _wait(call, context, partial(context.write, sse.HEARTBEAT))
        except RpcError as error:
            result = failure(error.message)
        if result is None:
            return
        if "inputRequests" not in result:
            break
        outcome = await _ask(call, context, result["inputRequests"])
        if outcome is None:
            return
        if isinstance(outcome, McpCall):
            call = outcome
        else:
            result = outcome
            break
    try:
        body = call.encode(result)
    except RpcError as error:
        body = _encode_error(call, error)
    await context.finish(sse.encode_event(b"message", body))


async def _ask(
    call: McpCall, context: HttpRequestContext, requests: dict[str, JSONObject]
) -> McpCall | JSONObject | None:
    """Send the requests; return the call with its next run, or the result of the call.

    None if the client disconnected.
    """
    woken = asyncio.Event()
    listener = asking_runs.AnswerListener(call.run_id, woken)
    get_hub().listen(listener)
    try:
        for key, request in requests.items():
            request_id = asking_runs.request_id_of(call.run_id, key)
            frame = messages.encode_request(request_id, request["method"], request["params"])
            await context.write(sse.encode_event(b"message", frame))
        async with context.keep_alive(woken.set):
            while not context.must_end():
                await woken.wait()
                woken.clear()
                outcome = await in_thread(_read_outcome, call)
                if outcome is not None:
                    return outcome
                await context.write(sse.HEARTBEAT)
    finally:
        get_hub().remove_listener(listener)
    await in_thread(_delete_call_thread, call)
    return None


def _read_outcome(call: McpCall) -> McpCall | JSONObject | None:
    """The call with the run that has the answers, or its result; None while answers are missing."""
    run = asking_runs.read_asking(call.scope, call.run_id)
    if run is not None and run.next_run is not None:
        return replace(call, run_id=run.next_run)
    if run is not None and run.problem is None:
        return None
    _delete_call_thread(call)
    return failure(_GONE if run is None or run.problem is None else run.problem)


def _delete_call_thread(call: McpCall) -> None:
    if call.thread_id is not None:
        _delete_thread(call.scope, call.thread_id)


async def _wait(call: McpCall, context: HttpRequestContext, beat: Beat) -> JSONObject | None:
    """Wait for the end of the run; None if the client disconnected.

    A stateless client cancels a call by closing the response. A call that lasts long becomes a
    task, if it may. Raises `RpcError` if the client cannot answer what the graph asks.
    """
    token, step, logged = call.message.progress_token, 0, 0
    loop = asyncio.get_running_loop()
    task_at = loop.time() + tasks.TASK_AFTER_SECONDS
    async with (
        get_hub().open(call.run_id, BEGINNING, is_new=True) as reader,
        context.keep_alive(reader.wake),
    ):
        if call.may_be_task:
            loop.call_at(task_at, reader.wake)
        while not context.must_end():
            events = await reader.next()
            is_long = call.may_be_task and loop.time() >= task_at
            if not events and is_long and not context.must_end():
                return await in_thread(_as_task, call)
            if not events:
                await beat()
            for event in events:
                if event.name == END:
                    return await _end(call, event)
                if token is not None and event.name == b"updates":
                    step += 1
                    await context.write(_progress_frame(token, step, event))
                elif event.name == b"custom" and (log := _log_frame(call, event)):
                    logged += 1
                    if logged <= log_messages.MAX_MESSAGES:
                        await context.write(log)
    if call.message.is_stateless or context.refusal is not None:
        if call.thread_id is not None:
            await in_thread(_delete_call_thread, call)
        else:
            await in_thread(cancel_runs.cancel, call.scope, "interrupt", run_ids=[call.run_id])
    if context.refusal is not None:
        return failure(context.refusal.detail)
    return None


def _log_frame(call: McpCall, event: Event) -> bytes | None:
    """The log message of a custom event, if the client wants it."""
    if call.log_level is None:
        return None
    params = log_messages.to_message(loads(event.data), call.log_level)
    if params is None:
        return None
    frame = messages.encode_notification("notifications/message", params)
    return sse.encode_event(b"message", frame)


def _as_task(call: McpCall) -> JSONObject:
    """The result of a call that goes on as a task."""
    assert call.thread_id is not None  # noqa: S101
    task = tasks.read_run(call.scope, call.thread_id)
    task_id = TaskId(call.callee.tool.assistant_id, call.thread_id, call.capabilities)
    described = tasks.describe(task_id.sign(call.admission), task, "working")
    return {"resultType": "task", **described}


def _progress_frame(token: str | int, step: int, event: Event) -> bytes:
    params: JSONObject = {"progressToken": token, "progress": step}
    update = loads(event.data)
    if isinstance(update, dict) and update:
        params["message"] = ", ".join(update)
    return sse.encode_event(
        b"message", messages.encode_notification("notifications/progress", params)
    )


async def _end(call: McpCall, end: Event) -> JSONObject:
    """The result of the ended run; its thread is deleted unless the client must continue it."""
    is_asking = False
    try:
        result = await _to_result(call, end)
        is_asking = result.get("resultType") == INPUT_REQUIRED
        return result
    finally:
        if not is_asking and call.thread_id is not None:
            await in_thread(_delete_call_thread, call)


async def _to_result(call: McpCall, end: Event) -> JSONObject:
    """The result of an ended run; a failed run is a result too, which says why."""
    status = loads(end.data).get("status")
    if status in {"interrupted", "gone"}:
        return failure("The run was cancelled." if status == "interrupted" else _GONE)
    response = end.result
    if response is None:
        response = await in_thread(results.wait_result, call.scope, call.run_id)
    output = loads_exact(response)
    interrupts = output.get("__interrupt__") if isinstance(output, dict) else None
    if not interrupts:
        return _failure_of(output) or call.callee.to_result(output, call.callee.tool)
    if not call.message.is_stateless and not call.capabilities:
        values = [interrupt.get("value") for interrupt in interrupts]
        return failure(
            "The assistant asks for input, and the client does not offer elicitation. Run it on a"
            f" thread, or use A2A. It asks: {dumps_text(values)}"
        )
    selection = questions.select(to_questions(interrupts), call.capabilities)
    assert call.thread_id is not None  # noqa: S101 - every call whose client answers has one
    state = CallState(call.callee.state_name, call.thread_id, call.run_id)
    return _input_required(call.admission, state, selection)


def _input_required(
    admission: Admission, state: CallState, selection: list[Question]
) -> JSONObject:
    return {
        "resultType": INPUT_REQUIRED,
        "inputRequests": to_requests(selection),
        "requestState": state.sign(admission),
    }


def to_call_result(output: Any, tool: Tool, *, has_links: bool) -> JSONObject:
    """The result of a run that asks nothing, from what `wait` would return."""
    if failed := _failure_of(output):
        return failed
    schemas = tool.schemas
    if schemas.is_output_wrapped or not isinstance(output, dict):
        is_wrapped = isinstance(output, dict) and output.keys() == {"values"}
        output = {OUTPUT_FIELD: output["values"] if is_wrapped else output}
    if schemas.output_schema is not None:
        problem = find_problem(schemas.output_schema, output)
        if problem is not None:
            return failure(f"The output does not match the graph's schema: {problem}")
    return success(output, to_content(output, has_links=has_links))


def _failure_of(output: Any) -> JSONObject | None:
    """The result of a run that failed; None for any other."""
    error = output.get("__error__") if isinstance(output, dict) else None
    if not isinstance(error, dict):
        return None
    return failure(f"{error.get('error')}: {error.get('message')}")
