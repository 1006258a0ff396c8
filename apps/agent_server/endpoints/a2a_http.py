"""The HTTP+JSON binding of A2A 1.0: the methods of JSON-RPC as routes below the same address."""

from __future__ import annotations

from typing import Any

from apps.agent_server.a2a import rpc
from apps.agent_server.a2a.rpc import A2AError, A2ARequest, Method
from apps.agent_server.endpoints.a2a import handle_checked
from apps.agent_server.endpoints.endpoint import EndpointGroup, Result
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.organizations.permissions import Permission

_BASE = "/a2a/{assistant_id}"
_TASK = f"{_BASE}/tasks/{{task_id}}"
_CONFIGS = f"{_TASK}/pushNotificationConfigs"
_OPTIONS: dict[str, Any] = {
    "permission": Permission.AGENTS_READ,
    "runs_on_loop": True,
    "response": dict[str, Any],
    "status": 200,
}
_NUMBERS = ("historyLength", "pageSize")
_FLAGS = {"true": True, "false": False}

endpoints = EndpointGroup("a2a")


@endpoints.post(f"{_BASE}/message:send", raw_body_model=dict[str, Any], **_OPTIONS)
def send_message(context: HttpRequestContext, assistant_id: str, raw_body: bytes) -> Result:
    """Send a message; the response has the task at its end, unless it shall return at once."""
    return _handle(context, assistant_id, Method.SEND, raw_body)


@endpoints.post(f"{_BASE}/message:stream", raw_body_model=dict[str, Any], **_OPTIONS)
def stream_message(context: HttpRequestContext, assistant_id: str, raw_body: bytes) -> Result:
    """Send a message; the response is the event stream of its task."""
    return _handle(context, assistant_id, Method.STREAM, raw_body)


@endpoints.get(f"{_BASE}/tasks", **_OPTIONS)
def list_tasks(context: HttpRequestContext, assistant_id: str) -> Result:
    """List tasks, newest first."""
    return _handle(context, assistant_id, Method.LIST)


@endpoints.get(_TASK, **_OPTIONS)
def get_task(context: HttpRequestContext, assistant_id: str, task_id: str) -> Result:
    """Get a task; with `:subscribe` after its id, the event stream of it."""
    id_, _, verb = task_id.partition(":")
    method = {"": Method.GET, "subscribe": Method.SUBSCRIBE}.get(verb)
    return _handle(context, assistant_id, method, id=id_)


@endpoints.post(_TASK, raw_body_model=dict[str, Any], **_OPTIONS)
def change_task(
    context: HttpRequestContext, assistant_id: str, task_id: str, raw_body: bytes
) -> Result:
    """Cancel a task (`:cancel` after its id), or stream its events (`:subscribe`)."""
    id_, _, verb = task_id.partition(":")
    method = {"cancel": Method.CANCEL, "subscribe": Method.SUBSCRIBE}.get(verb)
    return _handle(context, assistant_id, method, raw_body, id=id_)


@endpoints.post(_CONFIGS, raw_body_model=dict[str, Any], **_OPTIONS)
def create_push_config(
    context: HttpRequestContext, assistant_id: str, task_id: str, raw_body: bytes
) -> Result:
    """Set an address that is notified of the task."""
    return _handle(context, assistant_id, Method.CREATE_PUSH, raw_body, taskId=task_id)


@endpoints.get(_CONFIGS, **_OPTIONS)
def list_push_configs(context: HttpRequestContext, assistant_id: str, task_id: str) -> Result:
    """List the addresses that are notified of the task."""
    return _handle(context, assistant_id, Method.LIST_PUSH, taskId=task_id)


@endpoints.get(f"{_CONFIGS}/{{config_id}}", **_OPTIONS)
def get_push_config(
    context: HttpRequestContext, assistant_id: str, task_id: str, config_id: str
) -> Result:
    """Get an address that is notified of the task."""
    return _handle(context, assistant_id, Method.GET_PUSH, taskId=task_id, id=config_id)


@endpoints.delete(f"{_CONFIGS}/{{config_id}}", **_OPTIONS)
def delete_push_config(
    context: HttpRequestContext, assistant_id: str, task_id: str, config_id: str
) -> Result:
    """Delete an address that is notified of the task."""
    return _handle(context, assistant_id, Method.DELETE_PUSH, taskId=task_id, id=config_id)


@endpoints.get(f"{_BASE}/extendedAgentCard", **_OPTIONS)
def get_extended_card(context: HttpRequestContext, assistant_id: str) -> Result:
    """There is no extended card: 400."""
    return _handle(context, assistant_id, Method.EXTENDED_CARD)


def _handle(
    context: HttpRequestContext,
    assistant_id: str,
    method: Method | None,
    raw_body: bytes = b"",
    **path: str,
) -> Result:
    """Handle the method with the fields of the body, the query and the path."""
    request = A2ARequest(None, method or Method.GET, {}, is_legacy=False, is_http=True)
    try:
        if method is None:
            raise A2AError(rpc.METHOD_NOT_FOUND, "There is no such operation on a task.")
        body = rpc.read_http_body(context.headers, context.query, raw_body)
        request = A2ARequest(
            None, method, {**_query_fields(context), **body, **path}, is_legacy=False, is_http=True
        )
    except A2AError as error:
        context.admission.user()
        return Response(request.encode_error(error), error.http_status)
    return handle_checked(context, assistant_id, request)


def _query_fields(context: HttpRequestContext) -> dict[str, Any]:
    """The parameters of the query string, of the types that they have in JSON."""
    fields: dict[str, Any] = {name: values[-1] for name, values in context.query.items()}
    for name in _NUMBERS:
        if fields.get(name, "").removeprefix("-").isdecimal() and len(fields[name]) < 12:
            fields[name] = int(fields[name])
    if "includeArtifacts" in fields:
        fields["includeArtifacts"] = _FLAGS.get(fields["includeArtifacts"], "")
    return fields
