"""Duration and outcome of Celery tasks, recorded in the worker."""

from __future__ import annotations

import time
from typing import Any

from celery import signals

from apps.core.observability import metrics

_started_at: dict[str, float] = {}


@signals.task_prerun.connect
def record_start(task_id: str = "", **_: Any) -> None:
    _started_at[task_id] = time.perf_counter()


@signals.task_postrun.connect
def record_end(task_id: str = "", task: Any = None, state: str | None = None, **_: Any) -> None:
    started_at = _started_at.pop(task_id, None)
    if started_at is not None:
        outcome = (state or "unknown").lower()
        metrics.tasks.labels(task.name, outcome).observe(time.perf_counter() - started_at)
