"""How long tasks take, and how they end: counted in the worker that did them."""

from __future__ import annotations

import time
from typing import Any

from celery import signals

from apps.core import metrics

_began: dict[str, float] = {}


@signals.task_prerun.connect
def begun(task_id: str = "", **_: Any) -> None:
    _began[task_id] = time.perf_counter()


@signals.task_postrun.connect
def ended(task_id: str = "", task: Any = None, state: str | None = None, **_: Any) -> None:
    began = _began.pop(task_id, None)
    if began is not None:
        outcome = (state or "unknown").lower()
        metrics.tasks.labels(task.name, outcome).observe(time.perf_counter() - began)
