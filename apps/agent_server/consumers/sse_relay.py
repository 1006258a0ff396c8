"""Staying with a run: its events and its end, passed on as they come."""

from __future__ import annotations

from uuid import UUID

from apps.agent_server import results
from apps.agent_server.consumers.http_request import Header, HttpRequestContext
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs
from apps.agent_server.services.runs import JoinableRun, RunRow
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import hub
from apps.agent_server.streaming.streams import BEGINNING, END, Event, EventId
from apps.agent_server.streaming.subscription import Subscription
from apps.core.sync_bridge import in_thread


def run_path(run: RunRow) -> str:
    """Where clients find the run, below the agent's own address."""
    return f"/threads/{run.thread_id}/runs/{run.run_id}"


def location_headers(content: str, reconnect: str) -> tuple[Header, Header]:
    return (b"content-location", content.encode()), (b"location", reconnect.encode())


def reconnect_location(context: HttpRequestContext) -> Header:
    """Where a reader who is cut off comes back to: here."""
    _, _, path = context.scope["path"].partition(f"/agents/{context.kwargs['slug']}")
    return b"location", path.encode()


async def relay(
    context: HttpRequestContext,
    scope: Scope,
    run: JoinableRun,
    after: EventId | None,
    frames: sse.FrameRenderer,
    *,
    cancels: bool = False,
    is_new: bool = False,
) -> None:
    """Send the run's events until its end, or until the client leaves or is let in no more.

    Of a run that is over: what is kept.
    """
    reading = hub().open(run.run_id, after, is_resumable=run.is_resumable, is_new=is_new)
    if not run.is_open:
        reading.finish("over")
    async with reading as reader, context.keep_alive(reader.wake):
        while not (frames.is_finished() or context.must_end()):
            events = await reader.next()
            chunk = frames.render(events) if events else sse.HEARTBEAT
            if frames.end is not None and frames.end.id == BEGINNING:
                # Nobody knows the end any more; but of a run that was over, it may have been seen.
                is_told = run.is_open or frames.has_started
                chunk = (
                    await in_thread(results.render_lost_end, scope, run.run_id) if is_told else b""
                )
            if chunk:
                await context.write(chunk)
    if frames.is_finished():
        await context.finish()
        return
    await _on_disconnect(scope, run.run_id, cancels=cancels)
    if context.refusal is not None:
        await context.finish(sse.refusal_frame(context.refusal))


async def wait_for_end(
    context: HttpRequestContext, scope: Scope, run_id: UUID, after: EventId | None, *, cancels: bool
) -> Event | None:
    """The run's last event; None when the client left before it came, or had to."""
    async with hub().open(run_id, after) as reader, context.keep_alive(reader.wake):
        end = await read_until_end(context, reader)
    if end is None:
        await _on_disconnect(scope, run_id, cancels=cancels)
        if context.refusal is not None:
            await context.finish(results.refusal_result(context.refusal))
    return end


async def read_until_end(context: HttpRequestContext, reader: Subscription) -> Event | None:
    """Return the last event, or None when the request must end; newlines keep it alive."""
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
