"""Coming to a run that somebody created before, for its events or its result."""

from __future__ import annotations

from typing import ClassVar

from apps.agent_server import results
from apps.agent_server.consumers.http_request import JSON, Consumer, HttpRequestContext
from apps.agent_server.consumers.sse_relay import reconnect_location, relay, wait_for_end
from apps.agent_server.errors import InvalidId
from apps.agent_server.scope import Action, Scope
from apps.agent_server.services import runs
from apps.agent_server.services.runs import JoinableRun
from apps.agent_server.streaming import sse
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission


class RunConsumer(Consumer):
    """Comes to a run that somebody created before."""

    methods = ("GET",)
    on_thread: ClassVar[bool]
    permission: ClassVar[Permission] = Permission.AGENTS_READ
    action: ClassVar[Action] = "read"

    def find(self, context: HttpRequestContext) -> tuple[Scope, JoinableRun | None]:
        """Let the caller in and look the run up; for a thread."""
        admission = context.admit(self.permission)
        thread_id = context.path_uuid("thread_id", InvalidId) if self.on_thread else None
        run_id = context.path_uuid("run_id", InvalidId)
        scope = admission.resolve_scope("threads", self.action, **context.kwargs)
        return scope, runs.find_joinable(scope, run_id, thread_id)


class JoinStream(RunConsumer):
    """`GET .../runs/{id}/stream`: the events after `Last-Event-ID`, or from now on."""

    async def handle(self, context: HttpRequestContext) -> None:
        scope, run = await context.run_service(self.find, context)
        wanted = sse.StreamModeFilter(context.query_list("stream_mode"))
        resume = sse.ResumePosition(context.headers.get("last-event-id"))
        await context.start(*sse.HEADERS, reconnect_location(context))
        if run is None:
            await context.finish(sse.error_frame("HTTPException", "404: Run not found"))
            return
        replays = resume.is_given and run.is_resumable
        if resume.is_malformed or not (run.is_open or replays):
            await context.finish()
            return
        frames = sse.FrameRenderer(with_ids=run.is_resumable, wanted=wanted)
        cancels = context.query_flag("cancel_on_disconnect")
        after = resume.after if replays else None
        await relay(context, scope, run, after, frames, cancels=cancels)


class JoinThreadStream(JoinStream):
    on_thread = True


class JoinStatelessStream(JoinStream):
    on_thread = False


class Join(RunConsumer):
    """`GET .../runs/{id}/join`: the thread's values once the run has ended."""

    async def handle(self, context: HttpRequestContext) -> None:
        scope, run = await context.run_service(self.find, context)
        await context.start(JSON, reconnect_location(context))
        if run is None:
            await context.finish(results.RUN_NOT_FOUND)
            return
        end = None
        if run.is_open:
            cancels = context.query_flag("cancel_on_disconnect")
            end = await wait_for_end(context, scope, run.run_id, None, cancels=cancels)
            if end is None:
                return
        await context.finish(await in_thread(results.join_result, scope, run.run_id, end))


class JoinThreadRun(Join):
    on_thread = True


class JoinStatelessRun(Join):
    on_thread = False
