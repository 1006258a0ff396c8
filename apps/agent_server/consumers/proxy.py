"""Requests for an agent's own routes: passed on to its code, and its answer passed back.

What comes back is somebody else's: on the platform's own origin a page of theirs must not become a
page of ours, so it is shut into a sandbox of the browser's, and its cookies stay below its address.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from weakref import WeakKeyDictionary

from django.conf import settings

from apps.agent_server.auth.custom_auth import AskFirst, without_secrets
from apps.agent_server.consumers.http_request import Exchange, Headers
from apps.agent_server.messaging.calls import CallFailed, acall
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.web.cors import ASGI_HEADERS
from apps.agent_server.web.tunnels import PIECE, Budget, Switchboard
from apps.api_keys import live_reauth
from apps.core import errors
from apps.core.json import dumps, loads
from apps.core.middleware import as_app_error
from apps.core.sync_bridge import in_thread
from apps.deployments.models import Revision
from apps.deployments.routes import Route
from apps.organizations.permissions import Permission

log = logging.getLogger(__name__)

Header = tuple[bytes, bytes]
MOST_AT_ONCE = 200
"""Exchanges with one deployment's own routes in one web process."""
_SANDBOX = b"sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"
# What speaks of the whole connection or the whole origin is not the agent's to say.
_NOT_THEIRS = frozenset(
    (
        *(b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"trailer"),
        *(b"clear-site-data", b"service-worker-allowed", b"strict-transport-security"),
    )
)


class Place(NamedTuple):
    """Where a request arrives: at which agent, which path below it, and what stands before."""

    route: Route
    below: str
    root: str


class OwnRoutesBusy(errors.Unavailable):
    code, detail = "own_routes_busy", "The agent's own routes are busy."


class BrokenOff(errors.AppError):
    """The agent's code ended without an answer."""

    status, code, detail = 502, "own_route_failed", "The agent's own route ended without an answer."


_open: Counter[UUID] = Counter()
_boards: WeakKeyDictionary[asyncio.AbstractEventLoop, Switchboard] = WeakKeyDictionary()


def board() -> Switchboard:
    """The tunnels of the running loop."""
    loop = asyncio.get_running_loop()
    found = _boards.get(loop)
    if found is None:
        found = _boards[loop] = Switchboard()
    return found


async def proxy(place: Place, scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Have the agent's own application answer the request or hold the WebSocket."""
    scope = {**scope, "url_route": {"args": (), "kwargs": {"slug": place.route.slug}}}
    if scope["type"] == "websocket":
        scope = {**scope, "method": "GET"}
    exchange = Exchange(scope, receive, send)
    deployment = place.route.deployment_id
    if _open[deployment] >= MOST_AT_ONCE:
        await _fail(exchange, send, OwnRoutesBusy())
        return
    _open[deployment] += 1
    try:
        user = await _user(place.route, exchange)
        await _Proxy(place, exchange, receive, send).run(user)
    except ConnectionError:
        return
    except Exception as exception:
        error = as_app_error(exception)
        if error is None:
            raise
        await _fail(exchange, send, error)
    finally:
        _open[deployment] -= 1
        if not _open[deployment]:
            del _open[deployment]


async def _user(route: Route, exchange: Exchange) -> dict[str, Any] | None:
    """Who it is, where the deployment wants its own routes to be told; raises who may not in."""
    if not route.serving.http.enable_custom_route_auth:
        return None

    def admitted() -> dict[str, Any] | None:
        return exchange.admit(Permission.AGENTS_RUN).user()

    while True:
        try:
            return await in_thread(admitted)
        except AskFirst:
            await exchange.visit().settle()


async def _fail(exchange: Exchange, send: Any, error: errors.AppError) -> None:
    if exchange.scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4000 + error.status})
    elif not exchange.is_started:
        await exchange.respond(dumps(error.as_json()), status=error.status)


