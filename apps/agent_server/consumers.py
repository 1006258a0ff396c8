"""What streams or waits: runs with their events, runs to be waited for, questions to a graph.

Each crosses to the database once to let the caller in and do the deed, and then waits on Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from apps.agent_server import results, sse
from apps.agent_server.bodies import RunBody
from apps.agent_server.errors import (
    InvalidId,
    InvalidIdAtRunCreation,
    NothingToCancel,
    NotOffered,
)
from apps.agent_server.exchange import JSON, Consumer, Exchange, Header
from apps.agent_server.hub import Subscription, hub
from apps.agent_server.services import runs
from apps.agent_server.services.runs import Joinable, RunRow
from apps.agent_server.streams import BEGINNING, END, Event, EventId
from apps.core.crossing import in_thread
from apps.deployments.routes import Route
from apps.organizations.permissions import Permission


@dataclass(frozen=True, slots=True)
class Received:
    """A run that was just created for a caller who stays on the line."""

    route: Route
    run: RunRow
    body: RunBody


class CreatesRun(Consumer):
    """Creates a run, on the thread of the path or on one of its own, and stays with it."""

    on_thread: ClassVar[bool]

    def receive(self, exchange: Exchange, raw: bytes) -> Received:
        """Let the caller in and create the run; for a thread."""
        route = exchange.admit(Permission.AGENTS_RUN).route
        if not self.on_thread:
            body = RunBody.parse(raw)
            return Received(route, runs.create_stateless(route, body), body)
        thread_id = exchange.uuid("thread_id", InvalidIdAtRunCreation)
        body = RunBody.parse(raw)
        return Received(route, runs.create_on_thread(route, thread_id, body), body)


class StreamRun(CreatesRun):
    """`POST .../runs/stream`: the run's events from its first to its last."""

    async def handle(self, exchange: Exchange) -> None:
        received = await in_thread(self.receive, exchange, await exchange.body())
        run, resumable = received.run, received.body.stream_resumable
        path = address(run) if self.on_thread else f"/runs/{run.run_id}"
        await exchange.start(*sse.HEADERS, *located(path, f"{path}/stream"))
        frames = sse.Frames(with_ids=resumable)
        with_cancel = received.body.on_disconnect == "cancel"
        joined = Joinable(run.run_id, is_open=True, is_resumable=resumable)
        await relay(exchange, received.route, joined, BEGINNING, frames, cancels=with_cancel)


class StreamThreadRun(StreamRun):
    on_thread = True


class StreamStatelessRun(StreamRun):
    on_thread = False


class WaitForRun(CreatesRun):
    """`POST .../runs/wait`: what the run leaves, after newlines that keep the line up."""

    async def handle(self, exchange: Exchange) -> None:
        received = await in_thread(self.receive, exchange, await exchange.body())
        path = address(received.run)
        await exchange.start(JSON, *located(path, f"{path}/join"))
        run_id = received.run.run_id
        cancels = received.body.on_disconnect == "cancel"
        end = await wait_for_end(exchange, received.route, run_id, BEGINNING, cancels=cancels)
        if end is None:
            return
        answer = end.result
        if answer is None:
            answer = await in_thread(results.of_wait, received.route, run_id)
        await exchange.finish(answer)


class WaitForThreadRun(WaitForRun):
    on_thread = True


class WaitForStatelessRun(WaitForRun):
    on_thread = False


class JoinsRun(Consumer):
    """Comes to a run that somebody created before."""

    methods = ("GET",)
    on_thread: ClassVar[bool]
    permission: ClassVar[Permission] = Permission.AGENTS_READ

    def find(self, exchange: Exchange) -> tuple[Route, Joinable | None]:
        """Let the caller in and look the run up; for a thread."""
        route = exchange.admit(self.permission).route
        thread_id = exchange.uuid("thread_id", InvalidId) if self.on_thread else None
        run_id = exchange.uuid("run_id", InvalidId)
        return route, runs.joinable(route, run_id, thread_id)


class JoinStream(JoinsRun):
    """`GET .../runs/{id}/stream`: the events after `Last-Event-ID`, or from now on."""

    async def handle(self, exchange: Exchange) -> None:
        route, run = await in_thread(self.find, exchange)
        wanted = sse.Filter(exchange.words("stream_mode"))
        resume = sse.Resume(exchange.headers.get("last-event-id"))
        await exchange.start(*sse.HEADERS, _own_address(exchange))
        if run is None:
            await exchange.finish(sse.error_frame("HTTPException", "404: Run not found"))
            return
        replays = resume.is_given and run.is_resumable
        if resume.is_garbage or not (run.is_open or replays):
            await exchange.finish()
            return
        frames = sse.Frames(with_ids=run.is_resumable, wanted=wanted)
        if not run.is_open:
            await replay(exchange, route, run, resume.after or BEGINNING, frames)
            return
        cancels = exchange.flag("cancel_on_disconnect")
        after = resume.after if replays else None
        await relay(exchange, route, run, after, frames, cancels=cancels)


