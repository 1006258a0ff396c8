"""Completes attempts: commits the result, rolls the run back, or returns it to the queue."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from apps.agent_runtime.db.group_commit import GroupCommitWriter
from apps.agent_runtime.db.write_batch import (
    STATE_UNKNOWN,
    ClaimedRun,
    RollbackRequested,
    RunRelease,
    RunRollback,
    StaleToken,
)
from apps.agent_runtime.graph_calls.call_session import CallResult, GraphCall
from apps.agent_runtime.hosts.graph_host import HostFailed
from apps.agent_runtime.hosts.isolation import next_group_size
from apps.agent_runtime.hosts.launch import RevisionRef
from apps.agent_runtime.runs.event_publisher import EventPublisher
from apps.agent_runtime.runs.run_result import RunResult, add_state, build_result
from apps.core.observability import metrics
from apps.usage import meter

logger = logging.getLogger(__name__)

START_RETRY_SECONDS = 1.0
"""Delay after a failed host start, multiplied by the number of failures."""
STATE_READ_SECONDS = 20.0
"""Time limit for reading a thread's state through a graph host that may have to be started."""


class RunCompletion:
    """Completes the attempts of one engine."""

    def __init__(
        self,
        writer: GroupCommitWriter,
        publisher: EventPublisher,
        *,
        max_attempts: int,
        call_graph: Callable[[GraphCall, float], Awaitable[CallResult]],
        requeue: Callable[[UUID], None],
    ) -> None:
        """`requeue(thread)` claims the thread's next run now or when it is due."""
        self._writer = writer
        self._publisher = publisher
        self._max_attempts = max_attempts
        self._call_graph = call_graph
        self._requeue = requeue
        self.pending: set[UUID] = set()
        """Runs whose end is not committed yet."""

    async def finish(
        self,
        run: ClaimedRun,
        outcome: dict[str, Any],
        *,
        timed_out: bool = False,
        rollback: bool = False,
    ) -> None:
        """Commit the end of a run, or its rollback, then publish the last events."""
        self.pending.add(run.run_id)
        result = build_result(run, outcome, timed_out=timed_out)
        try:
            run_end = result.run_end
            if run_end.state is STATE_UNKNOWN and run_end.values is None and not rollback:
                await self._read_state(run, result)
            if not rollback:
                try:
                    last_events = self._publisher.close_stream(run, result)
                    await self._writer.write(result.run_end)
                except RollbackRequested:
                    rollback = True
            if rollback:
                is_unreported = result.run_end.is_unreported
                await self._writer.write(RunRollback(run.token, run.thread, is_unreported))
                result.run_end.status, result.error_event = "interrupted", None
                last_events = self._publisher.close_stream(run, result)
        except StaleToken:
            logger.warning("Run %s has been completed by another attempt.", run.run_id)
            return
        finally:
            self.pending.discard(run.run_id)
        seconds = time.monotonic() - run.claimed_at
        meter.add(run.workspace_id, agent_runs=1, agent_seconds=seconds)
        metrics.agent_runs.labels(result.run_end.status).inc()
        self._publisher.send(last_events)

    async def _read_state(self, run: ClaimedRun, result: RunResult) -> None:
        """Read the thread's state from its checkpoints, for a host that could not report it."""
        if run.revision_id is None:
            return
        revision = RevisionRef(run.revision_id, run.deployment_id, run.workspace_id)
        thread_id = str(run.thread_id)
        params = b'{"thread_id":"' + thread_id.encode() + b'"}'
        call = GraphCall(revision, run.graph_id, "state", run.thread, thread_id, params)
        reply = await self._call_graph(call, STATE_READ_SECONDS)
        if reply.succeeded:
            with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError):
                add_state(result, reply.body)

    async def finish_without_start(self, run: ClaimedRun) -> None:
        """End a claimed run without an attempt: it is cancelled, or was lost too often."""
        if run.cancel_action:
            outcome: dict[str, Any] = {"status": "cancelled"}
        else:
            message = (
                f"The process that executed the run was lost in each of {run.crash_count} attempts."
            )
            outcome = {"status": "error", "error": {"error": "WorkerLost", "message": message}}
        outcome["is_state_unknown"] = run.attempt > 1
        await self.finish(run, outcome, rollback=run.cancel_action == "rollback")

    async def retry_after_host_exit(self, run: ClaimedRun, reason: str, runs_on_host: int) -> None:
        """Retry the run from its last checkpoint, or fail it after `max_attempts` crashes.

        Only a run that was alone on its host is charged with the crash. Several runs are retried
        in smaller groups, since the faulty one is unknown.
        """
        was_alone = runs_on_host <= 1
        crash_count = run.crash_count + was_alone
        if crash_count >= self._max_attempts:
            message = f"The agent's process ended in each of {crash_count} attempts. {reason}"
            await self._fail(run, "GraphHostDied", message, is_unreported=True)
            return
        logger.warning(
            "The graph host of run %s exited while it executed %s runs: %s",
            run.run_id,
            runs_on_host,
            reason,
        )
        group_size = next_group_size(runs_on_host)
        await self._retry(run, crashed=was_alone, isolation_group_size=group_size)

    async def retry_after_start_failure(self, run: ClaimedRun, failure: HostFailed) -> None:
        """Retry the run later, unless the failure is permanent."""
        crash_count = run.crash_count + 1
        if failure.is_permanent or crash_count >= self._max_attempts:
            await self._fail(run, "HostFailed", str(failure))
            return
        logger.warning("Starting a graph host for run %s failed: %s", run.run_id, failure)
        await self._retry(
            run,
            crashed=True,
            isolation_group_size=run.isolation_group_size,
            delay_seconds=START_RETRY_SECONDS * crash_count,
        )

    async def _fail(
        self, run: ClaimedRun, name: str, message: str, *, is_unreported: bool = False
    ) -> None:
        outcome = {
            "status": "error",
            "error": {"error": name, "message": message},
            "is_state_unknown": run.attempt > 1,
            "is_unreported": is_unreported,
        }
        await self.finish(run, outcome)

    async def _retry(
        self,
        run: ClaimedRun,
        *,
        crashed: bool,
        isolation_group_size: int,
        delay_seconds: float = 0.0,
    ) -> None:
        self._publisher.discard(run)
        release = RunRelease(run.token, crashed, isolation_group_size, delay_seconds)
        with contextlib.suppress(StaleToken):
            await self._writer.write(release)
            self._requeue(run.thread)
