"""What an experiment runs on each example: the interface between jobs and their runs.

A runner creates a row for each run in the transaction that starts it, and something else executes
that row. Runners of higher apps register themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from apps.deployments.models import Deployment
    from apps.experiment_jobs.models import ExperimentJob, ExperimentStep

AGENT = "agent"


class RunnerBusy(Exception):
    """No further run can be started now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTarget:
    """What a new job runs."""

    name: str
    """The beginning of the experiment's name."""
    metadata: dict[str, Any]
    """Of the experiment."""
    deployment: Deployment | None = None
    assistant_id: UUID | None = None
    content: dict[str, Any] | None = None
    """What the runner needs of the target, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRunEnd:
    """The end of a run."""

    ended_at: datetime | None = None
    outputs: msgspec.Raw | None = None
    error: str | None = None
    """None for a success."""
    is_interrupted: bool = False
    """Whether it was stopped before its end."""
    thread: UUID | None = field(default=None)
    """The agent's thread that nothing needs any more."""


class Runner(Protocol):
    """Starts the runs of jobs and reads their ends, in the transactions of the caller."""

    def check(self, job: ExperimentJob) -> bool:
        """Whether runs can start now. Raises an `AppError` if none can ever start."""

    def start(self, job: ExperimentJob, step: ExperimentStep, inputs: dict[str, Any]) -> UUID:
        """Create the run of a step and return its id.

        Raises `RunnerBusy`, or an `AppError` that is the result of the step.
        """

    def find_ended(self, job: ExperimentJob, run_ids: Sequence[UUID]) -> list[UUID]:
        """The ids of runs that have ended or were deleted, in order."""

    def read_ends(
        self, job: ExperimentJob, run_ids: Sequence[UUID]
    ) -> dict[UUID, ExperimentRunEnd]:
        """The end of each of these runs; that of a deleted one is an error."""

    def release(self, job: ExperimentJob, ends: Sequence[ExperimentRunEnd]) -> None:
        """Called after the ends were recorded."""

    def stop(self, job: ExperimentJob, run_ids: Sequence[UUID]) -> None:
        """Interrupt the open runs."""

    def root_name(self, job: ExperimentJob) -> str:
        """The name of the root runs."""


_runners: dict[str, Runner] = {}


def register_runner(name: str, runner: Runner) -> None:
    """Let jobs with this runner be executed. Called when the apps are loaded."""
    _runners[name] = runner


def get_runner(job: ExperimentJob) -> Runner:
    return _runners[job.runner]
