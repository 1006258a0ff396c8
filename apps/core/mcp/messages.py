"""JSON-RPC messages of MCP over streamable HTTP, in two forms.

With the versions up to 2025-11-25 a client begins with `initialize`. With 2026-07-28 each request
describes itself in `_meta` and in headers. `MCP-Protocol-Version` decides between them. Sources:
the MCP specification, "Transports" and "Versioning" of these versions.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from apps.core.errors import Invalid
from apps.core.json import dumps, read_json

JSONObject = dict[str, Any]
RequestId = str | int

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first."""
STATELESS_VERSION = "2026-07-28"
SUPPORTED_VERSIONS = (STATELESS_VERSION, *HANDSHAKE_VERSIONS)
LINKS_VERSION = "2025-06-18"
META = "io.modelcontextprotocol/"
_BASE64 = re.compile(r"=\?base64\?(.*)\?=")
_NAMES = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that the header `Mcp-Name` repeats, by method."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022


class RpcError(Exception):
    """A request that is answered with a JSON-RPC error and this HTTP status."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status: int = 200,
        data: JSONObject | None = None,
        request_id: RequestId | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.data = code, message, status, data
        self.request_id = request_id
        """The id of the request, if it is known."""

    def as_object(self) -> JSONObject:
        data = {} if self.data is None else {"data": self.data}
        return {"code": self.code, "message": self.message, **data}

    def as_json(self) -> bytes:
        return dumps({"jsonrpc": "2.0", "id": self.request_id, "error": self.as_object()})


@dataclass(frozen=True, slots=True)
class McpMessage:
    """A request, a notification (`id` None) or a client's response (`method` empty)."""

    id: RequestId | None
    method: str
    params: JSONObject
    version: str | None
    """The header of the request; clients of versions before 2025-06-18 send none."""
    response: JSONObject | None = None
    """`result` or `error` of a client's response."""

    @property
    def capabilities(self) -> JSONObject:
        """What a stateless client offers with this request."""
        capabilities = self._meta.get(META + "clientCapabilities")
        return capabilities if isinstance(capabilities, dict) else {}

    @property
    def log_level(self) -> Any:
        """The level of log messages that a stateless client wants with this request."""
        return self._meta.get(META + "logLevel") if self.is_stateless else None

    @property
    def is_stateless(self) -> bool:
        return self.version == STATELESS_VERSION

    @property
    def has_links(self) -> bool:
        """Whether results may have audio and links to resources."""
        return self.version is not None and self.version >= LINKS_VERSION

    @property
    def is_request(self) -> bool:
        return self.id is not None and bool(self.method)

    @property
    def progress_token(self) -> RequestId | None:
        """The token that the client wants with notifications of progress."""
        token = self._meta.get("progressToken")
        if token is not None and not _is_id(token):
            raise RpcError(INVALID_PARAMS, "_meta.progressToken: must be a string or an integer.")
        return token

    @property
    def _meta(self) -> JSONObject:
        meta = self.params.get("_meta", {})
        if not isinstance(meta, dict):
            raise RpcError(INVALID_PARAMS, "_meta: must be an object.")
        return meta

    def check_headers(self, headers: Mapping[str, str]) -> None:
        """Check that a stateless request describes itself, in the headers as in the body."""
        if not self.is_stateless or not self.is_request:
            return
        meta = self._meta
        for name in ("protocolVersion", "clientCapabilities"):
            if META + name not in meta:
                raise RpcError(INVALID_PARAMS, f"_meta: {META}{name} is required.", status=400)
        expected = {"MCP-Protocol-Version": meta[META + "protocolVersion"]}
        expected["Mcp-Method"] = self.method
        if self.method in _NAMES:
            expected["Mcp-Name"] = self.params.get(_NAMES[self.method])
        for name, value in expected.items():
            sent = headers.get(name, "").strip()
            if (decode_header(sent) if name == "Mcp-Name" else sent) != value:
                raise header_mismatch(name)


