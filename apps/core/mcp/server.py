"""What every MCP server of the platform does: handshake, discovery, and the check of origins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from pydantic import BaseModel

from apps.core import errors
from apps.core.json import dumps_text
from apps.core.mcp import messages
from apps.core.mcp.messages import JSONObject, McpMessage, RpcError

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
LIST_TTL_MS = 0
"""Lists may change at any time, so clients do not cache them."""


class JsonRpcMessage(BaseModel):
    """A JSON-RPC 2.0 request or notification, for the OpenAPI documents."""

    jsonrpc: Literal["2.0"]
    id: str | int | None = None
    method: str
    params: JSONObject = {}


class OriginNotAllowed(errors.Forbidden):
    code = "origin_not_allowed"
    detail = (
        "Requests of web pages of this origin are not allowed. The agent's langgraph.json can allow"
        " it with `http.cors.allow_origins`."
    )


class HostNotAllowed(errors.BadRequest):
    code, detail = "host_not_allowed", "This host is not an address of the platform."


@dataclass(frozen=True, slots=True)
class McpServer:
    """The name and the capabilities of a server, and the responses that follow from them."""

    name: str
    capabilities: JSONObject = field(default_factory=lambda: {"tools": {"listChanged": False}})
    instructions: str = ""
    extensions: tuple[str, ...] = ()
    """Of the protocol without a handshake."""

    @property
    def info(self) -> JSONObject:
        return {"name": self.name, "version": settings.SPECTACULAR_SETTINGS["VERSION"]}

    def encode(self, message: McpMessage, result: JSONObject) -> bytes:
        return messages.encode_result(message, result, self.info)

    def handle(self, message: McpMessage) -> bytes:
        """Respond to a request that depends on nothing but the server.

        Raises `RpcError` for other methods: the callers handle those that they offer first.
        """
        if message.is_stateless and message.method == "server/discover":
            return self._discover(message)
        if not message.is_stateless and message.method == "initialize":
            return self._initialize(message)
        if not message.is_stateless and message.method == "ping":
            return self.encode(message, {})
        status = 404 if message.is_stateless else 200
        text = f"Unknown method: {message.method}"
        raise RpcError(messages.METHOD_NOT_FOUND, text, status=status)

    def _discover(self, message: McpMessage) -> bytes:
        # What is not offered is left out.
        capabilities: JSONObject = {
            name: {flag: True for flag, is_offered in flags.items() if is_offered}
            for name, flags in self.capabilities.items()
        }
        if self.extensions:
            capabilities["extensions"] = {name: {} for name in self.extensions}
        result = {"supportedVersions": messages.SUPPORTED_VERSIONS, "capabilities": capabilities}
        return self.encode(message, {**result, **self._instructions(), **cache_hints(message)})

    def _initialize(self, message: McpMessage) -> bytes:
        requested = message.params.get("protocolVersion")
        if not isinstance(requested, str):
            text = "protocolVersion: must be a string."
            raise RpcError(messages.INVALID_PARAMS, text, status=400)
        is_supported = requested in messages.HANDSHAKE_VERSIONS
        result = {
            "protocolVersion": requested if is_supported else messages.HANDSHAKE_VERSIONS[0],
            "capabilities": self.capabilities,
            "serverInfo": self.info,
            **self._instructions(),
        }
        return messages.encode_result(message, result, {})

    def _instructions(self) -> JSONObject:
        return {"instructions": self.instructions} if self.instructions else {}


RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
"""The path of the document that tells where to get a token (RFC 9728)."""


def challenge(document: str) -> str:
    """The `WWW-Authenticate` of a response to a caller without a key; the URL of the document."""
    return f'Bearer resource_metadata="{document}"'


def cache_hints(message: McpMessage) -> JSONObject:
    """The fields of a list that tell a stateless client how long it may keep it."""
    return {"ttlMs": LIST_TTL_MS, "cacheScope": "private"} if message.is_stateless else {}


def check_origin(
    headers: Mapping[str, str], allows: Callable[[str], bool] = lambda _: False
) -> None:
    """Refuse hosts of others and pages of other origins, as DNS rebinding sends them.

    `allows` decides on origins that are not the platform's own.
    """
    host = headers.get("host", "").lower()
    if host and "*" not in settings.ALLOWED_HOSTS and not _is_own_host(host):
        raise HostNotAllowed
    origin = headers.get("origin")
    if origin is None:
        return
    authority = urlsplit(origin).netloc.lower()
    own = {urlsplit(settings.BASE_URL).netloc.lower(), *([host] if _is_own_host(host) else ())}
    if authority not in own and not allows(origin):
        raise OriginNotAllowed


def _is_own_host(host: str) -> bool:
    """Whether the platform is known by this host, whatever hosts it also accepts."""
    domain, _ = split_domain_port(host)
    names = [name for name in settings.ALLOWED_HOSTS if name != "*"]
    names += [*_LOOPBACK_HOSTS, urlsplit(settings.BASE_URL).hostname or ""]
    if settings.AGENT_DOMAIN:
        names.append(f".{settings.AGENT_DOMAIN.lower()}")
    return bool(domain) and validate_host(domain, names)


def tool_call(message: McpMessage) -> tuple[str, JSONObject]:
    """Return the name and the arguments of `tools/call`."""
    name, arguments = message.params.get("name"), message.params.get("arguments")
    if not isinstance(name, str):
        raise RpcError(messages.INVALID_PARAMS, "name: must be a string.")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise RpcError(messages.INVALID_PARAMS, "arguments: must be an object.")
    return name, arguments


def list_cursor(message: McpMessage) -> str | None:
    """Return the cursor of a list request."""
    cursor = message.params.get("cursor")
    if cursor is not None and not isinstance(cursor, str):
        raise RpcError(messages.INVALID_PARAMS, "cursor: must be a string.")
    return cursor


def failure(text: str) -> JSONObject:
    """The result of a tool call that failed, which the model reads."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def success(output: JSONObject, content: list[JSONObject] | None = None) -> JSONObject:
    """The result of a tool call: its output as an object, and as text or the given content."""
    if content is None:
        content = [{"type": "text", "text": dumps_text(output)}]
    return {"content": content, "structuredContent": output, "isError": False}
