"""One HTTP request and its answer on ASGI, for what streams or waits.

Less than Channels' HTTP consumer does: no channel layer, no dispatch, and it notices a client that
leaves while the answer is being made.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, ParamSpec, TypeVar
from urllib.parse import parse_qs
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.utils.module_loading import import_string

from apps.agent_server.auth.access import Admission, admit
from apps.agent_server.auth.custom_auth import AuthExchange, AuthPending, describe_request
from apps.agent_server.errors import InvalidId
from apps.agent_server.web import query, traffic
from apps.agent_server.web.cors import ASGI_HEADERS
from apps.api_keys import live_reauth
from apps.api_keys.authentication import api_key_from_headers, enforce_csrf
from apps.core import errors
from apps.core.callers import Caller
from apps.core.http.middleware import as_app_error
from apps.core.http.wsgi_bridge import Receive, Scope, Send, build_environ, read_body
from apps.core.ids import uuid7
from apps.core.json import dumps
from apps.core.observability import metrics
from apps.core.request_context import RequestContext, enter
from apps.core.sync_bridge import in_thread, run_on_loop
from apps.organizations.models import User

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

Header = tuple[bytes, bytes]
JSON = (b"content-type", b"application/json")
HEARTBEAT_SECONDS = 5.0
MAX_LOOP_BODY_BYTES = 32 * 1024
"""A body that is checked within a millisecond."""
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}")


class Headers(Mapping[str, str]):
    """The request's headers, found without regard to case."""

    def __init__(self, raw: Iterable[Header]) -> None:
        self._by_name = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}

    def __getitem__(self, name: str) -> str:
        return self._by_name[name.lower()]

    def __iter__(self) -> Any:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


