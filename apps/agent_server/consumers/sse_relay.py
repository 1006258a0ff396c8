"""Staying with a run: its events and its end, passed on as they come."""

from __future__ import annotations

from uuid import UUID

from apps.agent_server import results
from apps.agent_server.consumers.http_request import Exchange, Header
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs
from apps.agent_server.services.runs import Joinable, RunRow
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import hub
from apps.agent_server.streaming.streams import BEGINNING, END, Event, EventId
from apps.agent_server.streaming.subscription import Subscription
from apps.core.sync_bridge import in_thread


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
    cancels: bool = False,
    is_new: bool = False,
) -> None:
    """Send the run's events until its end, or until the client leaves or is let in no more.

    Of a run that is over: what is kept.
    """
    reading = hub().open(run.run_id, after, is_kept=run.is_resumable, is_new=is_new)
    if not run.is_open:
        reading.finish("over")
    async with reading as reader, exchange.kept_alive(reader.nudge):
        while not (frames.are_over() or exchange.must_end()):
            events = await reader.next()
            chunk = frames.render(events) if events else sse.HEARTBEAT
            if frames.end is not None and frames.end.id == BEGINNING:
                # Nobody knows the end any more; but of a run that was over, it may have been seen.
                is_told = run.is_open or frames.are_begun
                chunk = await in_thread(results.lost_end, scope, run.run_id) if is_told else b""
            if chunk:
                await exchange.write(chunk)
    if frames.are_over():
        await exchange.finish()
        return
    await _left(scope, run.run_id, cancels=cancels)
    if exchange.refusal is not None:
        await exchange.finish(sse.refusal_frame(exchange.refusal))


async def wait_for_end(
    exchange: Exchange, scope: Scope, run_id: UUID, after: EventId | None, *, cancels: bool
) -> Event | None:
    """The run's last event; None when the client left before it came, or had to."""
    async with hub().open(run_id, after) as reader, exchange.kept_alive(reader.nudge):
        end = await until_end(exchange, reader)
    if end is None:
        await _left(scope, run_id, cancels=cancels)
        if exchange.refusal is not None:
            await exchange.finish(results.of_refusal(exchange.refusal))
    return end


async def until_end(exchange: Exchange, reader: Subscription) -> Event | None:
    """The last event, with newlines to keep the line up; None when the exchange must end."""
    while not exchange.must_end():
        events = await reader.next()
        if not events:
            await exchange.write(b"\n")
        elif events[-1].name == END:
            return events[-1]
    return None


async def _left(scope: Scope, run_id: UUID, *, cancels: bool) -> None:
    if cancels:
        await in_thread(cancel_runs.cancel, scope, "interrupt", run_ids=[run_id])
