"""The project's custom ASGI application (`http.app`), served over the worker's socket.

The worker relays messages of a web process: a session is opened with a scope, ASGI messages go both
ways, and each side acknowledges processed bytes, which limits how much the other side sends.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from typing import Any

from .failure_log import log_failure
from .project import AgentProject, ProjectError
from .rpc import RpcClient, RunChannel
from .users import User
from .wire import Frame

WINDOW_BYTES = 256 * 1024
MAX_MESSAGE_BYTES = 64 * 1024
STARTUP_TIMEOUT_SECONDS = 45
# FastAPI adds these routes; the Agent Server's own documentation covers the application too.
_FASTAPI_ROUTES = frozenset({"/docs", "/docs/oauth2-redirect", "/openapi.json"})


class Permissions:
    """The value of Starlette's `request.auth`."""

    def __init__(self, scopes: list[str]) -> None:
        self.scopes = scopes


class Application:
    """The ASGI application of a project."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._state: dict[str, Any] = {}
        self._sessions: dict[int, AsgiSession] = {}
        self._lifespan: asyncio.Task[None] | None = None

    @classmethod
    def load(cls, project: AgentProject) -> Application | None:
        """Load the application of the project's `http.app`, if it has one."""
        path = (project.config.get("http") or {}).get("app")
        if not path:
            return None
        app = project.load(path, "`http.app`")
        if not callable(app):
            raise ProjectError(
                f"`http.app` is a {type(app).__name__}; it must be an ASGI application, for "
                "example of Starlette or FastAPI."
            )
        return cls(app)

    def describe(self) -> dict[str, Any]:
        """Return `has_middleware`, `openapi`, and `routes` as `[path, kind, methods]`.

        `routes` and `openapi` are None if the application does not offer them.
        """
        routes = getattr(self._app, "routes", None)
        return {
            "routes": [*_routes(routes, self._app)] if isinstance(routes, list) else None,
            "has_middleware": bool(getattr(self._app, "user_middleware", None)),
            "openapi": self._describe_openapi(),
        }

    def _describe_openapi(self) -> dict[str, Any] | None:
        """Return the document that FastAPI and alike make of an application."""
        build = getattr(self._app, "openapi", None)
        if not callable(build):
            return None
        try:
            document: dict[str, Any] = json.loads(json.dumps(build()))
        except Exception as error:  # noqa: BLE001  (its routes are served without a description)
            log_failure(error, "the OpenAPI document of `http.app`")
            return None
        return document

    async def start(self) -> None:
        """Run the application's lifespan startup. Raises `ProjectError`."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lifespan = asyncio.create_task(self._run_lifespan(started), name="lifespan")
        try:
            async with asyncio.timeout(STARTUP_TIMEOUT_SECONDS):
                await asyncio.shield(started)
        except TimeoutError:
            raise ProjectError(
                f"The start-up of `http.app` took longer than {STARTUP_TIMEOUT_SECONDS} s."
            ) from None

    async def _run_lifespan(self, started: asyncio.Future[None]) -> None:
        is_startup_sent = False
        never = asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal is_startup_sent
            if not is_startup_sent:
                is_startup_sent = True
                return {"type": "lifespan.startup"}
            await never.wait()  # the host exits without a shutdown event
            return {"type": "lifespan.shutdown"}

        async def send(message: dict[str, Any]) -> None:
            if started.done():
                return
            if message["type"] == "lifespan.startup.complete":
                started.set_result(None)
            elif message["type"] == "lifespan.startup.failed":
                reason = message.get("message") or "no reason given"
                started.set_exception(ProjectError(f"The start-up of `http.app` failed: {reason}"))

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self._state}
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001  (an application without lifespan support raises)
            if is_startup_sent and not started.done() and not _is_unknown_scope(error):
                log_failure(error, "the start-up of `http.app`")
        if not started.done():
            started.set_result(None)

    # Sessions

    def on_frame(self, rpc: RpcClient, frame: Frame) -> None:
        """Handle a `web` or `more` frame of the worker."""
        kind, key, value = frame
        session = self._sessions.get(key)
        if kind == "web" and value["type"] == "open" and session is None:
            session = AsgiSession(rpc.channel(key), value, self._state)
            self._sessions[key] = session
            task = asyncio.create_task(session.run(self._app))
            session.task = task
            task.add_done_callback(lambda _: self._sessions.pop(key, None))
        elif session is not None:
            session.on_message(kind, value)


class AsgiSession:
    """One request or WebSocket, seen by the application."""

    def __init__(self, channel: RunChannel, opened: dict[str, Any], state: dict[str, Any]) -> None:
        self._channel = channel
        self._is_http = opened["kind"] == "http"
        self._scope = _scope(opened, state)
        self._messages: deque[dict[str, Any]] = deque()
        self._arrived = asyncio.Event()
        self._is_disconnected = False
        self._unacknowledged_bytes = 0
        self._send_window = WINDOW_BYTES
        self._window_changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: Any) -> None:
        """Run the application; an exception aborts the session."""
        reason = None
        try:
            await app(self._scope, self._receive, self._send)
        except asyncio.CancelledError:
            reason = "cancelled"
        except Exception as error:  # noqa: BLE001  (whatever the author's code raises)
            if not self._is_disconnected:
                log_failure(error, f"{self._scope['path']!r:.200} of `http.app`")
            reason = type(error).__name__
        self._channel.notify("over", reason)

    def on_message(self, kind: str, value: Any) -> None:
        if kind == "more":
            self._send_window += int(value)
            self._window_changed.set()
            return
        if value["type"] == "gone":
            self._is_disconnected = True
            self._window_changed.set()
        else:
            self._messages.append(value)
        self._arrived.set()

    async def _receive(self) -> dict[str, Any]:
        while not self._messages:
            if self._is_disconnected:
                if self._is_http:
                    return {"type": "http.disconnect"}
                return {"type": "websocket.disconnect", "code": 1006}
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._unacknowledged_bytes += size(message)
        if self._unacknowledged_bytes >= MAX_MESSAGE_BYTES // 2 or not self._messages:
            self._channel.notify("more", self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        for part in _split(message):
            while self._send_window <= 0 and not self._is_disconnected:
                self._window_changed.clear()
                await self._window_changed.wait()
            if self._is_disconnected:
                raise OSError("The client disconnected.")
            self._send_window -= size(part)
            self._channel.notify("web", part)
        await self._channel.drain()


def size(message: dict[str, Any]) -> int:
    """Return the bytes that flow control counts for a message, as the worker does."""
    return sum(len(message[name]) for name in ("body", "bytes", "text") if message.get(name)) + 64


def _split(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a message with a large body."""
    message = _serializable(message)
    body = message.get("body") or b""
    if message["type"] != "http.response.body" or len(body) <= MAX_MESSAGE_BYTES:
        yield message
        return
    for start in range(0, len(body), MAX_MESSAGE_BYTES):
        is_last = start + MAX_MESSAGE_BYTES >= len(body)
        more = bool(message.get("more_body")) or not is_last
        yield {**message, "body": body[start : start + MAX_MESSAGE_BYTES], "more_body": more}


