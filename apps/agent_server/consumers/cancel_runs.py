"""Having runs stop, and removing them: what may have to wait for the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast
from uuid import UUID

from apps.agent_server import results
from apps.agent_server.consumers.http_request import JSON, Consumer, HttpRequestContext
from apps.agent_server.consumers.join_run import RunConsumer
from apps.agent_server.consumers.sse_relay import read_until_end, reconnect_location
from apps.agent_server.errors import InvalidId, NoRunsToCancel, NothingToCancel, RunNotFound
from apps.agent_server.schemas.runs import RunsToCancel
from apps.agent_server.services import cancel_runs, runs
from apps.agent_server.services.cancel_runs import Action
from apps.agent_server.streaming.hub import hub
from apps.core.errors import Invalid
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

STOP_TIMEOUT_SECONDS = 12.0
"""Within so long the engine leaves behind what does not stop."""


def _action(context: HttpRequestContext) -> Action:
    match context.query.get("action", ["interrupt"])[-1]:
        case "interrupt" | "rollback" as given:
            return cast("Action", given)
    raise Invalid("action: must be 'interrupt' or 'rollback'")


class CancelRun(RunConsumer):
    """`POST .../runs/{id}/cancel`: has the run stop; with `wait`, answers when it has."""

    methods = ("POST",)
    on_thread = True
    permission = Permission.AGENTS_RUN
    action = "update"

    async def handle(self, context: HttpRequestContext) -> None:
        if not context.query_flag("wait"):
            await in_thread(self.cancel, context)
            await context.start(status=202)
            await context.finish()
            return
        run_id = context.path_uuid("run_id", InvalidId)
        # Listens first, so that it cannot miss the end that it asks for.
        async with hub().open(run_id, None) as reader:
            await in_thread(self.cancel, context)
            place = reconnect_location(context)[1].removesuffix(b"/cancel") + b"/join"
            await context.start(JSON, (b"location", place))
            async with context.keep_alive(reader.wake):
                end = await read_until_end(context, reader)
        if end is not None:
            await context.finish(b"{}")
        elif context.refusal is not None:
            await context.finish(results.refusal_result(context.refusal))

    def cancel(self, context: HttpRequestContext) -> None:
        """Let the caller in and ask the run to stop; for a thread."""
        action = _action(context)
        scope, run = self.find(context)
        if run is None or not cancel_runs.cancel(scope, action, run_ids=[run.run_id]):
            raise NothingToCancel


class CancelRuns(Consumer):
    """`POST /runs/cancel`: has several runs stop."""

    async def handle(self, context: HttpRequestContext) -> None:
        await in_thread(self.cancel, context, await context.body())
        await context.start(status=204)
        await context.finish()

    def cancel(self, context: HttpRequestContext, raw: bytes) -> None:
        admission = context.admit(Permission.AGENTS_RUN)
        action, body = _action(context), RunsToCancel.parse(raw)
        named = {"thread_id": str(body.thread_id)} if body.thread_id else {}
        scope = admission.resolve_scope("threads", "update", **named)
        stopped = cancel_runs.cancel(
            scope,
            action,
            thread_id=body.thread_id,
            run_ids=body.run_ids,
            status=body.status or "all",
        )
        if not stopped:
            raise NoRunsToCancel


class DeleteRun(RunConsumer):
    """`DELETE .../runs/{id}`: removes the run; one that is under way stops first."""

    methods = ("DELETE",)
    on_thread = True
    permission = Permission.AGENTS_RUN
    action = "delete"

    async def handle(self, context: HttpRequestContext) -> None:
        scope, run = await in_thread(self.find, context)
        if run is None:
            raise RunNotFound
        if run.is_open:
            await _cancel_and_wait(
                run.run_id,
                lambda: cancel_runs.cancel(
                    scope, "interrupt", run_ids=[run.run_id], status="running"
                ),
            )
        await in_thread(runs.delete, scope, context.path_uuid("thread_id", InvalidId), run.run_id)
        await context.start(status=204)
        await context.finish()


async def _cancel_and_wait(run_id: UUID, stop: Callable[[], int]) -> None:
    """Ask the run to stop, and give it the time; who cannot wait for ever goes on without."""
    async with hub().open(run_id, None) as reader:
        if not await in_thread(stop):
            return
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                while not any(event.name == b"end" for event in await reader.next()):
                    pass
        except TimeoutError:
            return