def read_message(headers: Mapping[str, str], raw: bytes) -> McpMessage:
    """Parse the message of a POST. Raises `RpcError`; its status is 400, 406 or 415."""
    if (headers.get("content-type") or "application/json").partition(";")[0].strip().lower() != (
        "application/json"
    ):
        raise RpcError(INVALID_REQUEST, "Content-Type: must be application/json.", status=415)
    accept = headers.get("accept")
    if not (admits(accept, "application/json") and admits(accept, "text/event-stream")):
        text = "Accept: must admit application/json and text/event-stream."
        raise RpcError(INVALID_REQUEST, text, status=406)
    try:
        body = read_json(raw)
    except Invalid as error:
        raise RpcError(PARSE_ERROR, error.detail, status=400) from None
    message = _to_message(body, headers.get("mcp-protocol-version"))
    version = headers.get("mcp-protocol-version")
    if version is not None and version not in SUPPORTED_VERSIONS:
        raise _unsupported_version(version, message.id)
    return message


def _to_message(body: Any, version: str | None) -> McpMessage:
    if isinstance(body, list):
        raise RpcError(INVALID_REQUEST, "Batches are not supported.", status=400)
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        text = "The body must be a JSON-RPC 2.0 message: an object with `jsonrpc` 2.0."
        raise RpcError(INVALID_REQUEST, text, status=400)
    request_id, method = body.get("id"), body.get("method")
    if request_id is not None and not _is_id(request_id):
        raise RpcError(INVALID_REQUEST, "id: must be a string or an integer.", status=400)
    is_response = method is None and ("result" in body or "error" in body)
    if not is_response and (not isinstance(method, str) or not method):
        text = "method: must be a string that is not empty."
        raise RpcError(INVALID_REQUEST, text, status=400, request_id=request_id)
    params = body.get("params")
    if params is not None and not isinstance(params, dict):
        text = "params: must be an object."
        raise RpcError(INVALID_PARAMS, text, status=400, request_id=request_id)
    response = {name: body[name] for name in ("result", "error") if name in body}
    return McpMessage(
        request_id,
        method or "",
        params or {},
        version,
        response if is_response else None,
    )


def admits(accept: str | None, media: str) -> bool:
    """Whether an `Accept` header admits the media type; an absent one admits any."""
    if not accept:
        return True
    ranges = {media, f"{media.partition('/')[0]}/*", "*/*"}
    return any(part.partition(";")[0].strip().lower() in ranges for part in accept.split(","))


def offered(capabilities: Any, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that the capabilities of a client have."""
    if not isinstance(capabilities, dict):
        return frozenset()
    return frozenset(name for name in names if isinstance(capabilities.get(name), dict))


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _unsupported_version(version: Any, request_id: RequestId | None = None) -> RpcError:
    data = {"supported": SUPPORTED_VERSIONS, "requested": version}
    text = "Unsupported protocol version."
    return RpcError(UNSUPPORTED_VERSION, text, status=400, data=data, request_id=request_id)


def decode_header(value: str) -> str | None:
    """The text of a header that repeats a parameter, which may be in base64; None if it is broken.

    Spaces around a value are no part of it.
    """
    encoded = _BASE64.fullmatch(value.strip())
    if encoded is None:
        return value.strip()
    try:
        return b64decode(encoded[1], validate=True).decode()
    except ValueError:
        return None


def header_mismatch(name: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"{name}: does not match the body.", status=400)


def encode_result(message: McpMessage, result: JSONObject, server: JSONObject) -> bytes:
    """Encode the response; a stateless one also has its type, and the server that it is from."""
    if message.is_stateless:
        meta = {META + "serverInfo": server}
        result = {"resultType": "complete", **result, "_meta": meta}
    return dumps({"jsonrpc": "2.0", "id": message.id, "result": result})


def encode_request(request_id: RequestId, method: str, params: JSONObject) -> bytes:
    """Encode a request of the server to its client."""
    return dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def encode_notification(method: str, params: JSONObject) -> bytes:
    return dumps({"jsonrpc": "2.0", "method": method, "params": params})
