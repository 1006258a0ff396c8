"""Endpoints that stream a thread's events across its runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
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
from apps.agent_server.streaming.hub import hub
from apps.agent_server.streaming.streams import BEGINNING, END, EventId, StateUpdated
from apps.agent_server.streaming.thread_reader import (
    CaughtUp,
    RunEvents,
    ThreadClosed,
    ThreadReader,
)
from apps.agent_server.web.http_context import HttpRequestContext
from apps.core.errors import Invalid
from apps.core.json import dumps
from apps.organizations.permissions import Permission

ThreadItem = RunEvents | StateUpdated | CaughtUp

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
    """Stream the events of some channels, beginning with the stored ones."""
    scope, pk = _find(context, thread_id)
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

    return partial(_relay, scope, pk, start_position(event_filter), render)


def _find(context: HttpRequestContext, thread_id: UUID) -> tuple[Scope, UUID]:
    scope = context.admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    return scope, stream_history.thread_pk(scope, thread_id)


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
    async with ThreadReader(hub(), scope, pk, after) as reader:
        try:
            await reader.wait_started()
        except ThreadClosed:
            raise ThreadNotFound(context.path_uuid("thread_id")) from None
        await context.start(*sse.HEADERS)
        async with context.keep_alive(reader.wake):
            with contextlib.suppress(ThreadClosed):
                while not context.must_end():
                    item = await reader.next()
                    chunk = sse.HEARTBEAT if item is None else render(item)
                    if chunk:
                        await context.write(chunk)
    if not context.is_disconnected():
        refusal = context.refusal
        await context.finish(b"" if refusal is None else sse.refusal_frame(refusal))


def start_position(event_filter: EventFilter) -> EventId:
    """Where a reader by channel starts: at its `since`, or at the first stored event."""
    return BEGINNING if event_filter.since is None else EventId.at(event_filter.since)


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
        if isinstance(item, StateUpdated):
            if not self._has_states:
                return b""
            return sse.frame(b"state_update", b'{"state":%b}' % item.state)
        if not isinstance(item, RunEvents):
            return b""
        frames = []
        for event in item.events:
            event_id = None if event.id == BEGINNING else event.id
            if event.name == END:
                if self._has_lifecycle:
                    done: dict[str, Any] = {"status": "run_done", "run_id": str(item.run.run_id)}
                    frames.append(sse.frame(b"metadata", dumps(done), event_id))
            elif event.name == b"metadata":
                if self._has_lifecycle:
                    frames.append(sse.frame(event.name, event.data, event_id))
            elif self._has_runs and (shown := channels.to_stream_mode(event)) is not None:
                frames.append(sse.frame(shown.name, shown.data, event_id))
        return b"".join(frames)


def _parse_last_event_id(header: str | None) -> EventId | None:
    if header is None:
        return None
    try:
        return EventId.parse(header.strip())
    except ValueError:
        raise Invalid("Last-Event-ID: must be 0, 0-0, or the id of an event.") from None
