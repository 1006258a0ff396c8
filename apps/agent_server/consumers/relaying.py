"""Staying with a run: its events and its end, passed on as they come."""

from __future__ import annotations

from uuid import UUID

from apps.agent_server import results, sse
from apps.agent_server.consumers.exchange import Exchange, Header
from apps.agent_server.hub import Subscription, hub
from apps.agent_server.scope import Scope
from apps.agent_server.services import runs
from apps.agent_server.services.runs import Joinable, RunRow
from apps.agent_server.streams import BEGINNING, END, Event, EventId
from apps.core.crossing import in_thread


def address(run: RunRow) -> str:
    """Where clients find the run, below the agent's own address."""
    return f"/threads/{run.thread_id}/runs/{run.run_id}"


def located(content: str, reconnect: str) -> tuple[Header, Header]:
    return (b"content-location", content.encode()), (b"location", reconnect.encode())


def own_address(exchange: Exchange) -> Header:
    """Where a reader who is cut off comes back to: here."""
    _, _, path = exchange.scope["path"].partition(f"/agents/{exchange.kwargs['slug']}")
    return b"location", path.encode()


async def relay(
    exchange: Exchange,
    scope: Scope,
    run: Joinable,
    after: EventId | None,
    frames: sse.Frames,
    *,
    cancels: bool,
) -> None:
    """Send the run's events until its end, or until the client leaves."""
    async with hub().open(run.run_id, after) as reader, exchange.kept_alive(reader.nudge):
        while not (frames.are_over() or exchange.has_left()):
            events = await reader.next()
            chunk = frames.render(events) if events else sse.HEARTBEAT
            if frames.end is not None and frames.end.id == BEGINNING:
                chunk = await in_thread(results.lost_end, scope, run.run_id)
            if chunk:
                await exchange.write(chunk)
    if exchange.has_left() and not frames.are_over():
        await _left(scope, run.run_id, cancels=cancels)
        return
    await exchange.finish()


async def replay(
    exchange: Exchange, scope: Scope, run: Joinable, after: EventId, frames: sse.Frames
) -> None:
    """Send what is kept of the events of a run that is over."""
    is_kept = False
    async for events in hub().stored(run.run_id, after):
        is_kept, after = True, events[-1].id
        await exchange.write(frames.render(events))
    if is_kept and frames.end is None:  # it follows the run's last commit by a moment
        await relay(exchange, scope, run, after, frames, cancels=False)
    else:
        await exchange.finish()


async def wait_for_end(
    exchange: Exchange, scope: Scope, run_id: UUID, after: EventId | None, *, cancels: bool
) -> Event | None:
    """The run's last event; None when the client left before it came."""
    async with hub().open(run_id, after) as reader, exchange.kept_alive(reader.nudge):
        end = await _end(exchange, reader)
    if end is None:
        await _left(scope, run_id, cancels=cancels)
    return end


async def _end(exchange: Exchange, reader: Subscription) -> Event | None:
    while not exchange.has_left():
        events = await reader.next()
        if not events:
            await exchange.write(b"\n")
        elif events[-1].name == END:
            return events[-1]
    return None


async def _left(scope: Scope, run_id: UUID, *, cancels: bool) -> None:
    if cancels:
        await in_thread(runs.interrupt, scope, run_id)
