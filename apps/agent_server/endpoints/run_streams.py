"""Endpoints that create or join a run and respond with its events or its result.

The run is created or found in one crossing to the database; then the response waits on Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from apps.agent_server import results
from apps.agent_server.endpoints.endpoint import EVENT_STREAM, Continuation, EndpointGroup
from apps.agent_server.errors import InvalidIdAtRunCreation
from apps.agent_server.schemas.runs import JoinQuery, JoinStreamQuery, RunBody
from apps.agent_server.scope import Action, Scope
from apps.agent_server.services import cancel_runs, runs
from apps.agent_server.services.runs import AgentRunRow, JoinableRun
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import BEGINNING, END, Event, EventId
from apps.agent_server.streaming.subscription import Subscription
from apps.agent_server.web.http_context import JSON, Header, HttpRequestContext
from apps.core.sync_bridge import in_thread

endpoints = EndpointGroup("runs")


@dataclass(frozen=True, slots=True)
class CreatedRun:
    """A run that was created for a client who waits for its events or its result."""

    scope: Scope
    run: AgentRunRow
    body: RunBody

    @property
    def path(self) -> str:
        """The run's path below the agent's address."""
        return f"/threads/{self.run.thread_id}/runs/{self.run.run_id}"

    @property
    def is_cancelled_on_disconnect(self) -> bool:
        return self.body.on_disconnect == "cancel"


def _create(context: HttpRequestContext, thread_id: UUID, body: RunBody) -> CreatedRun:
    scope, body = context.admission.authorize(
        "threads", "create_run", body, thread_id=str(thread_id)
    )
    return CreatedRun(scope, runs.create_on_thread(scope, thread_id, body), body)


def _create_stateless(context: HttpRequestContext, body: RunBody) -> CreatedRun:
    scope, body = context.admission.authorize("threads", "create_run", body)
    return CreatedRun(scope, runs.create_stateless(scope, body), body)


# Create a run and stream its events


@endpoints.post(
    "/threads/{thread_id}/runs/stream",
    runs_on_loop=True,
    invalid_id=InvalidIdAtRunCreation,
    response=Any,
    media=EVENT_STREAM,
)
def stream_run(context: HttpRequestContext, thread_id: UUID, body: RunBody) -> Continuation:
    """Start a run on a thread and stream its events."""
    created = _create(context, thread_id, body)
    return partial(_stream_created_run, created, created.path)


@endpoints.post("/runs/stream", runs_on_loop=True, response=Any, media=EVENT_STREAM)
def stream_stateless_run(context: HttpRequestContext, body: RunBody) -> Continuation:
    """Start a run on its own thread and stream its events."""
    created = _create_stateless(context, body)
    return partial(_stream_created_run, created, f"/runs/{created.run.run_id}")


async def _stream_created_run(created: CreatedRun, path: str, context: HttpRequestContext) -> None:
    is_resumable = created.body.stream_resumable
    await context.start(*sse.HEADERS, *_location_headers(path, f"{path}/stream"))
    await relay_events(
        context,
        created.scope,
        JoinableRun(created.run.run_id, is_open=True, is_resumable=is_resumable),
        BEGINNING,
        sse.FrameRenderer(with_ids=is_resumable),
        cancels=created.is_cancelled_on_disconnect,
        is_new=True,
    )


# Create a run and wait for its result


@endpoints.post(
    "/threads/{thread_id}/runs/wait",
    runs_on_loop=True,
    invalid_id=InvalidIdAtRunCreation,
    response=Any,
)
def wait_for_run(context: HttpRequestContext, thread_id: UUID, body: RunBody) -> Continuation:
    """Start a run on a thread and wait for its result."""
    return partial(_send_result, _create(context, thread_id, body))


@endpoints.post("/runs/wait", runs_on_loop=True, response=Any)
def wait_for_stateless_run(context: HttpRequestContext, body: RunBody) -> Continuation:
    """Start a run on its own thread and wait for its result."""
    return partial(_send_result, _create_stateless(context, body))


async def _send_result(created: CreatedRun, context: HttpRequestContext) -> None:
    """Send the run's result, after newlines that keep the connection open."""
    run_id = created.run.run_id
    await context.start(JSON, *_location_headers(created.path, f"{created.path}/join"))
    end = await _wait_for_end(
        context, created.scope, run_id, BEGINNING, cancels=created.is_cancelled_on_disconnect
    )
    if end is None:
        return
    result = end.result
    if result is None:
        result = await in_thread(results.wait_result, created.scope, run_id)
    await context.finish(result)


# Join an existing run


def find_run(
    context: HttpRequestContext, action: Action, run_id: UUID, thread_id: UUID | None = None
) -> tuple[Scope, JoinableRun | None]:
    """Authorize the action on the run's thread and look the run up."""
    scope = context.admission.resolve_scope("threads", action, **context.path_params)
    return scope, runs.find_joinable(scope, run_id, thread_id)


@endpoints.get(
    "/threads/{thread_id}/runs/{run_id}/stream", runs_on_loop=True, response=Any, media=EVENT_STREAM
)
def join_stream(
    context: HttpRequestContext, thread_id: UUID, run_id: UUID, query: JoinStreamQuery
) -> Continuation:
    """Stream the events of a run from `Last-Event-ID`, or from now on."""
    return partial(_stream_joined_run, query, *find_run(context, "read", run_id, thread_id))


