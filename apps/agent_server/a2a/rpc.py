"""JSON-RPC requests of A2A 1.0 and 0.3: checks, errors and versions.

Sources: the A2A specification, sections on the JSON-RPC binding and on errors. Errors of a request
travel with HTTP 200.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.core.errors import Invalid
from apps.core.json import dumps, read_json

JSONObject = dict[str, Any]
RequestId = str | int | None

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

_REASONS = {
    -32001: ("TASK_NOT_FOUND", "Task not found"),
    -32002: ("TASK_NOT_CANCELABLE", "Task cannot be canceled"),
    -32003: ("PUSH_NOTIFICATION_NOT_SUPPORTED", "Push notifications are not supported"),
    -32004: ("UNSUPPORTED_OPERATION", "This operation is not supported"),
    -32005: ("CONTENT_TYPE_NOT_SUPPORTED", "Content type is not supported"),
    -32009: ("VERSION_NOT_SUPPORTED", "This version of A2A is not supported"),
}
TASK_NOT_FOUND, TASK_NOT_CANCELABLE, PUSH_NOT_SUPPORTED = -32001, -32002, -32003
UNSUPPORTED_OPERATION, CONTENT_TYPE_NOT_SUPPORTED, VERSION_NOT_SUPPORTED = -32004, -32005, -32009


# Status of HTTP and name of gRPC, by the code of JSON-RPC (A2A 1.0, section 5.4).
_HTTP = {
    TASK_NOT_FOUND: (404, "NOT_FOUND"),
    TASK_NOT_CANCELABLE: (409, "FAILED_PRECONDITION"),
    PUSH_NOT_SUPPORTED: (400, "UNIMPLEMENTED"),
    UNSUPPORTED_OPERATION: (400, "UNIMPLEMENTED"),
    CONTENT_TYPE_NOT_SUPPORTED: (415, "INVALID_ARGUMENT"),
    VERSION_NOT_SUPPORTED: (400, "UNIMPLEMENTED"),
    METHOD_NOT_FOUND: (404, "NOT_FOUND"),
}
_INVALID_ARGUMENT = (400, "INVALID_ARGUMENT")


class A2AError(Exception):
    """A request that is answered with an error of JSON-RPC, or of HTTP."""

    def __init__(self, code: int, message: str = "") -> None:
        self.code = code
        self.message = message or _REASONS[code][1]
        super().__init__(self.message)

    @property
    def http_status(self) -> int:
        return _HTTP.get(self.code, _INVALID_ARGUMENT)[0]

    def as_json(self) -> JSONObject:
        error: JSONObject = {"code": self.code, "message": self.message}
        if self.code in _REASONS:
            error["data"] = _details(_REASONS[self.code][0])
        return error

    def as_http_json(self) -> JSONObject:
        status, name = _HTTP.get(self.code, _INVALID_ARGUMENT)
        reason = _REASONS.get(self.code, ("INVALID_PARAMS",))[0]
        error = {"code": status, "status": name, "message": self.message}
        return {"error": {**error, "details": _details(reason)}}


def _details(reason: str) -> list[JSONObject]:
    return [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
            "metadata": {},
        }
    ]


class Method(enum.Enum):
    """The methods by their names in A2A 1.0 and in 0.3."""

    SEND = ("SendMessage", "message/send")
    STREAM = ("SendStreamingMessage", "message/stream")
    GET = ("GetTask", "tasks/get")
    LIST = ("ListTasks", "tasks/list")
    CANCEL = ("CancelTask", "tasks/cancel")
    SUBSCRIBE = ("SubscribeToTask", "tasks/resubscribe")
    CREATE_PUSH = ("CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set")
    GET_PUSH = ("GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get")
    LIST_PUSH = ("ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list")
    DELETE_PUSH = ("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete")
    EXTENDED_CARD = ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard")

    @property
    def is_push(self) -> bool:
        return self in {Method.CREATE_PUSH, Method.GET_PUSH, Method.LIST_PUSH, Method.DELETE_PUSH}


_METHODS_1_0 = {method.value[0]: method for method in Method}
_METHODS_0_3 = {method.value[1]: method for method in Method}


@dataclass(frozen=True, slots=True)
class A2ARequest:
    """A checked request; the parameters are unchecked, with names in camelCase."""

    id: RequestId
    method: Method
    params: JSONObject
    is_legacy: bool
    """Whether the client speaks 0.3."""
    is_http: bool = False
    """Whether it came over HTTP+JSON, which has bare results and statuses."""

    def encode_result(self, result: Any) -> bytes:
        return dumps(
            result if self.is_http else {"jsonrpc": "2.0", "id": self.id, "result": result}
        )

    def encode_error(self, error: A2AError) -> bytes:
        return dumps(error.as_http_json()) if self.is_http else encode_error(self.id, error)


def encode_error(request_id: RequestId, error: A2AError) -> bytes:
    return dumps({"jsonrpc": "2.0", "id": request_id, "error": error.as_json()})


class A2ARequestRejected(Exception):
    """A request that could not be read; `id` is null if it is unknown."""

    def __init__(self, request_id: RequestId, error: A2AError) -> None:
        super().__init__(error.message)
        self.body = encode_error(request_id, error)


def read_request(headers: Mapping[str, str], query: Mapping[str, Any], raw: bytes) -> A2ARequest:
    """Parse and check a request, in the order that the specification gives.

    Raises `A2ARequestRejected`.
    """
    if not _is_json(headers):
        raise A2ARequestRejected(None, A2AError(CONTENT_TYPE_NOT_SUPPORTED))
    try:
        body = read_json(raw)
    except Invalid as error:
        raise A2ARequestRejected(None, A2AError(PARSE_ERROR, error.detail)) from None
    if not isinstance(body, dict):
        text = "The body must be a JSON-RPC request: batches are not supported."
        raise A2ARequestRejected(None, A2AError(INVALID_REQUEST, text))
    request_id, name = body.get("id"), body.get("method")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | None):
        text = "id: must be a string, an integer or null."
        raise A2ARequestRejected(None, A2AError(INVALID_REQUEST, text))
    if body.get("jsonrpc") != "2.0" or not isinstance(name, str):
        text = "The body must have `jsonrpc` 2.0 and a string `method`."
        raise A2ARequestRejected(request_id, A2AError(INVALID_REQUEST, text))
    try:
        method, is_legacy = _find_method(name, requested_version(headers, query))
        params = body.get("params")
        if params is None:
            params = {}
        if not isinstance(params, dict):
            raise A2AError(INVALID_PARAMS, "params: must be an object.")
    except A2AError as error:
        raise A2ARequestRejected(request_id, error) from None
    return A2ARequest(request_id, method, params, is_legacy)


def read_http_body(headers: Mapping[str, str], query: Mapping[str, Any], raw: bytes) -> JSONObject:
    """Return the fields of a request over HTTP+JSON, none without a body. Raises `A2AError`."""
    version = requested_version(headers, query)
    if version not in {"", "1.0"}:
        text = f"A2A {version} is not supported over HTTP+JSON; use 1.0."
        raise A2AError(VERSION_NOT_SUPPORTED, text)
    if not raw:
        return {}
    if not _is_json(headers):
        raise A2AError(CONTENT_TYPE_NOT_SUPPORTED)
    try:
        body = read_json(raw)
    except Invalid as error:
        raise A2AError(PARSE_ERROR, error.detail) from None
    if not isinstance(body, dict):
        raise A2AError(INVALID_REQUEST, "The body must be an object.")
    return body


def _is_json(headers: Mapping[str, str]) -> bool:
    media = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    return media in {"application/json", "application/a2a+json"}


def requested_version(headers: Mapping[str, str], query: Mapping[str, Any]) -> str:
    """The major and minor version that the request names; "" for none."""
    version = headers.get("a2a-version") or next(
        (values[-1] for name, values in query.items() if name.lower() == "a2a-version"), ""
    )
    return ".".join(version.strip().split(".")[:2])


def _find_method(name: str, version: str) -> tuple[Method, bool]:
    """The method, and whether its dialect is 0.3. Without a version, the name decides."""
    if name not in _METHODS_1_0 and name not in _METHODS_0_3:
        raise A2AError(METHOD_NOT_FOUND, f"Unknown method: {name}")
    if version not in {"", "0.3", "1.0"}:
        raise A2AError(VERSION_NOT_SUPPORTED, f"A2A {version} is not supported; use 1.0 or 0.3.")
    if version != "0.3" and name in _METHODS_1_0:
        return _METHODS_1_0[name], False
    if version != "1.0" and name in _METHODS_0_3:
        return _METHODS_0_3[name], True
    raise A2AError(METHOD_NOT_FOUND, f"A2A {version} has no method {name}.")
