"""The WebSocket of a thread: receives commands, sends their answers and the thread's events."""

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
from apps.agent_server.endpoints.commands import bad_command_envelope
from apps.agent_server.endpoints.thread_stream import protocol_events, start_position
from apps.agent_server.protocol.command_handler import BadCommand, CommandFailed, CommandHandler
from apps.agent_server.protocol.events import EventFilter
from apps.agent_server.schemas.base import JSONObject
from apps.agent_server.schemas.commands import read_command
from apps.agent_server.scope import Scope
from apps.agent_server.services import stream_history
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.thread_reader import (
    CaughtUp,
    RunEvents,
    ThreadClosed,
    ThreadReader,
)
from apps.agent_server.web.http_context import Headers, HttpRequestContext
from apps.api_keys import live_reauth
from apps.api_keys.authentication import api_key_from_headers
from apps.core.errors import AppError, Forbidden, Invalid, NotFound
from apps.core.http.middleware import as_app_error
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

log = logging.getLogger(__name__)

CLOSE_CODE_OFFSET = 4000
"""Added to an HTTP status to form a close code, which is all that a browser sees."""
MAX_FRAME_BYTES = 16 * 1024 * 1024
REPLAY_TIMEOUT_SECONDS = 5.0
THREAD_POLL_SECONDS = 2.0
MAX_REPLAYED_EVENTS = 10_000
"""Maximum number of stored events that the answer to a subscription counts."""


def application() -> Callable[[JSONObject, Any, Any], Awaitable[None]]:
    async def serve(scope: JSONObject, receive: Any, send: Any) -> None:
        await EventSocket(scope, receive, send).serve()

    return serve