def _serializable(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with types that msgpack can encode."""
    result = dict(message)
    if "headers" in result:
        result["headers"] = [[bytes(name), bytes(value)] for name, value in result["headers"]]
    if result.get("body"):
        result["body"] = bytes(result["body"])
    if result.get("bytes"):
        result["bytes"] = bytes(result["bytes"])
    return result


def _scope(opened: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    scope = {
        "type": opened["kind"],
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": opened["scheme"],
        "path": opened["path"],
        "raw_path": opened["raw_path"].encode("latin-1"),
        "root_path": opened["root_path"],
        "query_string": opened["query"].encode("latin-1"),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in opened["headers"]
        ],
        "server": tuple(opened["server"]),
        "client": tuple(opened["client"]) if opened.get("client") else None,
        "state": state.copy(),
    }
    if opened["kind"] == "http":
        scope["method"] = opened["method"]
    else:
        scope["subprotocols"] = opened.get("subprotocols") or []
    if opened.get("user"):
        scope["user"] = User(opened["user"])
        scope["auth"] = Permissions(list(opened["user"].get("permissions") or []))
    return scope


def _routes(routes: list[Any], app: Any) -> Iterator[list[Any]]:
    framework_routes = _FASTAPI_ROUTES if hasattr(app, "openapi_url") else frozenset()
    for route in routes:
        path = getattr(route, "path", None)
        if not isinstance(path, str) or path in framework_routes:
            continue
        methods = getattr(route, "methods", None)
        if hasattr(route, "endpoint") and methods is not None:
            yield [path, "http", sorted(methods)]
        elif hasattr(route, "endpoint"):
            kind = "websocket" if "WebSocket" in type(route).__name__ else "http"
            yield [path, kind, []]
        else:
            yield [path, "mount", []]


def _is_unknown_scope(error: Exception) -> bool:
    """Return whether the application only lacks lifespan support."""
    return isinstance(error, AssertionError | NotImplementedError | KeyError | ValueError)
