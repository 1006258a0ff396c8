"""The endpoint of the Model Context Protocol: assistants are tools, threads are resources.

Graphs that `mcp` in langgraph.json names are prompts and resources instead of tools.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.agent_server import prepared_sql
from apps.agent_server.endpoints import mcp_calls, mcp_subscriptions, mcp_tasks
from apps.agent_server.endpoints.endpoint import (
    EVENT_STREAM,
    Continuation,
    EndpointGroup,
    Result,
    json_response,
)
from apps.agent_server.endpoints.mcp_calls import respond, server_of
from apps.agent_server.mcp import (
    asking_runs,
    completions,
    log_messages,
    prompts,
    resources,
    sessions,
    tasks,
    tools,
)
from apps.agent_server.mcp.questions import offered_by, to_questions
from apps.agent_server.mcp.sessions import Session
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs, threads
from apps.agent_server.web.cors import allows_origin
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.core import errors
from apps.core.json import dumps_text
from apps.core.mcp import messages
from apps.core.mcp.messages import McpMessage, RpcError
from apps.core.mcp.server import (
    RESOURCE_METADATA,
    JsonRpcMessage,
    cache_hints,
    challenge,
    check_origin,
    list_cursor,
)
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.routes import agent_url, mcp_url
from apps.organizations.permissions import Permission

JSONObject = dict[str, Any]
SESSION_HEADER = "mcp-session-id"
_OPEN_RUNS = """
SELECT id FROM agent_server_agentrun
WHERE workspace_id = %s AND deployment_id = %s AND status IN ('pending', 'running')
  AND metadata @> %s::jsonb
