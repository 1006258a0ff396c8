"""The functions that workers run: trials, which someone waits for, before evaluations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from apps.evaluators.code.process import CodeReply
from apps.evaluators.services import code_evaluations, code_runs, code_trials, leases
from apps.evaluators.services.code_evaluations import EvaluationBatch
from apps.evaluators.services.code_trials import TrialJob

MAX_PROCESSES = 4
"""Of a worker; an organization has at most half of those that the others leave."""
CodeJob = EvaluationBatch | TrialJob


def has_due() -> bool:
    return code_trials.has_due() or leases.has_due(is_code=True)


class CodeQueue:
    """Functions to run, for a `CallWorker`."""

    def claim(self, limit: int, excluded: Collection[UUID]) -> Sequence[CodeJob]:
        trials = code_trials.claim(limit, excluded)
        rest = limit - len(trials)
        return [*trials, *(code_evaluations.claim(rest, excluded) if rest else ())]

    def extend(self, calls: Collection[CodeJob]) -> set[UUID]:
        batches = [call for call in calls if isinstance(call, EvaluationBatch)]
        held = leases.extend(item for batch in batches for item in batch.evaluations)
        return {call.id for call in calls if isinstance(call, TrialJob)} | {
            batch.id for batch in batches if any(item.id in held for item in batch.evaluations)
        }

    async def make(self, claimed: CodeJob) -> list[CodeReply | None] | datetime:
        subjects = claimed.subjects if isinstance(claimed, EvaluationBatch) else [claimed.subject]
        return await code_runs.run_code(claimed.code, claimed.uid, subjects)

    def record_end(self, claimed: CodeJob, result: Sequence[CodeReply | None]) -> None:
        if isinstance(claimed, EvaluationBatch):
            code_evaluations.record_end(claimed, result)
        else:
            code_trials.record_end(claimed, result[0] or _NO_TIME)

    def postpone(self, claimed: CodeJob, due_at: datetime) -> None:
        if isinstance(claimed, EvaluationBatch):
            code_evaluations.postpone(claimed, due_at)
        else:
            code_trials.record_end(claimed, _NO_PROCESS)


_NO_TIME = CodeReply(error="There was no time left to run the function. Try again.")
_NO_PROCESS = CodeReply(error="No process could be started for the function. Try again.")