class Replay:
    """The stored events that a subscription is sent before live ones."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.is_complete = asyncio.Event()
        self.is_announced = asyncio.Event()
        """Set after the answer to the subscription, which counts the events, was sent."""


class EventSocket:
    """One WebSocket connection."""

    def __init__(self, scope: JSONObject, receive: Any, send: Any) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._send_lock = asyncio.Lock()
        # Authentication and the agent's own rules see a GET request.
        self._context = HttpRequestContext(
            {"http_version": "1.1", **scope, "method": "GET"},
            receive,
            send,
            scope["url_route"]["kwargs"],
        )
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._commands: set[asyncio.Task[None]] = set()
        self._replays: dict[asyncio.Task[Any] | None, Replay] = {}
        self._has_run = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        assert (await self._receive())["type"] == "websocket.connect"  # noqa: S101
        try:
            self._thread_id = self._context.path_uuid("thread_id")
            self._caller_scope = await self._authenticate()
        except Exception as exception:
            error = as_app_error(exception)
            if error is None:
                log.exception("A WebSocket could not be opened")
                error = AppError()
            await self._reject(error)
            return
        self._handler = CommandHandler(self._context, self._thread_id)
        self._handler.extra = {
            "subscription.subscribe": self._subscribe,
            "subscription.unsubscribe": self._unsubscribe,
            "subscription.reconnect": self._reconnect,
        }
        await self._send({"type": "websocket.accept"})
        try:
            with live_reauth.revalidating(self._context.credential, self._on_access_lost):
                while (message := await self._receive())["type"] == "websocket.receive":
                    if self._closing is None:
                        await self._receive_command(message)
        finally:
            await self._stop()
            if self._closing is not None:
                await self._closing

    async def _stop(self) -> None:
        """Cancel all tasks of this connection."""
        tasks = [*self._subscriptions.values(), *self._commands]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_access_lost(self, error: AppError) -> None:
        self._closing = asyncio.create_task(self._close_with_error(error))

    async def _close_with_error(self, error: AppError) -> None:
        await self._stop()
        envelope = {"type": "error", "id": None, "error": error.code, "message": error.detail}
        with contextlib.suppress(OSError):
            await self._send_envelope(envelope)
            await self._send({"type": "websocket.close", "code": CLOSE_CODE_OFFSET + error.status})

    # Authentication

    async def _authenticate(self) -> Scope:
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
        """Reject a page of another origin that uses the browser session of its visitor."""
        headers: Headers = self._context.headers
        origin = headers.get("origin")
        if origin is None or api_key_from_headers(headers) is not None or "cookie" not in headers:
            return
        if urlsplit(origin).netloc.lower() != (headers.get("host") or "").lower():
            raise Forbidden("This origin may not use a browser session here.")

    async def _reject(self, error: AppError) -> None:
        """Send the error as an HTTP response if the server supports it, else as a close code."""
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

    async def _receive_command(self, message: JSONObject) -> None:
        raw = message.get("bytes") or (message.get("text") or "").encode()
        try:
            command = read_command(raw) if len(raw) <= MAX_FRAME_BYTES else None
        except Invalid:
            await self._send_envelope(bad_command_envelope(BadCommand("The message is not JSON.")))
            return
        task = asyncio.create_task(self._answer(command))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _answer(self, command: Any) -> None:
        try:
            answer = await self._handler.answer(command)
        except BadCommand as error:
            await self._send_envelope(bad_command_envelope(error))
            return
        except Exception as exception:
            app_error = as_app_error(exception)
            if app_error is None:
                log.exception("A command failed")
            command_id = command.get("id") if isinstance(command, dict) else None
            detail = app_error.detail if app_error is not None else "Internal server error."
            await self._send_envelope(
                {"type": "error", "id": command_id, "error": "unknown_error", "message": detail}
            )
            return
        if answer["type"] == "success" and "run_id" in answer["result"]:
            self._has_run.set()
        await self._send_envelope(answer)
        if (replay := self._replays.pop(asyncio.current_task(), None)) is not None:
            replay.is_announced.set()

    async def _subscribe(self, params: JSONObject) -> JSONObject:
        event_filter = EventFilter.check(params)
        subscription_id = f"sub-{next(self._numbers)}"
        replay = Replay()
        task = asyncio.create_task(self._send_events(event_filter, replay))
        self._subscriptions[subscription_id] = task
        self._replays[asyncio.current_task()] = replay
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLAY_TIMEOUT_SECONDS):
                await replay.is_complete.wait()
        return {"subscription_id": subscription_id, "replayed_events": len(replay.texts)}

    async def _unsubscribe(self, params: JSONObject) -> JSONObject:
        key = params.get("subscription_id")
        task = self._subscriptions.pop(key, None) if isinstance(key, str) else None
        if task is None:
            raise CommandFailed("no_such_subscription", f"There is no subscription {key!r}.")
        task.cancel()
        return {}

    async def _reconnect(self, params: JSONObject) -> JSONObject:
        """Subscriptions end with their connection; new ones replay the stored events."""
        keys = params.get("subscriptions") or []
        return {"restored": bool(keys) and all(key in self._subscriptions for key in keys)}

    # Events

    async def _send_events(self, event_filter: EventFilter, replay: Replay) -> None:
        """Send a subscription's events: first the stored ones, after the answer to it."""
        try:
            pk = await self._thread_pk(replay)
            async with ThreadReader(
                get_hub(), self._caller_scope, pk, start_position(event_filter)
            ) as reader:
                while not isinstance(item := await reader.next(), CaughtUp):
                    replay.texts += self._matching_events(item, event_filter)
                    if len(replay.texts) > MAX_REPLAYED_EVENTS:
                        break
                replay.is_complete.set()
                await replay.is_announced.wait()
                for text in replay.texts:
                    await self._send_text(text)
                while True:
                    for text in self._matching_events(await reader.next(), event_filter):
                        await self._send_text(text)
        except (ThreadClosed, OSError):
            return
        except Exception:
            log.exception("A subscription failed")
            await self._close_after_failure()
        finally:
            replay.is_complete.set()

    async def _thread_pk(self, replay: Replay) -> UUID:
        """Return the thread's primary key; wait for the run that creates the thread."""
        while True:
            try:
                return await in_thread(
                    stream_history.find_thread_pk, self._caller_scope, self._thread_id
                )
            except NotFound:
                replay.is_complete.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(THREAD_POLL_SECONDS):
                    await self._has_run.wait()
            self._has_run.clear()

    def _matching_events(self, item: Any, event_filter: EventFilter) -> list[bytes]:
        if not isinstance(item, RunEvents):
            return []
        texts = []
        for event in protocol_events(item):
            self._handler.tree.update(event)
            self._handler.applied_through = max(self._handler.applied_through, event.seq)
            if event_filter.matches(event):
                texts.append(event.as_json())
        return texts

    async def _close_after_failure(self) -> None:
        envelope = {"type": "error", "id": None, "error": "unknown_error"}
        with contextlib.suppress(OSError):
            await self._send_envelope({**envelope, "message": "The events could not be read."})
            await self._send({"type": "websocket.close", "code": 1011})

    async def _send_envelope(self, envelope: JSONObject) -> None:
        await self._send_text(dumps(envelope))

    async def _send_text(self, text: bytes) -> None:
        async with self._send_lock:
            await self._send({"type": "websocket.send", "text": text.decode()})
