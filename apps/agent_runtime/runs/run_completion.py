"""What becomes of an attempt that is over: the run ends, is undone, or is tried again."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from apps.agent_runtime.db.write_batch import Claimed, Release, Stale, Undoing, Unwanted
from apps.agent_runtime.graph_calls.call_session import Question
from apps.agent_runtime.hosts.graph_host import HostFailed, RevisionRef
from apps.agent_runtime.hosts.isolation import company_after
from apps.agent_runtime.runs.run_result import Outcome, ending, see
from apps.core import metrics
from apps.usage import meter

if TYPE_CHECKING:
    from apps.agent_runtime.engine import Engine

logger = logging.getLogger(__name__)

START_AGAIN_SECONDS = 1.0
"""What kept a host from starting, such as a full machine, may be over by then."""
LOOK_SECONDS = 20.0
"""How long a graph host, perhaps a new one, may take to tell a thread's state."""


class Attempts:
    """Decides for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.under_way: set[UUID] = set()
        """Runs whose end is not written yet."""

    async def finish(
        self,
        claimed: Claimed,
        told: dict[str, Any],
        *,
        timed_out: bool = False,
        unwanted: bool = False,
    ) -> None:
        """Write how a run ended, then tell those who listen. An `unwanted` one is undone."""
        self.under_way.add(claimed.run_id)
        outcome = ending(claimed, told, timed_out=timed_out)
        try:
            if told.get("is_unknown") and not unwanted:
                await self._look(claimed, outcome)
            if not unwanted:
                try:
                    last = self._engine.voice.close(claimed, outcome)
                    await self._engine.ledger.write(outcome.ending)
                except Unwanted:
                    unwanted = True
            if unwanted:
                await self._engine.ledger.write(Undoing(claimed.token, claimed.thread))
                outcome.ending.status, outcome.error_event = "interrupted", None
                last = self._engine.voice.close(claimed, outcome)
        except Stale:
            logger.warning("Run %s had ended elsewhere.", claimed.run_id)
            return
        finally:
            self.under_way.discard(claimed.run_id)
        seconds = time.monotonic() - claimed.claimed_at
        meter.add(claimed.workspace_id, agent_runs=1, agent_seconds=seconds)
        metrics.agent_runs.labels(outcome.ending.status).inc()
        self._engine.voice.release(last)

    async def _look(self, claimed: Claimed, outcome: Outcome) -> None:
        """Read from its checkpoints what a run left that could not say it itself."""
        if claimed.revision_id is None:
            return
        revision = RevisionRef(claimed.revision_id, claimed.deployment_id, claimed.workspace_id)
        thread_id = str(claimed.thread_id)
        params = b'{"thread_id":"' + thread_id.encode() + b'"}'
        question = Question(revision, claimed.graph_id, "state", claimed.thread, thread_id, params)
        reply = await self._engine.ask(question, LOOK_SECONDS)
        if reply.done:
            with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError):
                see(outcome, reply.body)

    async def end_unbegun(self, claimed: Claimed) -> None:
        """End a claimed run that is not to be tried: it was to stop, or it was lost too often."""
        if claimed.cancel_action:
            told: dict[str, Any] = {"status": "cancelled"}
        else:
            times = claimed.losses
            message = f"The process that executed the run was lost in each of {times} attempts."
            told = {"status": "error", "error": {"error": "WorkerLost", "message": message}}
        told["is_unknown"] = claimed.attempt > 1
        await self.finish(claimed, told, unwanted=claimed.cancel_action == "rollback")

    async def host_died(self, claimed: Claimed, reason: str, together: int) -> None:
        """Try the run again from its last checkpoint, or give it up after enough attempts.

        A run that was alone on its host lost the attempt; of several, nobody knows which one did
        it, and each goes on in smaller company.
        """
        alone = together <= 1
        losses = claimed.losses + alone
        if losses >= self._engine.options.max_attempts:
            message = f"The agent's process ended in each of {losses} attempts. {reason}"
            await self._give_up(claimed, "GraphHostDied", message)
            return
        logger.warning(
            "The graph host of run %s died under %s runs: %s", claimed.run_id, together, reason
        )
        await self.again(claimed, lost=alone, company=company_after(together))

    async def host_failed(self, claimed: Claimed, failure: HostFailed) -> None:
        """No host could be started: try again, unless that is of no use."""
        losses = claimed.losses + 1
        if failure.is_lasting or losses >= self._engine.options.max_attempts:
            await self._give_up(claimed, "HostFailed", str(failure))
            return
        logger.warning("No graph host for run %s: %s", claimed.run_id, failure)
        delay = START_AGAIN_SECONDS * losses
        await self.again(claimed, lost=True, company=claimed.company, delay=delay)

    async def _give_up(self, claimed: Claimed, name: str, message: str) -> None:
        error = {"error": name, "message": message}
        told = {"status": "error", "error": error, "is_unknown": claimed.attempt > 1}
        await self.finish(claimed, told)

    async def again(
        self, claimed: Claimed, *, lost: bool, company: int, delay: float = 0.0
    ) -> None:
        """Give the run back, and have it claimed when its time comes."""
        self._engine.voice.fall_silent(claimed)
        with contextlib.suppress(Stale):
            await self._engine.ledger.write(Release(claimed.token, lost, company, delay))
            self._engine.execute(claimed.thread)
            self._engine.alarm.ring()
