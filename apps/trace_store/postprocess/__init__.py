"""What follows from runs that came, done after their request was answered: docs/adr/0019.

A request appends the keys of the runs it touched to `tracing_unsettled`; `settler` takes them up
and gives them to each step. A step is a module with `settle(workspace_id, touched) -> None`. It
works in the settler's transaction, alone in its workspace, and may see the same run again at any
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, order=True)
class Touched:
    """A run that a request wrote: its whole key, and its trace."""

    run_id: UUID
    project_id: UUID
    placed_at: datetime
    trace_id: UUID


STEPS: tuple[str, ...] = (
    "apps.trace_store.postprocess.terms",
    "apps.trace_store.postprocess.feedback",
    "apps.trace_store.pricing.settling",
    "apps.trace_store.store.rollups",
    "apps.trace_store.store.threads",
    "apps.trace_store.postprocess.sums",
)
"""Modules in their order: what locks rows of runs comes last, so that no request waits long."""
