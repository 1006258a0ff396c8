"""Metrics of `/metrics`: gauges of the system status on scrape, and durations of Celery tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from celery import signals
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from apps.core.observability import metrics
from apps.operators import system_status

_GAUGES = {
    "pending": ("agent_runs_pending", "Agent runs waiting for a worker."),
    "running": ("agent_runs_running", "Running agent runs."),
    "busy_workers": ("workers_busy", "Workers with running agent runs."),
    "busy_hosts": ("graph_hosts_busy", "Graph hosts (revisions) with running agent runs."),
    "pending_run_batches": (
        "pending_run_batches",
        "Batches of runs that wait for post-processing.",
    ),
    "deferred": ("deferred_operations", "Run operations that wait for another run."),
    "deletions": ("deletions_pending", "Unfinished deletions of traces."),
    "waiting": ("revisions_waiting", "Revisions waiting to be built."),
    "building": ("revisions_building", "Revisions that are being built or deployed."),
    "size": ("database_bytes", "Size of the database."),
    "connections": ("database_connections", "Connections to the database."),
}


class StatusCollector(Collector):
    """Collects gauges; labels contain no tenant data."""

    def collect(self) -> Iterator[Metric]:
        status = system_status.collect()
        up = GaugeMetricFamily(
            "slipway_up", "Whether a component of the platform is up.", labels=["part"]
        )
        for part, state in status.parts.items():
            up.add_metric([part], float(state == "ok"))
        yield up
        queues = GaugeMetricFamily(
            "slipway_queue_messages", "Messages waiting in a queue.", labels=["queue"]
        )
        for queue, length in status.queues.items():
            if length is not None:
                queues.add_metric([queue], length)
        yield queues
        for name, (metric, description) in _GAUGES.items():
            yield GaugeMetricFamily(f"slipway_{metric}", description, value=status.counts[name])


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