class JoinThreadStream(JoinStream):
    on_thread = True


class JoinStatelessStream(JoinStream):
    on_thread = False


class Join(JoinsRun):
    """`GET .../runs/{id}/join`: the thread's values once the run has ended."""

    async def handle(self, exchange: Exchange) -> None:
        route, run = await in_thread(self.find, exchange)
        await exchange.start(JSON, _own_address(exchange))
        if run is None:
            await exchange.finish(results.NO_SUCH_RUN)
            return
        end = None
        if run.is_open:
            cancels = exchange.flag("cancel_on_disconnect")
            end = await wait_for_end(exchange, route, run.run_id, None, cancels=cancels)
            if end is None:
                return
        await exchange.finish(await in_thread(results.of_join, route, run.run_id, end))


class JoinThreadRun(Join):
    on_thread = True


class JoinStatelessRun(Join):
    on_thread = False


class CancelRun(JoinsRun):
    """`POST .../runs/{id}/cancel`: has the run stop; with `wait`, answers when it has."""

    methods = ("POST",)
    on_thread = True
    permission = Permission.AGENTS_RUN

    async def handle(self, exchange: Exchange) -> None:
        action = exchange.query.get("action", ["interrupt"])[-1]
        route, run = await in_thread(self.cancel, exchange, action)
        if not exchange.flag("wait"):
            await exchange.start(status=202)
            await exchange.finish()
            return
        place = _own_address(exchange)[1].removesuffix(b"/cancel") + b"/join"
        await exchange.start(JSON, (b"location", place))
        if await wait_for_end(exchange, route, run.run_id, None, cancels=False) is not None:
            await exchange.finish(b"{}")

    def cancel(self, exchange: Exchange, action: str) -> tuple[Route, Joinable]:
        """Let the caller in and ask the run to stop; for a thread."""
        route, run = self.find(exchange)
        if action != "interrupt":
            raise NotOffered(f"action '{action}'")
        if run is None or not runs.interrupt(route, run.run_id):
            raise NothingToCancel
        return route, run


def address(run: RunRow) -> str:
    """Where clients find the run, below the agent's own address."""
    return f"/threads/{run.thread_id}/runs/{run.run_id}"


def located(content: str, reconnect: str) -> tuple[Header, Header]:
    return (b"content-location", content.encode()), (b"location", reconnect.encode())


def _own_address(exchange: Exchange) -> Header:
    """Where a reader who is cut off comes back to: here."""
    _, _, path = exchange.scope["path"].partition(f"/agents/{exchange.kwargs['slug']}")
    return b"location", path.encode()


async def relay(
    exchange: Exchange,
    route: Route,
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
                chunk = await in_thread(results.lost_end, route, run.run_id)
            if chunk:
                await exchange.write(chunk)
    if exchange.has_left() and not frames.are_over():
        await _left(route, run.run_id, cancels=cancels)
        return
    await exchange.finish()


async def replay(
    exchange: Exchange, route: Route, run: Joinable, after: EventId, frames: sse.Frames
) -> None:
    """Send what is kept of the events of a run that is over."""
    is_kept = False
    async for events in hub().stored(run.run_id, after):
        is_kept, after = True, events[-1].id
        await exchange.write(frames.render(events))
    if is_kept and frames.end is None:  # it follows the run's last commit by a moment
        await relay(exchange, route, run, after, frames, cancels=False)
    else:
        await exchange.finish()


async def wait_for_end(
    exchange: Exchange, route: Route, run_id: UUID, after: EventId | None, *, cancels: bool
) -> Event | None:
    """The run's last event; None when the client left before it came."""
    async with hub().open(run_id, after) as reader, exchange.kept_alive(reader.nudge):
        end = await _end(exchange, reader)
    if end is None:
        await _left(route, run_id, cancels=cancels)
    return end


async def _end(exchange: Exchange, reader: Subscription) -> Event | None:
    while not exchange.has_left():
        events = await reader.next()
        if not events:
            await exchange.write(b"\n")
        elif events[-1].name == END:
            return events[-1]
    return None


async def _left(route: Route, run_id: UUID, *, cancels: bool) -> None:
    if cancels:
        await in_thread(runs.interrupt, route, run_id)