@endpoints.get("/runs/{run_id}/stream", runs_on_loop=True, response=Any, media=EVENT_STREAM)
def join_stateless_stream(
    context: HttpRequestContext, run_id: UUID, query: JoinStreamQuery
) -> Continuation:
    """Stream the events of a stateless run from `Last-Event-ID`, or from now on."""
    return partial(_stream_joined_run, query, *find_run(context, "read", run_id))


async def _stream_joined_run(
    query: JoinStreamQuery, scope: Scope, run: JoinableRun | None, context: HttpRequestContext
) -> None:
    modes = sse.StreamModeFilter(query.stream_mode)
    resume = sse.ResumePosition(context.headers.get("last-event-id"))
    await context.start(*sse.HEADERS, reconnect_location(context))
    if run is None:
        await context.finish(sse.encode_error("HTTPException", "404: Run not found"))
        return
    replays = resume.is_requested and run.is_resumable
    if resume.is_malformed or not (run.is_open or replays):
        await context.finish()
        return
    frames = sse.FrameRenderer(with_ids=run.is_resumable, mode_filter=modes)
    after = resume.after if replays else None
    await relay_events(context, scope, run, after, frames, cancels=query.cancel_on_disconnect)


@endpoints.get("/threads/{thread_id}/runs/{run_id}/join", runs_on_loop=True, response=Any)
def join_run(
    context: HttpRequestContext, thread_id: UUID, run_id: UUID, query: JoinQuery
) -> Continuation:
    """Wait for a run and return the values of its thread."""
    return partial(_send_joined_result, query, *find_run(context, "read", run_id, thread_id))


@endpoints.get("/runs/{run_id}/join", runs_on_loop=True, response=Any)
def join_stateless_run(context: HttpRequestContext, run_id: UUID, query: JoinQuery) -> Continuation:
    """Wait for a stateless run."""
    return partial(_send_joined_result, query, *find_run(context, "read", run_id))


async def _send_joined_result(
    query: JoinQuery, scope: Scope, run: JoinableRun | None, context: HttpRequestContext
) -> None:
    await context.start(JSON, reconnect_location(context))
    if run is None:
        await context.finish(results.RUN_NOT_FOUND)
        return
    end = None
    if run.is_open:
        end = await _wait_for_end(
            context, scope, run.run_id, None, cancels=query.cancel_on_disconnect
        )
        if end is None:
            return
    await context.finish(await in_thread(results.join_result, scope, run.run_id, end))


# Relay events


def _location_headers(content: str, reconnect: str) -> tuple[Header, Header]:
    return (b"content-location", content.encode()), (b"location", reconnect.encode())


def reconnect_location(context: HttpRequestContext) -> Header:
    """The header that sends a disconnected client back to this path."""
    _, _, path = context.scope["path"].partition(f"/agents/{context.path_params['slug']}")
    return b"location", path.encode()


async def relay_events(
    context: HttpRequestContext,
    scope: Scope,
    run: JoinableRun,
    after: EventId | None,
    frames: sse.FrameRenderer,
    *,
    cancels: bool = False,
    is_new: bool = False,
) -> None:
    """Send the run's events until its end, or until the client disconnects or loses access.

    For a run that has ended, send the stored events. `cancels`: cancel the run on disconnect.
    """
    subscription = get_hub().open(run.run_id, after, is_resumable=run.is_resumable, is_new=is_new)
    if not run.is_open:
        subscription.finish("over")
    async with subscription as reader, context.keep_alive(reader.wake):
        while not (frames.is_finished() or context.must_end()):
            events = await reader.next()
            chunk = frames.render(events) if events else sse.HEARTBEAT
            if frames.end is not None and frames.end.id == BEGINNING:
                # The end event is lost. If the run had ended before, the client may have seen it.
                is_unseen = run.is_open or frames.has_started
                chunk = (
                    await in_thread(results.render_lost_end, scope, run.run_id)
                    if is_unseen
                    else b""
                )
            if chunk:
                await context.write(chunk)
    if frames.is_finished():
        await context.finish()
        return
    await _on_disconnect(scope, run.run_id, cancels=cancels)
    if context.refusal is not None:
        await context.finish(sse.encode_access_lost(context.refusal))


async def _wait_for_end(
    context: HttpRequestContext, scope: Scope, run_id: UUID, after: EventId | None, *, cancels: bool
) -> Event | None:
    """Return the run's end event; None if the client disconnected or lost access before it."""
    async with get_hub().open(run_id, after) as reader, context.keep_alive(reader.wake):
        end = await read_until_end(context, reader)
    if end is None:
        await _on_disconnect(scope, run_id, cancels=cancels)
        if context.refusal is not None:
            await context.finish(results.refusal_result(context.refusal))
    return end


async def read_until_end(context: HttpRequestContext, reader: Subscription) -> Event | None:
    """Return the end event, sending newlines as heartbeats; None if the context must end."""
    while not context.must_end():
        events = await reader.next()
        if not events:
            await context.write(b"\n")
        elif events[-1].name == END:
            return events[-1]
    return None


async def _on_disconnect(scope: Scope, run_id: UUID, *, cancels: bool) -> None:
    if cancels:
        await in_thread(cancel_runs.cancel, scope, "interrupt", run_ids=[run_id])
