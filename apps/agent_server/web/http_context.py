"""An HTTP request to an agent and its response, on ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qs
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.utils.module_loading import import_string

from apps.agent_server.auth.access import Admission, admit
from apps.agent_server.auth.custom_auth import AuthExchange, describe_request
from apps.agent_server.errors import InvalidId
from apps.agent_server.web import traffic
from apps.agent_server.web.cors import ASGI_HEADERS
from apps.api_keys import live_reauth
from apps.api_keys.authentication import api_key_from_headers, enforce_csrf
from apps.core import errors
from apps.core.callers import Caller
from apps.core.http.body_memory import Reservation
from apps.core.http.body_reader import AsgiScope, Authenticate, Receive, read_body
from apps.core.http.wsgi_bridge import Send, build_environ
from apps.core.ids import uuid7
from apps.core.json import dumps
from apps.core.observability import metrics
from apps.core.sync_bridge import in_thread, run_on_loop
from apps.organizations.models import User

P = ParamSpec("P")
T = TypeVar("T")

Header = tuple[bytes, bytes]
JSON = (b"content-type", b"application/json")
HEARTBEAT_SECONDS = 5.0
MAX_LOOP_BODY_BYTES = 32 * 1024
"""Bodies up to this size are parsed on the event loop, within a millisecond."""
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}")


class Headers(Mapping[str, str]):
    """The request's headers; names are case-insensitive."""

    def __init__(self, raw: Iterable[Header]) -> None:
        self._by_name = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}

    def __getitem__(self, name: str) -> str:
        return self._by_name[name.lower()]

    def __iter__(self) -> Any:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response, JSON by default; `media` None sends no content type and no length."""

    body: bytes = b""
    status: int = 200
    headers: Sequence[Header] = ()
    media: bytes | None = b"application/json"


NO_CONTENT = Response(status=204, media=None)


class HttpRequestContext:
    """A request, its caller, and the means to respond."""

    admission: Admission
    """Set by `admit`."""

    def __init__(
        self,
        scope: AsgiScope,
        receive: Receive,
        send: Send,
        path_params: dict[str, str],
        route: str = metrics.NO_ROUTE,
    ) -> None:
        """`path_params` includes the agent's `slug`; `route` is the route's name in metrics."""
        self.scope = scope
        self.headers = Headers(scope["headers"])
        self.path_params = path_params
        self.body = b""
        """Set by `read_body`."""
        self.is_started = False
        self.credential: live_reauth.Credential | None = None
        """The key or session of the caller; None if the agent's own code authenticates them."""
        self.refusal: errors.AppError | None = None
        """The error if the caller lost access during the response; set in `keep_alive`."""
        self._is_disconnected = False
        self._route = route
        self._receive = receive
        self._send = send
        self._started_at = time.perf_counter()
        self._auth_exchange: AuthExchange | None = None
        self._session: tuple[str, User] | None = None
        header = self.headers.get("x-request-id", "")
        self.request_id = header if _REQUEST_ID.fullmatch(header) else str(uuid7())

    # The request

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """The values of each name in the query string."""
        return parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)

    async def read_body(self, reservation: Reservation, authenticate: Authenticate) -> None:
        """Read the body; for the arguments and errors see `body_reader.read_body`."""
        body = await read_body(self.scope, self._receive, reservation, authenticate)
        self.body = body.getvalue()

    async def run_service(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a service that only executes prepared statements, on the loop if the body is small.

        If it needs the ORM after all, it is restarted in a thread (`sync_bridge.run_on_loop`).
        """
        is_quick = len(self.body) <= MAX_LOOP_BODY_BYTES
        return await (run_on_loop if is_quick else in_thread)(function, *args, **kwargs)

    def admit(self, permission: str) -> Admission:
        """Admit the caller or raise. May query the database: call it in a thread."""
        slug = self.path_params["slug"]
        self.admission = admit(
            slug, permission, self.headers, self._session_user, self.auth_exchange
        )
        self.credential = self._credential(self.admission.caller, permission)
        return self.admission

    def auth_exchange(self) -> AuthExchange:
        """The request's exchange with the agent's own authentication."""
        if self._auth_exchange is None:
            self._auth_exchange = AuthExchange(
                describe_request(
                    method=self.scope["method"],
                    path=self.scope["path"],
                    query=self.scope["query_string"].decode("latin-1"),
                    headers=self.headers.items(),
                    path_params=self.path_params,
                )
            )
        return self._auth_exchange

    def path_uuid(
        self, name: str, invalid_id: Callable[[str], errors.AppError] = InvalidId
    ) -> UUID:
        """A path parameter such as `thread_id`; raises `invalid_id("thread")` for a non-UUID."""
        try:
            return UUID(self.path_params[name])
        except ValueError:
            raise invalid_id(name.removesuffix("_id")) from None

    def _session_user(self) -> User | None:
        """The user of the browser session; requires a CSRF token like any page."""
        request: HttpRequest = WSGIRequest(build_environ(self.scope, io.BytesIO()))
        cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        if not cookie:
            return None
        engine = import_string(f"{settings.SESSION_ENGINE}.SessionStore")
        request.session = engine(cookie)
        user = get_user(request)
        if not isinstance(user, User) or not user.is_active:
            return None
        enforce_csrf(request)
        self._session = cookie, user
        return user

    def _credential(self, caller: Caller | None, permission: str) -> live_reauth.Credential | None:
        if caller is None:
            return None
        secret = api_key_from_headers(self.headers)
        if secret is not None:
            return live_reauth.key_credential(secret, caller.workspace_id, permission)
        assert self._session is not None  # noqa: S101
        return live_reauth.session_credential(*self._session, caller.workspace_id, permission)

    # The response

    async def start(self, *headers: Header, status: int = 200) -> None:
        self.is_started = True
        traffic.count_response(self.path_params["slug"], status)
        seconds = time.perf_counter() - self._started_at
        metrics.observe_request(self.scope["method"], self._route, status, seconds)
        all_headers = [*headers, *ASGI_HEADERS, self.request_id_header]
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})

    @property
    def request_id_header(self) -> Header:
        return (b"x-request-id", self.request_id.encode())

    async def write(self, chunk: bytes) -> None:
        await self._send_to_client({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        await self._send_to_client({"type": "http.response.body", "body": chunk})

    async def send(self, response: Response) -> None:
        headers = response.headers
        if response.media is not None:
            length = (b"content-length", b"%d" % len(response.body))
            headers = [(b"content-type", response.media), length, *headers]
        await self.start(*headers, status=response.status)
        await self.finish(response.body)

    async def send_error(self, error: errors.AppError) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        await self.send(Response(dumps(error.as_json()), error.status, headers))

    def is_disconnected(self) -> bool:
        """Whether the client has disconnected; noticed within `keep_alive`."""
        return self._is_disconnected

    def must_end(self) -> bool:
        """Whether the client has disconnected or lost access."""
        return self._is_disconnected or self.refusal is not None

    async def _send_to_client(self, message: dict[str, Any]) -> None:
        try:
            await self._send(message)
        except OSError:
            self._is_disconnected = True

    @contextlib.asynccontextmanager
    async def keep_alive(self, wake: Callable[[], None]) -> AsyncIterator[None]:
        """Call `wake` every `HEARTBEAT_SECONDS`, and when the context `must_end`."""
        loop = asyncio.get_running_loop()
        next_at = loop.time() + HEARTBEAT_SECONDS
        timer: asyncio.TimerHandle

        def beat() -> None:
            nonlocal next_at, timer
            next_at += HEARTBEAT_SECONDS
            timer = loop.call_at(next_at, beat)
            wake()

        async def watch() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self._is_disconnected = True
            wake()

        def refuse(error: errors.AppError) -> None:
            self.refusal = error
            wake()

        timer = loop.call_at(next_at, beat)
        watching = loop.create_task(watch())
        try:
            with live_reauth.revalidating(self.credential, refuse):
                yield
        finally:
            timer.cancel()
            watching.cancel()
