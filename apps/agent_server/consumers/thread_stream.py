"""Staying with a thread over its runs: `GET .../stream` and `POST .../stream/events`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

from apps.agent_server.consumers.http_request import Consumer, HttpRequestContext
from apps.agent_server.errors import ThreadNotFound
from apps.agent_server.protocol import events as channels
from apps.agent_server.protocol.events import EventFilter
from apps.agent_server.scope import Scope
from apps.agent_server.services import stream_history
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import hub
from apps.agent_server.streaming.streams import BEGINNING, END, EventId, StateUpdated
from apps.agent_server.streaming.thread_reader import (
    CaughtUp,
    RunEvents,
    ThreadClosed,
    ThreadReader,
)
from apps.core.errors import Invalid
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

ThreadItem = RunEvents | StateUpdated | CaughtUp
MODES = frozenset({"run_modes", "lifecycle", "state_update"})


def find(context: HttpRequestContext) -> tuple[Scope, UUID]:
    """Let the caller in and look the thread up; for a thread of the pool."""
    admission = context.admit(Permission.AGENTS_READ)
    thread_id = context.path_uuid("thread_id")
    scope = admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    return scope, stream_history.thread_pk(scope, thread_id)


async def relay(
    context: HttpRequestContext, reader: ThreadReader, render: Callable[[ThreadItem], bytes]
) -> None:
    """Send a thread's events until the request must end or the thread is deleted.

    The answer begins when the reader has: whoever has seen it begin misses nothing after that.
    """
    async with reader:
        try:
            await reader.wait_started()
        except ThreadClosed:
            raise ThreadNotFound(context.path_uuid("thread_id")) from None
        await context.start(*sse.HEADERS)
        async with context.keep_alive(reader.wake):
            with contextlib.suppress(ThreadClosed):
                while not context.must_end():
                    heard = await reader.next()
                    chunk = sse.HEARTBEAT if heard is None else render(heard)
                    if chunk:
                        await context.write(chunk)
    if not context.is_disconnected():
        refusal = context.refusal
        await context.finish(b"" if refusal is None else sse.refusal_frame(refusal))


class StreamThread(Consumer):
    """`GET .../stream`: what the thread's runs stream, and what else happens to it."""

    methods = ("GET",)

    async def handle(self, context: HttpRequestContext) -> None:
        scope, pk = await in_thread(find, context)
        modes = _modes(context)
        after = _after(context.headers.get("last-event-id"))
        await relay(context, ThreadReader(hub(), scope, pk, after), _ThreadRenderer(modes))


class StreamEvents(Consumer):
    """`POST .../stream/events`: the events of some channels, first those that are still kept."""

    methods = ("POST",)

    async def handle(self, context: HttpRequestContext) -> None:
        raw = await context.body()
        scope, pk = await in_thread(find, context)
        wanted = _parse_filter(raw)

        def render(heard: ThreadItem) -> bytes:
            return b"".join(
                b"event: %b\r\ndata: %b\r\nid: %d\r\n\r\n"
                % (event.method.encode(), event.as_json(), event.seq)
                for event in protocol_events(heard)
                if wanted.matches(event)
            )

        await relay(context, ThreadReader(hub(), scope, pk, start_position(wanted)), render)


class InvalidEventFilter(Invalid):
    status = 400


def _parse_filter(raw: bytes) -> EventFilter:
    try:
        return EventFilter.parse(raw)
    except Invalid as error:
        raise InvalidEventFilter(error.detail) from None


def start_position(wanted: EventFilter) -> EventId:
    """Where a reader by channel begins: at what is kept, or where it says it was."""
    return BEGINNING if wanted.since is None else EventId.at(wanted.since)


def protocol_events(heard: ThreadItem) -> list[channels.ProtocolEvent]:
    """What was heard, by channel."""
    if not isinstance(heard, RunEvents):
        return []
    found = (channels.to_protocol_event(heard.run, event) for event in heard.events)
    return [event for event in found if event is not None]


class _ThreadRenderer:
    """Frames of a thread's stream. All have ids, except what is told of no stored event."""

    def __init__(self, modes: frozenset[str]) -> None:
        self._says_all = "run_modes" in modes
        self._says_lifecycle = self._says_all or "lifecycle" in modes
        self._says_states = "state_update" in modes

    def __call__(self, heard: ThreadItem) -> bytes:
        if isinstance(heard, StateUpdated):
            if not self._says_states:
                return b""
            return sse.frame(b"state_update", b'{"state":%b}' % heard.state)
        if not isinstance(heard, RunEvents):
            return b""
        frames = []
        for event in heard.events:
            event_id = None if event.id == BEGINNING else event.id
            if event.name == END:
                if self._says_lifecycle:
                    done: dict[str, Any] = {"status": "run_done", "run_id": str(heard.run.run_id)}
                    frames.append(sse.frame(b"metadata", dumps(done), event_id))
            elif event.name == b"metadata":
                if self._says_lifecycle:
                    frames.append(sse.frame(event.name, event.data, event_id))
            elif self._says_all and (shown := channels.to_stream_mode(event)) is not None:
                frames.append(sse.frame(shown.name, shown.data, event_id))
        return b"".join(frames)


def _modes(context: HttpRequestContext) -> frozenset[str]:
    """The documentation says `stream_modes`, both clients say `stream_mode`."""
    words = [*context.query_list("stream_modes"), *context.query_list("stream_mode")]
    asked = [mode.strip() for word in words for mode in word.split(",") if mode.strip()]
    for mode in asked:
        if mode not in MODES:
            known = ", ".join(sorted(MODES))
            raise Invalid(f"stream_modes: '{mode}' is none of {known}")
    return frozenset(asked or ["run_modes"])


def _after(header: str | None) -> EventId | None:
    if header is None:
        return None
    try:
        return EventId.parse(header.strip())
    except ValueError:
        raise Invalid("Last-Event-ID: must be 0, 0-0, or the id of an event.") from None