class _Proxy:
    """One exchange, from the client's side."""

    def __init__(self, place: Place, exchange: Exchange, receive: Any, send: Any) -> None:
        self._place = place
        self._exchange = exchange
        self._receive = receive
        self._send = send
        self._is_http = exchange.scope["type"] == "http"
        self._heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._budget = Budget()
        self._is_started = False
        self._is_finished = False

    async def run(self, user: dict[str, Any] | None) -> None:
        """Return when the exchange is over, whoever ended it."""
        mine = board()
        try:
            await mine.listen()
        except RedisLost as error:
            raise CallFailed("RedisError", "The platform cannot reach its graphs now.") from error
        self._tunnel = mine.open(uuid4().bytes, "", self._hear, self._lost)
        pumping: asyncio.Task[None] | None = None
        try:
            await self._begin(mine.channel, user)
            pumping = asyncio.create_task(self._pump())
            with live_reauth.revalidating(self._exchange.proof, self._refuse):
                await self._relay()
        finally:
            if pumping is not None:
                pumping.cancel()
            self._tunnel.say("web", {"type": "gone"})
            self._tunnel.close()

    async def _begin(self, channel: str, user: dict[str, Any] | None) -> None:
        route = self._place.route
        revision = Revision(
            pk=route.active_revision_id,
            deployment_id=route.deployment_id,
            workspace_id=route.workspace_id,
        )
        asked = {
            "id": self._tunnel.id.hex(),
            "channel": channel,
            "scope": _described(self._place, self._exchange.scope, self._exchange.headers, user),
        }
        answer = loads(await acall(revision, "", "web", asked, seconds=60))
        self._tunnel.peer = answer["channel"]

    # From the client

    async def _pump(self) -> None:
        """Pass on what the client sends, as fast as the agent's code takes it."""
        received = 0
        while True:
            message = await self._receive()
            kind = message["type"]
            if kind == "http.disconnect":
                self._heard.put_nowait(("left", None))
                return
            for piece in _pieces(message):
                size = _size(piece)
                received += size
                if self._is_http and received > settings.MAX_BODY_BYTES:
                    self._heard.put_nowait(("too large", None))
                    return
                await self._budget.take(size)
                self._tunnel.say("web", piece)
            if kind == "websocket.disconnect":
                self._heard.put_nowait(("left", None))
                return

    # From the agent's code

    def _hear(self, kind: str, value: Any) -> None:
        if kind == "more":
            self._budget.give(int(value))
        else:
            self._heard.put_nowait((kind, value))

    def _refuse(self, error: errors.AppError) -> None:
        self._heard.put_nowait(("refused", error))

    def _lost(self) -> None:
        self._heard.put_nowait(("over", "The worker is gone."))

    async def _relay(self) -> None:
        """Pass back what the agent's code says, as fast as the client takes it."""
        while True:
            kind, value = await self._heard.get()
            if kind == "left":
                return
            if kind == "too large":
                raise errors.TooLarge(f"The request body exceeds {settings.MAX_BODY_BYTES} bytes.")
            if kind == "refused":
                await self._dismiss(value)
                return
            if kind == "over":
                await self._over()
                return
            size = _size(value)
            await self._pass_on(value)
            self._tunnel.say("more", size)
            if self._is_finished and self._is_http:
                return

    async def _pass_on(self, message: dict[str, Any]) -> None:
        kind = str(message["type"])
        if kind == "http.response.start" and not self._is_started:
            self._is_started = self._exchange.is_started = True
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers") or ()]
            message = {
                "type": kind,
                "status": int(message["status"]),
                "headers": [*_theirs(headers, self._place), self._exchange.request_id_header],
            }
        elif kind == "http.response.body" and self._is_started:
            self._is_finished = not message.get("more_body")
        elif kind == "websocket.accept" and not self._is_started:
            self._is_started = True
            message = {"type": kind, "subprotocol": message.get("subprotocol")}
        elif kind == "websocket.close":
            self._is_finished = True
        elif kind != "websocket.send" or not self._is_started:
            raise BrokenOff
        await self._send(message)

    async def _dismiss(self, error: errors.AppError) -> None:
        """Who asked may stay no longer; an answer that has begun breaks off."""
        if not self._is_http:
            await self._send({"type": "websocket.close", "code": 4000 + error.status})
        elif not self._is_started:
            raise error

    async def _over(self) -> None:
        """The agent's code says no more: well, if it had said everything."""
        if self._is_finished:
            return
        # Not why: that may be the agent's own words, and they are its author's to read.
        log.warning("An own route of %s ended before its answer.", self._place.route.slug)
        if not self._is_http:
            await self._send({"type": "websocket.close", "code": 1011})
        elif not self._is_started:
            raise BrokenOff
        # Else the answer breaks off, which says that it is not whole.


def _described(
    place: Place, scope: dict[str, Any], headers: Headers, user: dict[str, Any] | None
) -> dict[str, Any]:
    """The request as the agent's code sees it."""
    path = f"{place.root}{place.below}"
    given = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
    return {
        "kind": scope["type"],
        "method": scope["method"],
        "scheme": scope.get("scheme", "http"),
        "path": path,
        "raw_path": path.encode().decode("latin-1"),
        "root_path": place.root,
        "query": scope["query_string"].decode("latin-1"),
        "headers": [*without_secrets(given)],
        "server": list(scope.get("server") or ("localhost", 80)),
        "client": list(scope.get("client") or ()),
        "subprotocols": list(scope.get("subprotocols") or ()),
        "user": user,
    }


def _theirs(headers: Sequence[Header], place: Place) -> Iterable[Header]:
    """The headers that an agent's code may give an answer."""
    shares_origin = place.root.startswith("/agents/")
    for name, value in headers:
        lower = name.lower()
        if lower in _NOT_THEIRS:
            continue
        if lower == b"set-cookie" and shares_origin:
            if value.strip().partition(b"=")[0].decode("latin-1") not in _our_cookies():
                yield b"set-cookie", _below(value, place)
        else:
            yield lower, value
    if shares_origin:
        yield b"content-security-policy", _SANDBOX
    if not any(name.lower() == b"access-control-allow-origin" for name, _ in headers):
        yield from ASGI_HEADERS


def _our_cookies() -> set[str]:
    return {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME}


def _below(cookie: bytes, place: Place) -> bytes:
    """A cookie that goes back to this agent only."""
    first, *rest = cookie.split(b";")
    kept = [part for part in rest if part.strip().lower().partition(b"=")[0] not in _BOUNDS]
    path = f"Path=/agents/{place.route.slug}".encode()
    return b"; ".join([first.strip(), *(part.strip() for part in kept), path])


_BOUNDS = (b"path", b"domain")


def _pieces(message: dict[str, Any]) -> list[dict[str, Any]]:
    body = message.get("body") or b""
    if message["type"] != "http.request" or len(body) <= PIECE:
        return [message]
    parts = [body[at : at + PIECE] for at in range(0, len(body), PIECE)]
    more = bool(message.get("more_body"))
    return [
        {**message, "body": part, "more_body": more or number < len(parts)}
        for number, part in enumerate(parts, start=1)
    ]


def _size(message: dict[str, Any]) -> int:
    """Bytes of a message, as both ends count them."""
    parts = (message.get(name) for name in ("body", "bytes", "text"))
    return sum(len(part) for part in parts if part) + 64
