"""What `/metrics` says beyond what was counted: how the installation stands now."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from apps.operators import system_status

_FIGURES = {
    "pending": ("agent_runs_pending", "Runs of agents that wait for a worker."),
    "running": ("agent_runs_running", "Runs of agents that are at work."),
    "busy_workers": ("workers_busy", "Workers that execute runs of agents."),
    "busy_hosts": ("graph_hosts_busy", "Graph hosts (revisions) that execute runs."),
    "unsettled": ("pending_run_batches", "Batches of runs that wait for post-processing."),
    "held": ("deferred_operations", "Run operations that wait for another run."),
    "deletions": ("deletions_pending", "Deletions of traces that go on."),
    "waiting": ("revisions_waiting", "Revisions that wait to be built."),
    "building": ("revisions_building", "Revisions that are being built or deployed."),
    "size": ("database_bytes", "Size of the database."),
    "connections": ("database_connections", "Connections to the database."),
}


class StatusCollector(Collector):
    """Gauges of this moment; nothing of a tenant is a label."""

    def collect(self) -> Iterator[Metric]:
        found = system_status.collect()
        up = GaugeMetricFamily(
            "slipway_up", "Whether a part of the platform lives.", labels=["part"]
        )
        for part, state in found.parts.items():
            up.add_metric([part], float(state == "ok"))
        yield up
        queues = GaugeMetricFamily(
            "slipway_queue_messages", "Messages that wait in a queue.", labels=["queue"]
        )
        for queue, length in found.queues.items():
            if length is not None:
                queues.add_metric([queue], length)
        yield queues
        for name, (metric, what) in _FIGURES.items():
            yield GaugeMetricFamily(f"slipway_{metric}", what, value=found.figures[name])
