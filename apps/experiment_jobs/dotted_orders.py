"""The positions of an experiment's root runs in their traces."""

from __future__ import annotations

from apps.experiment_jobs.models import ExperimentStep
from apps.trace_store.dotted_order import format_segment


def step_dotted_order(step: ExperimentStep) -> str:
    """The dotted order of the root run of a step that has started."""
    assert step.started_at is not None  # noqa: S101  (set before the run is created)
    return format_segment(step.started_at, step.pk)
