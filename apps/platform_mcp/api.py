"""Requests of tools to the platform's own API, within the process.

A tool reads and changes nothing itself: it requests the same routes as any client, with the
caller's key. So permissions, tenancy, validation, audit entries and rate limits are those of the
routes, and a tool can do nothing that its caller could not do without it.
"""

from __future__ import annotations

import io
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.urls import resolve

from apps.core import errors
from apps.core.http.middleware import as_app_error
from apps.core.json import dumps, loads
from apps.rate_limits import enforcement

MAX_RESPONSE_BYTES = 67_108_864
"""JSON of one inner response, which a tool holds in memory."""
_KEPT = (
    "HTTP_X_API_KEY",
    "HTTP_AUTHORIZATION",
    "HTTP_X_TENANT_ID",
    "HTTP_X_ORGANIZATION_ID",
    "HTTP_HOST",
    "HTTP_USER_AGENT",
    "REMOTE_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "wsgi.url_scheme",
)
"""What the inner request has of the outer one: who asks, and from where."""


class ToolError(Exception):
    """A call that failed; the text tells the model why."""


class NotFoundError(ToolError):
    """The API answered 404."""


class PlatformApi:
    """The API as the sender of an MCP request sees it."""

    def __init__(self, request: HttpRequest) -> None:
        self._environ = {name: request.META[name] for name in _KEPT if name in request.META}

    def get(self, path: str, **query: Any) -> Any:
        """Request a canonical path; parameters that are None are left out, lists repeat theirs.

        Raises `ToolError`.
        """
        values = {name: _to_text(value) for name, value in query.items() if value is not None}
        return self._send("GET", path, urlencode(values, doseq=True), b"")

    def post(self, path: str, body: Any) -> Any:
        return self._send("POST", path, "", dumps(_without_none(body)))

    def patch(self, path: str, body: Any) -> Any:
        return self._send("PATCH", path, "", dumps(_without_none(body)))

    def _send(self, method: str, path: str, query: str, body: bytes) -> Any:
        request = WSGIRequest(
            {
                **self._environ,
                "REQUEST_METHOD": method,
                "PATH_INFO": path.encode().decode("latin-1"),
                "QUERY_STRING": query,
                "CONTENT_TYPE": "application/json",
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_ACCEPT": "application/json",
                "wsgi.input": io.BytesIO(body),
            }
        )
        try:
            enforcement.check(
                method=method,
                path=path,
                headers=request.headers,
                remote=request.META.get("REMOTE_ADDR", ""),
                user=lambda: None,
            )
            match = resolve(path)
            response: Any = match.func(request, *match.args, **match.kwargs)
        except Exception as exception:
            error = as_app_error(exception)
            if error is None:
                raise
            raise _to_tool_error(error.status, error.detail) from None
        if not getattr(response, "is_rendered", True):
            response.render()
        content = _read_content(response)
        value = loads(content) if content else None
        if response.status_code >= 400:
            detail = value.get("detail") if isinstance(value, dict) else None
            raise _to_tool_error(response.status_code, str(detail or "The request failed."))
        return value


def _read_content(response: Any) -> bytes:
    """Return the body. A large one comes in pieces, of which no more are read than a tool holds."""
    if not response.streaming:
        return bytes(response.content)
    content = bytearray()
    for piece in response.streaming_content:
        content += piece
        if len(content) > MAX_RESPONSE_BYTES:
            size = MAX_RESPONSE_BYTES // 1_048_576
            raise ToolError(f"The contents have more than {size} MB: ask for fewer.")
    return bytes(content)


def _to_tool_error(status: int, detail: str) -> ToolError:
    kind = NotFoundError if status == errors.NotFound.status else ToolError
    return kind(detail)


def _to_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return dumps(value).decode()
    return value


def _without_none(value: Any) -> Any:
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def find_project(api: PlatformApi, name: str) -> UUID:
    """The id of the project with the name; `owner/project` is accepted as clients write it.

    Raises `ToolError`.
    """
    for candidate in dict.fromkeys((name, name.rpartition("/")[2])):
        rows = api.get("/sessions", name=candidate, limit=1)
        if rows:
            return UUID(rows[0]["id"])
    raise ToolError(f"There is no project {name!r}.")


def find_dataset(api: PlatformApi, dataset_id: UUID | None, name: str | None) -> UUID:
    """The id of the dataset with the name; an id is returned as it is. Raises `ToolError`."""
    if dataset_id is not None:
        return dataset_id
    if name is None:
        raise ToolError("Name the dataset, by id or by name.")
    rows = api.get("/datasets", name=name, limit=1)
    if not rows:
        raise ToolError(f"There is no dataset {name!r}.")
    return UUID(rows[0]["id"])


def find_deployment(api: PlatformApi, name_or_id: str) -> UUID:
    """The id of the deployment with the name or id. Raises `ToolError`."""
    try:
        return UUID(name_or_id)
    except ValueError:
        page = api.get("/v2/deployments", name=name_or_id, limit=1)
    if not page["resources"]:
        raise ToolError(f"There is no deployment {name_or_id!r}.")
    return UUID(page["resources"][0]["id"])
