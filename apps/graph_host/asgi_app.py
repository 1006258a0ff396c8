"""The project's own HTTP application (`http.app`), served over the worker's socket.

The worker passes on what a web process says: an exchange is opened with a scope, ASGI messages go
both ways, and each side says how much it has dealt with, so that neither sends faster than the
other takes. The application hears nothing of all that.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Iterator
from typing import Any

from .project import Project, ProjectError
from .rpc import Desk, Door
from .users import User
from .wire import Frame

WINDOW = 256 * 1024
PIECE = 64 * 1024
START_SECONDS = 45
# FastAPI makes these by itself; the Agent Server's own describe both.
_MADE_BY_FASTAPI = frozenset({"/docs", "/docs/oauth2-redirect", "/openapi.json"})


class Permissions:
    """What Starlette finds as `request.auth`."""

    def __init__(self, scopes: list[str]) -> None:
        self.scopes = scopes


class Application:
    """The ASGI application of a project."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._state: dict[str, Any] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._lifespan: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, project: Project) -> Application | None:
        """The application that the project names, if it names one."""
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
        """Its routes as `[path, kind, methods]`, None where it does not list them."""
        routes = getattr(self._app, "routes", None)
        return {
            "routes": [*_routes(routes, self._app)] if isinstance(routes, list) else None,
            "has_middleware": bool(getattr(self._app, "user_middleware", None)),
        }

    async def start(self) -> None:
        """Run the application's start-up; `ProjectError` when it fails."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lifespan = asyncio.create_task(self._live(started), name="lifespan")
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.shield(started)
        except TimeoutError:
            raise ProjectError(
                f"The start-up of `http.app` took longer than {START_SECONDS} s."
            ) from None

    async def _live(self, started: asyncio.Future[None]) -> None:
        is_asked = False
        for_ever = asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal is_asked
            if not is_asked:
                is_asked = True
                return {"type": "lifespan.startup"}
            await for_ever.wait()  # the host ends with its socket, at once
            return {"type": "lifespan.shutdown"}

        async def send(message: dict[str, Any]) -> None:
            if started.done():
                return
            if message["type"] == "lifespan.startup.complete":
                started.set_result(None)
            elif message["type"] == "lifespan.startup.failed":
                reason = message.get("message") or "it did not say why"
                started.set_exception(ProjectError(f"The start-up of `http.app` failed: {reason}"))

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self._state}
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001  (an application without a lifespan raises)
            if is_asked and not started.done() and not _is_unknown_scope(error):
                traceback.print_exception(error)
        if not started.done():
            started.set_result(None)

    # Exchanges

    def take(self, desk: Desk, frame: Frame) -> None:
        """A `web` or `more` frame of the worker."""
        kind, key, value = frame
        exchange = self._exchanges.get(key)
        if kind == "web" and value["type"] == "open" and exchange is None:
            exchange = Exchange(desk.door(key), value, self._state)
            self._exchanges[key] = exchange
            task = asyncio.create_task(exchange.run(self._app))
            exchange.task = task
            task.add_done_callback(lambda _: self._exchanges.pop(key, None))
        elif exchange is not None:
            exchange.hear(kind, value)


class Exchange:
    """One request or WebSocket, from the application's side."""

    def __init__(self, door: Door, opened: dict[str, Any], state: dict[str, Any]) -> None:
        self._door = door
        self._is_http = opened["kind"] == "http"
        self._scope = _scope(opened, state)
        self._heard: deque[dict[str, Any]] = deque()
        self._arrived = asyncio.Event()
        self._is_gone = False
        self._dealt_with = 0
        self._left = WINDOW
        self._more = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: Any) -> None:
        """Have the application answer; what it raises breaks the exchange off."""
        reason = None
        try:
            await app(self._scope, self._receive, self._send)
        except asyncio.CancelledError:
            reason = "cancelled"
        except Exception as error:  # noqa: BLE001  (whatever the author's code raises)
            if not self._is_gone:
                traceback.print_exception(error)
            reason = type(error).__name__
        self._door.tell("over", reason)

    def hear(self, kind: str, value: Any) -> None:
        if kind == "more":
            self._left += int(value)
            self._more.set()
            return
        if value["type"] == "gone":
            self._is_gone = True
            self._more.set()
        else:
            self._heard.append(value)
        self._arrived.set()

    async def _receive(self) -> dict[str, Any]:
        while not self._heard:
            if self._is_gone:
                if self._is_http:
                    return {"type": "http.disconnect"}
                return {"type": "websocket.disconnect", "code": 1006}
            self._arrived.clear()
            await self._arrived.wait()
        message = self._heard.popleft()
        self._dealt_with += size(message)
        if self._dealt_with >= PIECE // 2 or not self._heard:
            self._door.tell("more", self._dealt_with)
            self._dealt_with = 0
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        for piece in _pieces(message):
            while self._left <= 0 and not self._is_gone:
                self._more.clear()
                await self._more.wait()
            if self._is_gone:
                raise OSError("The client has left.")
            self._left -= size(piece)
            self._door.tell("web", piece)
        await self._door.give_way()


def size(message: dict[str, Any]) -> int:
    """Bytes of a message, as both ends count them."""
    return sum(len(message[name]) for name in ("body", "bytes", "text") if message.get(name)) + 64


def _pieces(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The message, a large body in parts."""
    message = _plain(message)
    body = message.get("body") or b""
    if message["type"] != "http.response.body" or len(body) <= PIECE:
        yield message
        return
    for at in range(0, len(body), PIECE):
        is_last = at + PIECE >= len(body)
        more = bool(message.get("more_body")) or not is_last
        yield {**message, "body": body[at : at + PIECE], "more_body": more}


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """The message in types that travel."""
    made = dict(message)
    if "headers" in made:
        made["headers"] = [[bytes(name), bytes(value)] for name, value in made["headers"]]
    if made.get("body"):
        made["body"] = bytes(made["body"])
    if made.get("bytes"):
        made["bytes"] = bytes(made["bytes"])
    return made


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
    made_by_framework = _MADE_BY_FASTAPI if hasattr(app, "openapi_url") else frozenset()
    for route in routes:
        path = getattr(route, "path", None)
        if not isinstance(path, str) or path in made_by_framework:
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
    """Whether an application merely does not know what a lifespan is."""
    return isinstance(error, AssertionError | NotImplementedError | KeyError | ValueError)
