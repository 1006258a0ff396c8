"""Runs whose creator stays on the line, for the events or for the result.

Each crosses to the database once to let the caller in and do the deed, and then waits on Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from apps.agent_server import results
from apps.agent_server.consumers.http_request import JSON, Consumer, HttpRequestContext
from apps.agent_server.consumers.sse_relay import location_headers, relay, run_path, wait_for_end
from apps.agent_server.errors import InvalidIdAtRunCreation
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import runs
from apps.agent_server.services.runs import JoinableRun, RunRow
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.streams import BEGINNING
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission


@dataclass(frozen=True, slots=True)
class CreatedRun:
    """A run that was just created for a caller who stays on the line."""

    scope: Scope
    run: RunRow
    body: RunBody


class RunCreator(Consumer):
    """Creates a run, on the thread of the path or on one of its own, and stays with it."""

    on_thread: ClassVar[bool]

    async def received(self, context: HttpRequestContext) -> CreatedRun:
        raw = await context.body()
        return await context.run_service(self.receive, context, raw)

    def receive(self, context: HttpRequestContext, raw: bytes) -> CreatedRun:
        """Let the caller in and create the run; for a thread."""
        admission = context.admit(Permission.AGENTS_RUN)
        if not self.on_thread:
            scope, body = admission.authorize("threads", "create_run", RunBody.parse(raw))
            return CreatedRun(scope, runs.create_stateless(scope, body), body)
        thread_id = context.path_uuid("thread_id", InvalidIdAtRunCreation)
        scope, body = admission.authorize(
            "threads", "create_run", RunBody.parse(raw), thread_id=str(thread_id)
        )
        return CreatedRun(scope, runs.create_on_thread(scope, thread_id, body), body)


class StreamRun(RunCreator):
    """`POST .../runs/stream`: the run's events from its first to its last."""

    async def handle(self, context: HttpRequestContext) -> None:
        received = await self.received(context)
        run, resumable = received.run, received.body.stream_resumable
        path = run_path(run) if self.on_thread else f"/runs/{run.run_id}"
        await context.start(*sse.HEADERS, *location_headers(path, f"{path}/stream"))
        frames = sse.FrameRenderer(with_ids=resumable)
        with_cancel = received.body.on_disconnect == "cancel"
        joined = JoinableRun(run.run_id, is_open=True, is_resumable=resumable)
        await relay(
            context, received.scope, joined, BEGINNING, frames, cancels=with_cancel, is_new=True
        )


class StreamThreadRun(StreamRun):
    on_thread = True


class StreamStatelessRun(StreamRun):
    on_thread = False


class WaitForRun(RunCreator):
    """`POST .../runs/wait`: what the run leaves, after newlines that keep the line up."""

    async def handle(self, context: HttpRequestContext) -> None:
        received = await self.received(context)
        path = run_path(received.run)
        await context.start(JSON, *location_headers(path, f"{path}/join"))
        run_id = received.run.run_id
        cancels = received.body.on_disconnect == "cancel"
        end = await wait_for_end(context, received.scope, run_id, BEGINNING, cancels=cancels)
        if end is None:
            return
        answer = end.result
        if answer is None:
            answer = await in_thread(results.wait_result, received.scope, run_id)
        await context.finish(answer)


class WaitForThreadRun(WaitForRun):
    on_thread = True


class WaitForStatelessRun(WaitForRun):
    on_thread = False
