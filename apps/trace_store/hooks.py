"""Steps that apps above the store add to the post-processing of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from apps.trace_store.types import ChangedRun

PostprocessStep = Callable[[UUID, Sequence[ChangedRun]], None]
"""Called with a workspace and its changed runs, in the transaction that completes their entries.

A step may see the same run again at any time, so it must be idempotent.
"""

postprocess_steps: list[PostprocessStep] = []


def register_postprocess_step(step: PostprocessStep) -> None:
    """Run `step` after every change of runs. Apps call this in `AppConfig.ready`."""
    if step not in postprocess_steps:
        postprocess_steps.append(step)
