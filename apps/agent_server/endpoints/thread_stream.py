"""Endpoints that stream a thread's events across its runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from typing import Any
from uuid import UUID

from apps.agent_server.endpoints.endpoint import EVENT_STREAM, Continuation, EndpointGroup
from apps.agent_server.errors import ThreadNotFound
from apps.agent_server.protocol import events as channels
from apps.agent_server.protocol.events import EventFilter
from apps.agent_server.schemas.threads import ThreadStreamQuery
from apps.agent_server.scope import Scope
from apps.agent_server.services import stream_history
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import BEGINNING, END, EventId, StateUpdatedMessage
from apps.agent_server.streaming.thread_reader import (
    CaughtUp,
    RunEvents,
    ThreadClosed,
    ThreadReader,
)
from apps.agent_server.web.http_context import HttpRequestContext
from apps.core.errors import Invalid
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

MAX_WAIT_SECONDS = 600
"""How long a stream waits for its thread to be created."""
# Runs usually follow at once; later checks of many waiting streams must stay cheap.
SHORT_POLL_SECONDS, SHORT_POLLS = 0.25, 40
LONG_POLL_SECONDS = 2.0

ThreadItem = RunEvents | StateUpdatedMessage | CaughtUp

endpoints = EndpointGroup("threads")


@endpoints.get("/threads/{thread_id}/stream", response=Any, media=EVENT_STREAM)
def stream_thread(
    context: HttpRequestContext, thread_id: UUID, query: ThreadStreamQuery
) -> Continuation:
    """Stream the events of a thread's runs and other changes of the thread."""
    scope, pk = _find(context, thread_id)
    after = _parse_last_event_id(context.headers.get("last-event-id"))
    return partial(_relay, scope, pk, after, _ThreadRenderer(query.modes))


class InvalidEventFilter(Invalid):
    status = 400


@endpoints.post(
    "/threads/{thread_id}/stream/events",
    permission=Permission.AGENTS_READ,
    raw_body_model=EventFilter,
    response=Any,
    media=EVENT_STREAM,
)
def stream_events(context: HttpRequestContext, thread_id: UUID, raw_body: bytes) -> Continuation:
    """Stream the events of some channels, beginning with the stored ones.

    Clients open the stream before the run that creates the thread: the stream waits for it.
    """
    scope = context.admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    try:
        event_filter = EventFilter.parse(raw_body)
    except Invalid as error:
        raise InvalidEventFilter(error.detail) from None

    def render(item: ThreadItem) -> bytes:
        return b"".join(
            b"event: %b\r\ndata: %b\r\nid: %d\r\n\r\n"
            % (event.method.encode(), event.as_json(), event.seq)
            for event in protocol_events(item)
            if event_filter.matches(event)
        )

    start = start_position(event_filter)
    try:
        pk = stream_history.find_thread_pk(scope, thread_id)
    except ThreadNotFound:
        return partial(_relay_new_thread, scope, thread_id, start, render)
    return partial(_relay, scope, pk, start, render)


def _find(context: HttpRequestContext, thread_id: UUID) -> tuple[Scope, UUID]:
    scope = context.admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    return scope, stream_history.find_thread_pk(scope, thread_id)


async def _relay(
    scope: Scope,
    pk: UUID,
    after: EventId | None,
    render: Callable[[ThreadItem], bytes],
    context: HttpRequestContext,
) -> None:
    """Send the thread's events until the context must end or the thread is deleted.

    The response starts after the reader has subscribed, so the client misses no later event.
    """
    async with ThreadReader(get_hub(), scope, pk, after) as reader:
        try:
            await reader.wait_started()
        except ThreadClosed:
            raise ThreadNotFound(context.path_uuid("thread_id")) from None
        await context.start(*sse.HEADERS)
        await _write_items(reader, render, context)
    await _finish(context)


async def _relay_new_thread(
    scope: Scope,
    thread_id: UUID,
    after: EventId,
    render: Callable[[ThreadItem], bytes],
    context: HttpRequestContext,
) -> None:
    """Wait until the thread is created, at most `MAX_WAIT_SECONDS`, then send its events."""
    await context.start(*sse.HEADERS)
    pk = await _wait_for_thread(scope, thread_id, context)
    if pk is not None:
        async with ThreadReader(get_hub(), scope, pk, after) as reader:
            with contextlib.suppress(ThreadClosed):
                await reader.wait_started()
                await _write_items(reader, render, context)
    await _finish(context)


async def _wait_for_thread(
    scope: Scope, thread_id: UUID, context: HttpRequestContext
) -> UUID | None:
    woken = asyncio.Event()
    delays = chain(repeat(SHORT_POLL_SECONDS, SHORT_POLLS), repeat(LONG_POLL_SECONDS))
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    async with context.keep_alive(woken.set):
        while not context.must_end() and time.monotonic() < deadline:
            with contextlib.suppress(ThreadNotFound):
                return await in_thread(stream_history.find_thread_pk, scope, thread_id)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), next(delays))
                woken.clear()
                await context.write(sse.HEARTBEAT)
    return None


async def _write_items(
    reader: ThreadReader, render: Callable[[ThreadItem], bytes], context: HttpRequestContext
) -> None:
    async with context.keep_alive(reader.wake):
        with contextlib.suppress(ThreadClosed):
            while not context.must_end():
                item = await reader.next()
                chunk = sse.HEARTBEAT if item is None else render(item)
                if chunk:
                    await context.write(chunk)


async def _finish(context: HttpRequestContext) -> None:
    if not context.is_disconnected():
        refusal = context.refusal
        await context.finish(b"" if refusal is None else sse.encode_access_lost(refusal))


def start_position(event_filter: EventFilter) -> EventId:
    """Where a reader by channel starts: at its `since`, or at the first stored event."""
    return BEGINNING if event_filter.since is None else EventId.from_position(event_filter.since)


def protocol_events(item: ThreadItem) -> list[channels.ProtocolEvent]:
    """The item's events by channel."""
    if not isinstance(item, RunEvents):
        return []
    events = (channels.to_protocol_event(item.run, event) for event in item.events)
    return [event for event in events if event is not None]


class _ThreadRenderer:
    """Renders a thread's items as SSE frames. Stored events have ids."""

    def __init__(self, modes: frozenset[str]) -> None:
        self._has_runs = "run_modes" in modes
        self._has_lifecycle = self._has_runs or "lifecycle" in modes
        self._has_states = "state_update" in modes

    def __call__(self, item: ThreadItem) -> bytes:
        if isinstance(item, StateUpdatedMessage):
            if not self._has_states:
                return b""
            return sse.encode_event(b"state_update", b'{"state":%b}' % item.state)
        if not isinstance(item, RunEvents):
            return b""
        frames = []
        for event in item.events:
            event_id = None if event.id == BEGINNING else event.id
            if event.name == END:
                if self._has_lifecycle:
                    done: dict[str, Any] = {"status": "run_done", "run_id": str(item.run.run_id)}
                    frames.append(sse.encode_event(b"metadata", dumps(done), event_id))
            elif event.name == b"metadata":
                if self._has_lifecycle:
                    frames.append(sse.encode_event(event.name, event.data, event_id))
            elif self._has_runs and (mode_event := channels.to_stream_mode(event)) is not None:
                frames.append(sse.encode_event(mode_event.name, mode_event.data, event_id))
        return b"".join(frames)


def _parse_last_event_id(header: str | None) -> EventId | None:
    if header is None:
        return None
    try:
        return EventId.parse(header.strip())
    except ValueError:
        raise Invalid("Last-Event-ID: must be 0, 0-0, or the id of an event.") from None