class HttpRequestContext:
    """A request, and the ways to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.headers = Headers(scope["headers"])
        self.kwargs: dict[str, str] = scope["url_route"]["kwargs"]
        self.query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        self.is_started = False
        self.proof: live_reauth.Credential | None = None
        """By what the platform knows the caller; None for whom the agent's own code lets in."""
        self.refusal: errors.AppError | None = None
        """Why the caller may stay no longer, which `kept_alive` notices."""
        self._is_disconnected = False
        self._receive = receive
        self._send = send
        self._body: bytes | None = None
        self._began = time.perf_counter()
        self._auth_exchange: AuthExchange | None = None
        self._person: tuple[str, User] | None = None
        given = self.headers.get("x-request-id", "")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else str(uuid7())

    # The request

    async def body(self) -> bytes:
        """The whole body; raises `TooLarge`, and `ConnectionError` when the client left."""
        if self._body is None:
            self._body = (await read_body(self.scope, self._receive)).getvalue()
        return self._body

    async def run_service(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a service that only executes prepared statements: on the loop while that is quick.

        One that turns out to need the ORM goes to a thread (see `sync_bridge.run_on_loop`).
        """
        is_quick = self._body is None or len(self._body) <= MAX_LOOP_BODY_BYTES
        return await (run_on_loop if is_quick else in_thread)(function, *args, **kwargs)

    def admit(self, permission: str) -> Admission:
        """Let the caller in or raise. Asks the database, so it is for a thread."""
        slug = self.kwargs["slug"]
        admission = admit(slug, permission, self.headers, self._member, self.auth_exchange)
        self.proof = self._proof(admission.caller, permission)
        return admission

    def auth_exchange(self) -> AuthExchange:
        """This request, as an agent with authentication of its own is told of it."""
        if self._auth_exchange is None:
            self._auth_exchange = AuthExchange(
                describe_request(
                    method=self.scope["method"],
                    path=self.scope["path"],
                    query=self.scope["query_string"].decode("latin-1"),
                    headers=self.headers.items(),
                    path_params=self.kwargs,
                )
            )
        return self._auth_exchange

    def path_uuid(self, name: str, refusal: type[errors.AppError] = InvalidId) -> UUID:
        """An id of the path: `thread_id`, `run_id`, ..."""
        try:
            return UUID(self.kwargs[name])
        except ValueError:
            raise refusal(name.removesuffix("_id")) from None

    def query_flag(self, name: str) -> bool:
        """A boolean of the query, as any of the clients writes it."""
        return query.parse_flag(self.query.get(name, [""])[-1])

    def query_list(self, name: str) -> list[str]:
        """A list of the query."""
        return query.parse_list(name, self.query.get(name, []))

    def _member(self) -> User | None:
        """The person whose browser session this is; held to CSRF like any page."""
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
        self._person = cookie, user
        return user

    def _proof(self, caller: Caller | None, permission: str) -> live_reauth.Credential | None:
        if caller is None:
            return None
        secret = api_key_from_headers(self.headers)
        if secret is not None:
            return live_reauth.key_credential(secret, caller.workspace_id, permission)
        assert self._person is not None  # noqa: S101
        return live_reauth.session_credential(*self._person, caller.workspace_id, permission)

    # The answer

    async def start(self, *headers: Header, status: int = 200) -> None:
        self.is_started = True
        traffic.count_response(self.kwargs["slug"], status)
        route = self.scope["url_route"].get("route")
        metrics.observe_request(
            self.scope["method"],
            metrics.NO_ROUTE if route is None else str(route.pattern),
            status,
            time.perf_counter() - self._began,
        )
        request_id = self.request_id_header
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *ASGI_HEADERS, request_id],
            }
        )

    @property
    def request_id_header(self) -> Header:
        return (b"x-request-id", self.request_id.encode())

    async def write(self, chunk: bytes) -> None:
        await self._to_client({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        await self._to_client({"type": "http.response.body", "body": chunk})

    async def respond(self, body: bytes, *headers: Header, status: int = 200) -> None:
        """A whole JSON answer."""
        length = (b"content-length", str(len(body)).encode())
        await self.start(JSON, length, *headers, status=status)
        await self.finish(body)

    def is_disconnected(self) -> bool:
        """Whether the client hung up, which `kept_alive` notices."""
        return self._is_disconnected

    def must_end(self) -> bool:
        """Whether there is nobody to answer any more: gone, or not let in any more."""
        return self._is_disconnected or self.refusal is not None

    async def _to_client(self, message: dict[str, Any]) -> None:
        try:
            await self._send(message)
        except OSError:
            self._is_disconnected = True

    @contextlib.asynccontextmanager
    async def keep_alive(self, wake: Callable[[], None]) -> AsyncIterator[None]:
        """Call `wake` every five seconds, and when the request `must_end`."""
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
            with live_reauth.revalidating(self.proof, refuse):
                yield
        finally:
            timer.cancel()
            watching.cancel()


class Consumer(ABC):
    """An ASGI application for one route; subclasses answer in `handle`."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    @classmethod
    def as_asgi(cls) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await cls()(HttpRequestContext(scope, receive, send))

        return application

    async def __call__(self, context: HttpRequestContext) -> None:
        client = context.scope.get("client")
        enter(RequestContext(client[0] if client else None, context.request_id))
        try:
            while True:
                try:
                    await self.handle(context)
                    break
                except AuthPending:
                    await context.auth_exchange().resolve()
        except ConnectionError:
            return
        except Exception as exception:
            error = as_app_error(exception)
            if error is None:
                log.exception("%s failed", type(self).__name__)
                error = errors.AppError()
            if context.is_started:
                # The status is out: an answer that breaks off says that it is not whole.
                raise
            told = [(n.lower().encode(), v.encode()) for n, v in error.headers.items()]
            await context.respond(dumps(error.as_json()), *told, status=error.status)

    @abstractmethod
    async def handle(self, context: HttpRequestContext) -> None:
        """Answer the request; an `AppError` becomes the answer while none has begun."""