"""

endpoints = EndpointGroup("mcp")


def _challenge(context: HttpRequestContext) -> str | None:
    """Tell a caller without a key where to get one, unless the agent authenticates callers."""
    _, route = routes.cached_route(context.path_params["slug"])
    if route is None or route.serving.auth is not None:
        return None
    document = f"{agent_url(route.slug)}{route.serving.mount_prefix}{RESOURCE_METADATA}"
    return challenge(document)


@endpoints.get(
    RESOURCE_METADATA,
    aliases=(f"{RESOURCE_METADATA}/mcp",),
    is_public=True,
    response=dict[str, Any],
)
def get_resource_metadata(context: HttpRequestContext) -> Response:
    """Describe `/mcp` as a protected resource (RFC 9728): where clients get a token.

    An agent with authentication of its own takes no token of the platform: 404.
    """
    route = routes.find_route(context.path_params["slug"])
    if route is None or route.serving.auth is not None:
        raise errors.NotFound
    return json_response(
        {
            "resource": mcp_url(route),
            "authorization_servers": [settings.API_BASE_URL],
            "bearer_methods_supported": ["header"],
        }
    )


@endpoints.post(
    "/mcp",
    permission=Permission.AGENTS_READ,
    runs_on_loop=True,
    challenge=_challenge,
    is_audience=True,
    raw_body_model=JsonRpcMessage,
    response=Any,
    other_statuses={202: "The notification is accepted."},
)
def handle_message(context: HttpRequestContext, raw_body: bytes) -> Result:
    """Handle a message of the Model Context Protocol: an assistant is a tool, a thread a resource.

    Streamable HTTP of the versions 2024-11-05 to 2025-11-25, and 2026-07-28 without a handshake.
    Errors are JSON-RPC errors. `tools/call` runs the assistant without a thread; with a progress
    token the response is an event stream. Calling a tool requires the permission to run the agent.
    """
    check_origin(context.headers, partial(_allows_origin, context))
    try:
        message = messages.read_message(context.headers, raw_body)
        return _handle(context, message)
    except RpcError as error:
        context.admission.user()  # also an invalid message needs an authenticated caller
        return Response(error.as_json(), error.status)


class NoSessionStream(errors.MethodNotAllowed):
    detail = "GET opens the event stream of a session. Other messages are sent with POST."
    headers = {"Allow": "POST"}


@endpoints.get(
    "/mcp",
    permission=Permission.AGENTS_READ,
    challenge=_challenge,
    is_audience=True,
    response=Any,
    media=EVENT_STREAM,
)
def open_session_stream(context: HttpRequestContext) -> Continuation:
    """Open the event stream of a session of the Model Context Protocol.

    It tells which of the resources changed that the session has subscribed to, within 5 seconds.
    """
    check_origin(context.headers, partial(_allows_origin, context))
    context.admission.user()
    session_id = context.headers.get(SESSION_HEADER)
    version = context.headers.get("mcp-protocol-version")
    if session_id is None or version == messages.STATELESS_VERSION:
        raise NoSessionStream
    if not messages.admits(context.headers.get("accept"), EVENT_STREAM):
        raise errors.NotAcceptable
    session = sessions.check_session_id(context.admission, session_id)
    return mcp_subscriptions.open_stream(context, session)


def _handle(context: HttpRequestContext, message: McpMessage) -> Result:
    try:
        message.check_headers(context.headers)
        session = _read_session(context, message)
        if not message.is_request:
            return _handle_notification(context, message, session)
        if message.method == "tools/list":
            return _list_tools(context, message)
        if message.method == "tools/call":
            return mcp_calls.call_tool(context, message, session)
        if message.method == "prompts/list":
            return _list_prompts(context, message)
        if message.method == "prompts/get":
            return mcp_calls.get_prompt(context, message, session)
        if message.method == "completion/complete":
            completion = completions.complete(context.admission, message.params)
            return respond(context, message, {"completion": completion})
        if message.method.startswith("resources/"):
            return _handle_resources(context, message, session)
        if message.method == "logging/setLevel" and not message.is_stateless:
            return _set_log_level(context, message, session)
        if message.is_stateless and message.method == mcp_subscriptions.LISTEN:
            return mcp_subscriptions.listen(context, message)
        if message.is_stateless and message.method in tasks.METHODS:
            return mcp_tasks.handle(context, message)
        context.admission.user()
        body = server_of(context).handle(message)
        if message.method != "initialize":
            return Response(body)
        capabilities = offered_by(message.params.get("capabilities"))
        session_id = sessions.create_session_id(context.admission, capabilities)
        return Response(body, headers=[(SESSION_HEADER.encode(), session_id.encode())])
    except RpcError as error:
        error.request_id = message.id
        raise


def _allows_origin(context: HttpRequestContext, origin: str) -> bool:
    cors = context.admission.route.serving.http.cors
    return cors is not None and allows_origin(cors, origin)


def _read_session(context: HttpRequestContext, message: McpMessage) -> Session | None:
    """The client's session. Sessions are optional; `initialize` begins a new one."""
    session_id = context.headers.get(SESSION_HEADER)
    if session_id is None or message.is_stateless or message.method == "initialize":
        return None
    return sessions.check_session_id(context.admission, session_id)


def _set_log_level(
    context: HttpRequestContext, message: McpMessage, session: Session | None
) -> Result:
    """Set the level of log messages for the calls of the session."""
    context.admission.user()
    level = log_messages.check_level(message.params.get("level"))
    if session is None:
        text = "A log level is set for a session: send `Mcp-Session-Id`."
        raise RpcError(messages.INVALID_REQUEST, text)

    async def store(context: HttpRequestContext) -> Response:
        await in_thread(log_messages.set_level, session, level)
        return respond(context, message, {})

    return store


def _handle_notification(
    context: HttpRequestContext, message: McpMessage, session: Session | None
) -> Response:
    """Accept a notification or a client's response.

    Cancels the run of a cancelled request; passes an answer to the call that asked for it.
    """
    context.admission.user()
    request_id = message.params.get("requestId")
    if message.method == "notifications/cancelled" and session and request_id is not None:
        context.admit(Permission.AGENTS_RUN)
        scope = context.admission.resolve_scope("threads", "update")
        key = dumps_text(asking_runs.metadata_of(session, request_id))
        rows = prepared_sql.fetch_rows(_OPEN_RUNS, [*scope.key, key])
        if rows:
            cancel_runs.cancel(scope, "interrupt", run_ids=[row[0] for row in rows])
    elif message.response is not None:
        context.admit(Permission.AGENTS_RUN)
        if session is None or message.id is None:
            raise _unknown_request(message.id)
        asking_runs.check_size(message.id, message.response)
        _take_answer(context, session, message.id, message.response.get("result"))
    return Response(status=202)


