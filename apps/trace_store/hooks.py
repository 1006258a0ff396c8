"""Extension points for apps above the store: post-processing steps and SQL for removals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from apps.trace_store.types import ChangedRun

PostprocessStep = Callable[[UUID, Sequence[ChangedRun]], None]
"""Called with a workspace and its changed runs, in the transaction that completes their entries.

A step may see the same run again at any time, so it must be idempotent.
"""

postprocess_steps: list[PostprocessStep] = []
removal_statements: list[str] = []


def register_postprocess_step(step: PostprocessStep) -> None:
    """Run `step` after every change of runs. Apps call this in `AppConfig.ready`."""
    if step not in postprocess_steps:
        postprocess_steps.append(step)


def register_removal(statement: str) -> None:
    """Execute the SQL in the transaction of every removal of runs, to remove related rows.

    The placeholder `{runs}` is replaced by the removed runs: a relation (a batch or a day) with the
    columns `workspace_id`, `id`, `project_id`, `trace_id` and `is_root`. Apps call this in
    `AppConfig.ready`.
    """
    if statement not in removal_statements:
        removal_statements.append(statement)
