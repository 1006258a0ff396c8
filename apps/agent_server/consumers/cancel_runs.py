"""Having runs stop, and removing them: what may have to wait for the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast
from uuid import UUID

from apps.agent_server import results
from apps.agent_server.consumers.http_request import JSON, Consumer, Exchange
from apps.agent_server.consumers.join_run import JoinsRun
from apps.agent_server.consumers.sse_relay import own_address, until_end
from apps.agent_server.errors import InvalidId, NothingToCancel, NothingToCancelAtAll, RunNotFound
from apps.agent_server.schemas.runs import RunsToStop
from apps.agent_server.services import cancel_runs, runs
from apps.agent_server.services.cancel_runs import Action
from apps.agent_server.streaming.hub import hub
from apps.core.errors import Invalid
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

STOP_SECONDS = 12.0
"""Within so long the engine leaves behind what does not stop."""


def _action(exchange: Exchange) -> Action:
    match exchange.query.get("action", ["interrupt"])[-1]:
        case "interrupt" | "rollback" as given:
            return cast("Action", given)
    raise Invalid("action: must be 'interrupt' or 'rollback'")


class CancelRun(JoinsRun):
    """`POST .../runs/{id}/cancel`: has the run stop; with `wait`, answers when it has."""

    methods = ("POST",)
    on_thread = True
    permission = Permission.AGENTS_RUN
    action = "update"

    async def handle(self, exchange: Exchange) -> None:
        if not exchange.flag("wait"):
            await in_thread(self.cancel, exchange)
            await exchange.start(status=202)
            await exchange.finish()
            return
        run_id = exchange.uuid("run_id", InvalidId)
        # Listens first, so that it cannot miss the end that it asks for.
        async with hub().open(run_id, None) as reader:
            await in_thread(self.cancel, exchange)
            place = own_address(exchange)[1].removesuffix(b"/cancel") + b"/join"
            await exchange.start(JSON, (b"location", place))
            async with exchange.kept_alive(reader.nudge):
                end = await until_end(exchange, reader)
        if end is not None:
            await exchange.finish(b"{}")
        elif exchange.refusal is not None:
            await exchange.finish(results.of_refusal(exchange.refusal))

    def cancel(self, exchange: Exchange) -> None:
        """Let the caller in and ask the run to stop; for a thread."""
        action = _action(exchange)
        scope, run = self.find(exchange)
        if run is None or not cancel_runs.cancel(scope, action, run_ids=[run.run_id]):
            raise NothingToCancel


class CancelRuns(Consumer):
    """`POST /runs/cancel`: has several runs stop."""

    async def handle(self, exchange: Exchange) -> None:
        await in_thread(self.cancel, exchange, await exchange.body())
        await exchange.start(status=204)
        await exchange.finish()

    def cancel(self, exchange: Exchange, raw: bytes) -> None:
        admission = exchange.admit(Permission.AGENTS_RUN)
        action, body = _action(exchange), RunsToStop.parse(raw)
        named = {"thread_id": str(body.thread_id)} if body.thread_id else {}
        scope = admission.scope("threads", "update", **named)
        stopped = cancel_runs.cancel(
            scope,
            action,
            thread_id=body.thread_id,
            run_ids=body.run_ids,
            status=body.status or "all",
        )
        if not stopped:
            raise NothingToCancelAtAll


class DeleteRun(JoinsRun):
    """`DELETE .../runs/{id}`: removes the run; one that is under way stops first."""

    methods = ("DELETE",)
    on_thread = True
    permission = Permission.AGENTS_RUN
    action = "delete"

    async def handle(self, exchange: Exchange) -> None:
        scope, run = await in_thread(self.find, exchange)
        if run is None:
            raise RunNotFound
        if run.is_open:
            await _stopped(
                run.run_id,
                lambda: cancel_runs.cancel(
                    scope, "interrupt", run_ids=[run.run_id], status="running"
                ),
            )
        await in_thread(runs.delete, scope, exchange.uuid("thread_id", InvalidId), run.run_id)
        await exchange.start(status=204)
        await exchange.finish()


async def _stopped(run_id: UUID, stop: Callable[[], int]) -> None:
    """Ask the run to stop, and give it the time; who cannot wait for ever goes on without."""
    async with hub().open(run_id, None) as reader:
        if not await in_thread(stop):
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while not any(event.name == b"end" for event in await reader.next()):
                    pass
        except TimeoutError:
            return
