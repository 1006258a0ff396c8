"""The same path as `stream/events`, as a WebSocket: commands in, answers and events out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from apps.agent_server.auth.custom_auth import AuthPending
from apps.agent_server.consumers.commands import bad_command_envelope
from apps.agent_server.consumers.http_request import Headers, HttpRequestContext
from apps.agent_server.consumers.thread_stream import protocol_events, start_position
from apps.agent_server.protocol.command_handler import BadCommand, CommandFailed, CommandHandler
from apps.agent_server.protocol.events import EventFilter
from apps.agent_server.schemas.base import JSONObject
from apps.agent_server.scope import Scope
from apps.agent_server.services import stream_history
from apps.agent_server.streaming.hub import hub
from apps.agent_server.streaming.thread_reader import (
    CaughtUp,
    RunEvents,
    ThreadClosed,
    ThreadReader,
)
from apps.api_keys import live_reauth
from apps.api_keys.authentication import api_key_from_headers
from apps.core.errors import AppError, Forbidden, NotFound
from apps.core.http.middleware import as_app_error
from apps.core.json import dumps, loads
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

log = logging.getLogger(__name__)

CLOSE_CODE_OFFSET = 4000
"""What is added to an HTTP status to make the code of a close: browsers see no other status."""
MAX_FRAME_BYTES = 16 * 1024 * 1024
REPLAY_TIMEOUT_SECONDS = 5.0
THREAD_POLL_SECONDS = 2.0
MAX_REPLAYED_EVENTS = 10_000
"""Events that are held for the count in a subscription's answer."""


def application() -> Callable[[JSONObject, Any, Any], Awaitable[None]]:
    async def serve(scope: JSONObject, receive: Any, send: Any) -> None:
        await EventSocket(scope, receive, send).serve()

    return serve


