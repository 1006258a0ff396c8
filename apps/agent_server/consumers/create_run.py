"""Runs whose creator stays on the line, for the events or for the result.

Each crosses to the database once to let the caller in and do the deed, and then waits on Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from apps.agent_server import results
from apps.agent_server.consumers.http_request import JSON, Consumer, Exchange
from apps.agent_server.consumers.sse_relay import address, located, relay, wait_for_end
from apps.agent_server.errors import InvalidIdAtRunCreation
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import runs
from apps.agent_server.services.runs import Joinable, RunRow
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.streams import BEGINNING
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission


@dataclass(frozen=True, slots=True)
class Received:
    """A run that was just created for a caller who stays on the line."""

    scope: Scope
    run: RunRow
    body: RunBody


class CreatesRun(Consumer):
    """Creates a run, on the thread of the path or on one of its own, and stays with it."""

    on_thread: ClassVar[bool]

    async def received(self, exchange: Exchange) -> Received:
        raw = await exchange.body()
        return await exchange.perform(self.receive, exchange, raw)

    def receive(self, exchange: Exchange, raw: bytes) -> Received:
        """Let the caller in and create the run; for a thread."""
        admission = exchange.admit(Permission.AGENTS_RUN)
        if not self.on_thread:
            scope, body = admission.grant("threads", "create_run", RunBody.parse(raw))
            return Received(scope, runs.create_stateless(scope, body), body)
        thread_id = exchange.uuid("thread_id", InvalidIdAtRunCreation)
        scope, body = admission.grant(
            "threads", "create_run", RunBody.parse(raw), thread_id=str(thread_id)
        )
        return Received(scope, runs.create_on_thread(scope, thread_id, body), body)


class StreamRun(CreatesRun):
    """`POST .../runs/stream`: the run's events from its first to its last."""

    async def handle(self, exchange: Exchange) -> None:
        received = await self.received(exchange)
        run, resumable = received.run, received.body.stream_resumable
        path = address(run) if self.on_thread else f"/runs/{run.run_id}"
        await exchange.start(*sse.HEADERS, *located(path, f"{path}/stream"))
        frames = sse.Frames(with_ids=resumable)
        with_cancel = received.body.on_disconnect == "cancel"
        joined = Joinable(run.run_id, is_open=True, is_resumable=resumable)
        await relay(
            exchange, received.scope, joined, BEGINNING, frames, cancels=with_cancel, is_new=True
        )


class StreamThreadRun(StreamRun):
    on_thread = True


class StreamStatelessRun(StreamRun):
    on_thread = False


class WaitForRun(CreatesRun):
    """`POST .../runs/wait`: what the run leaves, after newlines that keep the line up."""

    async def handle(self, exchange: Exchange) -> None:
        received = await self.received(exchange)
        path = address(received.run)
        await exchange.start(JSON, *located(path, f"{path}/join"))
        run_id = received.run.run_id
        cancels = received.body.on_disconnect == "cancel"
        end = await wait_for_end(exchange, received.scope, run_id, BEGINNING, cancels=cancels)
        if end is None:
            return
        answer = end.result
        if answer is None:
            answer = await in_thread(results.of_wait, received.scope, run_id)
        await exchange.finish(answer)


class WaitForThreadRun(WaitForRun):
    on_thread = True


class WaitForStatelessRun(WaitForRun):
    on_thread = False
