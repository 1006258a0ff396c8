"""The platform's MCP server: its API as tools (docs/adr/0036).

Its path is that of the hosted original, so the client's configuration differs in the host alone.
"""

from __future__ import annotations

from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET

from apps.accounts.client_sign_in import describe_resource, origin_of
from apps.api_keys.authentication import authenticate
from apps.core import errors, request_context
from apps.core.callers import Caller
from apps.core.http.middleware import as_app_error, error_headers
from apps.core.json import dumps
from apps.core.mcp import messages
from apps.core.mcp.messages import JSONObject, McpMessage, RpcError
from apps.core.mcp.server import (
    RESOURCE_METADATA,
    McpServer,
    cache_hints,
    challenge,
    check_origin,
    failure,
    list_cursor,
    success,
    tool_call,
)
from apps.core.request_context import PLATFORM_AUDIENCE
from apps.deployments import routes
from apps.deployments.routes import mcp_url
from apps.platform_mcp.api import PlatformApi, ToolError
from apps.platform_mcp.pages import bounded
from apps.platform_mcp.tools import TOOLS

SERVER = McpServer(
    "slipway",
    instructions=(
        "Traces, datasets, experiments, prompts and deployments of one workspace, which the API"
        " key selects. Results are pages of limited size: ask for further pages by number."
    ),
)


@csrf_exempt
def mcp(request: HttpRequest) -> HttpResponse:
    """Handle a message of the Model Context Protocol; sessions and streams are not offered."""
    try:
        if request.method != "POST":
            return _error_response(errors.MethodNotAllowed(), Allow="POST")
        return _handle_post(request)
    except (OperationalError, InterfaceError):
        unavailable = errors.Unavailable("The database is unavailable. Retry later.")
        return _error_response(unavailable, **{"Retry-After": "1"})
    except errors.Unauthenticated as error:
        document = f"{origin_of(request)}{RESOURCE_METADATA}/mcp"
        return _error_response(error, **{"WWW-Authenticate": challenge(document)})
    except Exception as exception:
        error_of_caller = as_app_error(exception)
        if error_of_caller is None:
            raise
        return _error_response(error_of_caller)


@never_cache
@require_GET
def resource_metadata(request: HttpRequest, slug: str = "") -> HttpResponse:
    """Describe this server, or that of an agent, as a protected resource (RFC 9728).

    An agent with authentication of its own takes no token of the platform.
    """
    if not slug:
        return describe_resource(request, f"{origin_of(request)}/mcp")
    route = routes.find_route(slug)
    if route is None or route.serving.auth is not None or route.serving.http.disable_mcp:
        raise errors.NotFound
    return describe_resource(request, mcp_url(route))


def _handle_post(request: HttpRequest) -> HttpResponse:
    check_origin(request.headers)
    if (context := request_context.current()) is not None:
        context.audience = PLATFORM_AUDIENCE
    caller = authenticate(request.headers)
    if caller is None:
        raise errors.Unauthenticated
    if not any(tool.permissions and tool.may_be_called_by(caller) for tool in TOOLS.values()):
        raise errors.Forbidden("The key has the permissions of no tool.")
    try:
        message = messages.read_message(request.headers, request.body)
        try:
            message.check_headers(request.headers)
            if not message.is_request:
                return HttpResponse(status=202)
            return _json_response(_respond(request, caller, message))
        except RpcError as error:
            error.request_id = message.id
            raise
    except RpcError as error:
        return _json_response(error.as_json(), error.status)


def _respond(request: HttpRequest, caller: Caller, message: McpMessage) -> bytes:
    if message.method == "tools/list":
        return SERVER.encode(message, _list_tools(caller, message))
    if message.method == "tools/call":
        return SERVER.encode(message, _call_tool(request, caller, message))
    return SERVER.handle(message)


def _list_tools(caller: Caller, message: McpMessage) -> JSONObject:
    """The tools that the caller may call, on one page."""
    if list_cursor(message) is not None:
        text = "cursor: there is one page, which has no cursor."
        raise RpcError(messages.INVALID_PARAMS, text)
    tools = [tool.as_json for tool in TOOLS.values() if tool.may_be_called_by(caller)]
    return {"tools": tools, **cache_hints(message)}


def _call_tool(request: HttpRequest, caller: Caller, message: McpMessage) -> JSONObject:
    name, arguments = tool_call(message)
    tool = TOOLS.get(name)
    if tool is None:
        raise RpcError(messages.INVALID_PARAMS, f"Unknown tool: {name:.100}")
    missing = [permission for permission in tool.permissions if not caller.may(permission)]
    if missing:
        return failure(f"Permission {', '.join(missing)} is required.")
    try:
        return success(bounded(tool.call(PlatformApi(request), arguments)))
    except ToolError as error:
        return failure(str(error))


def _json_response(body: bytes, status: int = 200) -> HttpResponse:
    return HttpResponse(body, content_type="application/json", status=status)


def _error_response(error: errors.AppError, **headers: Any) -> HttpResponse:
    response = _json_response(dumps(error.as_json()), error.status)
    for name, value in {**error_headers(error), **headers}.items():
        response[name] = value
    return response