class Replay:
    """What a subscription is sent before what is live."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.is_whole = asyncio.Event()
        self.may_be_sent = asyncio.Event()


class EventSocket:
    """One connection."""

    def __init__(self, scope: JSONObject, receive: Any, send: Any) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._sending = asyncio.Lock()
        # To the agent's own rules, and to who admits, this is a request that reads.
        self._context = HttpRequestContext(
            {"http_version": "1.1", **scope, "method": "GET"}, receive, send
        )
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._commands: set[asyncio.Task[None]] = set()
        self._held_back: dict[asyncio.Task[Any] | None, asyncio.Event] = {}
        self._is_there = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        assert (await self._receive())["type"] == "websocket.connect"  # noqa: S101
        try:
            self._thread_id = self._context.path_uuid("thread_id")
            self._rights = await self._let_in()
        except Exception as exception:
            error = as_app_error(exception)
            if error is None:
                log.exception("a socket could not be opened")
                error = AppError()
            await self._refuse(error)
            return
        self._handler = CommandHandler(self._context, self._thread_id)
        self._handler.extra = {
            "subscription.subscribe": self._subscribe,
            "subscription.unsubscribe": self._unsubscribe,
            "subscription.reconnect": self._reconnect,
        }
        await self._send({"type": "websocket.accept"})
        try:
            with live_reauth.revalidating(self._context.proof, self._end):
                while (message := await self._receive())["type"] == "websocket.receive":
                    if self._closing is None:
                        await self._take(message)
        finally:
            await self._stop()
            if self._closing is not None:
                await self._closing

    async def _stop(self) -> None:
        """Nothing more is done or said for this connection."""
        tasks = [*self._subscriptions.values(), *self._commands]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, error: AppError) -> None:
        """Who opened the connection may stay no longer."""
        self._closing = asyncio.create_task(self._dismiss(error))

    async def _dismiss(self, error: AppError) -> None:
        await self._stop()
        said = {"type": "error", "id": None, "error": error.code, "message": error.detail}
        with contextlib.suppress(OSError):
            await self._say(said)
            await self._send({"type": "websocket.close", "code": CLOSE_CODE_OFFSET + error.status})

    # Coming in

    async def _let_in(self) -> Scope:
        self._check_origin()
        while True:
            try:
                return await in_thread(self._admit)
            except AuthPending:
                await self._context.auth_exchange().resolve()

    def _admit(self) -> Scope:
        admission = self._context.admit(Permission.AGENTS_READ)
        return admission.resolve_scope("threads", "read", thread_id=str(self._thread_id))

    def _check_origin(self) -> None:
        """A page elsewhere must not use the session of whoever looks at it."""
        headers: Headers = self._context.headers
        origin = headers.get("origin")
        if origin is None or api_key_from_headers(headers) is not None or "cookie" not in headers:
            return
        if urlsplit(origin).netloc.lower() != (headers.get("host") or "").lower():
            raise Forbidden("This origin may not use a browser session here.")

    async def _refuse(self, error: AppError) -> None:
        """As an HTTP answer where the server can, else by the code of the close."""
        if "websocket.http.response" in (self._scope.get("extensions") or {}):
            headers = [(b"content-type", b"application/json")]
            headers += [(n.lower().encode(), v.encode()) for n, v in error.headers.items()]
            start = {"type": "websocket.http.response.start", "status": error.status}
            await self._send({**start, "headers": headers})
            body = dumps(error.as_json())
            await self._send({"type": "websocket.http.response.body", "body": body})
            return
        await self._send({"type": "websocket.accept"})
        await self._send({"type": "websocket.close", "code": CLOSE_CODE_OFFSET + error.status})

    # Commands

    async def _take(self, message: JSONObject) -> None:
        raw = message.get("text") or (message.get("bytes") or b"")
        try:
            command = loads(raw) if len(raw) <= MAX_FRAME_BYTES else None
        except ValueError:
            await self._say(bad_command_envelope(BadCommand("That is not JSON.")))
            return
        task = asyncio.create_task(self._answer(command))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _answer(self, command: Any) -> None:
        try:
            answer = await self._handler.answer(command)
        except BadCommand as error:
            await self._say(bad_command_envelope(error))
            return
        except Exception as exception:
            error_ = as_app_error(exception)
            if error_ is None:
                log.exception("a command failed")
            given = command.get("id") if isinstance(command, dict) else None
            said = error_.detail if error_ is not None else "Something went wrong here."
            failure = {"type": "error", "id": given, "error": "unknown_error", "message": said}
            await self._say(failure)
            return
        if answer["type"] == "success" and "run_id" in answer["result"]:
            self._is_there.set()
        await self._say(answer)
        if (held_back := self._held_back.pop(asyncio.current_task(), None)) is not None:
            held_back.set()

    async def _subscribe(self, params: JSONObject) -> JSONObject:
        wanted = EventFilter.check(params)
        subscription_id = f"sub-{next(self._numbers)}"
        replay = Replay()
        pump = asyncio.create_task(self._pump(wanted, replay))
        self._subscriptions[subscription_id] = pump
        self._held_back[asyncio.current_task()] = replay.may_be_sent
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLAY_TIMEOUT_SECONDS):
                await replay.is_whole.wait()
        return {"subscription_id": subscription_id, "replayed_events": len(replay.texts)}

    async def _unsubscribe(self, params: JSONObject) -> JSONObject:
        given = params.get("subscription_id")
        task = self._subscriptions.pop(given, None) if isinstance(given, str) else None
        if task is None:
            raise CommandFailed("no_such_subscription", f"There is no subscription {given!r}.")
        task.cancel()
        return {}

    async def _reconnect(self, params: JSONObject) -> JSONObject:
        """Subscriptions end with their connection; a new one is told what was missed."""
        asked = params.get("subscriptions") or []
        return {"restored": bool(asked) and all(one in self._subscriptions for one in asked)}

    # Events

    async def _pump(self, wanted: EventFilter, replay: Replay) -> None:
        """Send a subscription's events: first those that are kept, behind the answer to it."""
        try:
            pk = await self._thread_pk(replay)
            async with ThreadReader(hub(), self._rights, pk, start_position(wanted)) as reader:
                while not isinstance(heard := await reader.next(), CaughtUp):
                    replay.texts += self._chosen(heard, wanted)
                    if len(replay.texts) > MAX_REPLAYED_EVENTS:
                        break
                replay.is_whole.set()
                await replay.may_be_sent.wait()
                for text in replay.texts:
                    await self._send_text(text)
                while True:
                    for text in self._chosen(await reader.next(), wanted):
                        await self._send_text(text)
        except (ThreadClosed, OSError):
            return
        except Exception:
            log.exception("a subscription broke off")
            await self._break_off()
        finally:
            replay.is_whole.set()

    async def _thread_pk(self, replay: Replay) -> UUID:
        """The thread's row, which a run that is yet to come may make."""
        while True:
            try:
                return await in_thread(stream_history.thread_pk, self._rights, self._thread_id)
            except NotFound:
                replay.is_whole.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(THREAD_POLL_SECONDS):
                    await self._is_there.wait()
            self._is_there.clear()

    def _chosen(self, heard: Any, wanted: EventFilter) -> list[bytes]:
        if not isinstance(heard, RunEvents):
            return []
        texts = []
        for event in protocol_events(heard):
            self._handler.tree.take(event)
            self._handler.applied_through = max(self._handler.applied_through, event.seq)
            if wanted.matches(event):
                texts.append(event.as_json())
        return texts

    async def _break_off(self) -> None:
        said = {"type": "error", "id": None, "error": "unknown_error"}
        with contextlib.suppress(OSError):
            await self._say({**said, "message": "The events could not be read."})
            await self._send({"type": "websocket.close", "code": 1011})

    async def _say(self, envelope: JSONObject) -> None:
        await self._send_text(dumps(envelope))

    async def _send_text(self, text: bytes) -> None:
        async with self._sending:
            await self._send({"type": "websocket.send", "text": text.decode()})