@transaction.atomic
def _take_answer(
    context: HttpRequestContext, session: Session, request_id: str | int, result: Any
) -> None:
    """Store an answer with the run that asks, and start a run with the last one.

    The first answer of a request counts. Raises `RpcError` if no run of the session asks for it.
    """
    run_id, key = asking_runs.parse_request_id(request_id) or (None, "")
    scope = Scope(context.admission.route)
    locked = asking_runs.lock_asking(scope, run_id, session) if run_id else None
    if locked is None:
        raise _unknown_request(request_id)
    run = locked.run
    if key in run.answers:
        return
    interrupts = asking_runs.pending(threads.get(scope, locked.thread_id).interrupts)
    questions = to_questions(interrupts)
    selection = [question for question in questions if question.capability in session.capabilities]
    if key not in {question.key for question in selection} or run.is_answered:
        raise _unknown_request(request_id)
    run.add_answers(scope, {key: result})
    if all(question.key in run.answers for question in selection):
        mcp_calls.resume(context, scope, locked, questions)


def _unknown_request(request_id: str | int | None) -> RpcError:
    text = "No call of the session waits for an answer to a request with this id."
    return RpcError(messages.INVALID_REQUEST, text, status=400, request_id=request_id)


# Resources


def _handle_resources(
    context: HttpRequestContext, message: McpMessage, session: Session | None
) -> Result:
    """List and read resources; `http.disable_threads` hides the threads here, too."""
    has_threads = not context.admission.route.serving.http.disable_threads
    result: JSONObject = {}
    if message.method == "resources/templates/list":
        scope = context.admission.resolve_scope("assistants", "search")
        named = resources.list_named(scope, are_templates=True)
        result["resourceTemplates"] = [*named, *([resources.TEMPLATE] if has_threads else [])]
    elif message.method == "resources/list":
        result |= _list_resources(context, message, has_threads=has_threads)
    elif message.method == "resources/read":
        uri = _read_uri(message)
        call = mcp_calls.read_resource(context, message, session, uri)
        if call is not None:
            return call
        # Without a prefix, no thread matches.
        content = resources.read(
            context.admission, uri if has_threads else "", is_stateless=message.is_stateless
        )
        result["contents"] = [content]
    elif not message.is_stateless and message.method in mcp_subscriptions.OF_SESSIONS:
        return mcp_subscriptions.change(context, message, session, _read_uri(message))
    else:
        return Response(server_of(context).handle(message))
    return respond(context, message, {**result, **cache_hints(message)})


def _list_resources(
    context: HttpRequestContext, message: McpMessage, *, has_threads: bool
) -> JSONObject:
    """A page of threads; the first one begins with the addresses of langgraph.json."""
    cursor = list_cursor(message)
    page: list[JSONObject] = []
    next_cursor = None
    if cursor is None:
        scope = context.admission.resolve_scope("assistants", "search")
        page = resources.list_named(scope, are_templates=False)
    if has_threads:
        threads_page, next_cursor = resources.list_page(context.admission, cursor)
        page += threads_page
    return {"resources": page, **({} if next_cursor is None else {"nextCursor": next_cursor})}


def _read_uri(message: McpMessage) -> str:
    uri = message.params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(messages.INVALID_PARAMS, "uri: must be a string.")
    return uri


# Tools and prompts


def _list_tools(context: HttpRequestContext, message: McpMessage) -> Response:
    scope = context.admission.resolve_scope("assistants", "search")
    page, next_cursor = tools.list_page(scope, list_cursor(message))
    return _respond_page(context, message, "tools", [tool.as_json() for tool in page], next_cursor)


def _list_prompts(context: HttpRequestContext, message: McpMessage) -> Response:
    scope = context.admission.resolve_scope("assistants", "search")
    page, next_cursor = prompts.list_page(scope, list_cursor(message))
    return _respond_page(context, message, "prompts", page, next_cursor)


def _respond_page(
    context: HttpRequestContext,
    message: McpMessage,
    name: str,
    page: list[JSONObject],
    next_cursor: str | None,
) -> Response:
    result: JSONObject = {name: page, **cache_hints(message)}
    if next_cursor is not None:
        result["nextCursor"] = next_cursor
    return respond(context, message, result)
