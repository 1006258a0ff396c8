"""Coming to a run that somebody created before, for its events or its result."""

from __future__ import annotations

from typing import ClassVar

from apps.agent_server import results
from apps.agent_server.consumers.http_request import JSON, Consumer, Exchange
from apps.agent_server.consumers.sse_relay import own_address, relay, wait_for_end
from apps.agent_server.errors import InvalidId
from apps.agent_server.scope import Action, Scope
from apps.agent_server.services import runs
from apps.agent_server.services.runs import Joinable
from apps.agent_server.streaming import sse
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission


class JoinsRun(Consumer):
    """Comes to a run that somebody created before."""

    methods = ("GET",)
    on_thread: ClassVar[bool]
    permission: ClassVar[Permission] = Permission.AGENTS_READ
    action: ClassVar[Action] = "read"

    def find(self, exchange: Exchange) -> tuple[Scope, Joinable | None]:
        """Let the caller in and look the run up; for a thread."""
        admission = exchange.admit(self.permission)
        thread_id = exchange.uuid("thread_id", InvalidId) if self.on_thread else None
        run_id = exchange.uuid("run_id", InvalidId)
        scope = admission.scope("threads", self.action, **exchange.kwargs)
        return scope, runs.joinable(scope, run_id, thread_id)


class JoinStream(JoinsRun):
    """`GET .../runs/{id}/stream`: the events after `Last-Event-ID`, or from now on."""

    async def handle(self, exchange: Exchange) -> None:
        scope, run = await exchange.perform(self.find, exchange)
        wanted = sse.Filter(exchange.words("stream_mode"))
        resume = sse.Resume(exchange.headers.get("last-event-id"))
        await exchange.start(*sse.HEADERS, own_address(exchange))
        if run is None:
            await exchange.finish(sse.error_frame("HTTPException", "404: Run not found"))
            return
        replays = resume.is_given and run.is_resumable
        if resume.is_garbage or not (run.is_open or replays):
            await exchange.finish()
            return
        frames = sse.Frames(with_ids=run.is_resumable, wanted=wanted)
        cancels = exchange.flag("cancel_on_disconnect")
        after = resume.after if replays else None
        await relay(exchange, scope, run, after, frames, cancels=cancels)


class JoinThreadStream(JoinStream):
    on_thread = True


class JoinStatelessStream(JoinStream):
    on_thread = False


class Join(JoinsRun):
    """`GET .../runs/{id}/join`: the thread's values once the run has ended."""

    async def handle(self, exchange: Exchange) -> None:
        scope, run = await exchange.perform(self.find, exchange)
        await exchange.start(JSON, own_address(exchange))
        if run is None:
            await exchange.finish(results.NO_SUCH_RUN)
            return
        end = None
        if run.is_open:
            cancels = exchange.flag("cancel_on_disconnect")
            end = await wait_for_end(exchange, scope, run.run_id, None, cancels=cancels)
            if end is None:
                return
        await exchange.finish(await in_thread(results.of_join, scope, run.run_id, end))


class JoinThreadRun(Join):
    on_thread = True


class JoinStatelessRun(Join):
    on_thread = False
