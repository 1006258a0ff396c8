"""Gauges of `/metrics` that are collected on scrape from the system status."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from apps.operators import system_status

_GAUGES = {
    "pending": ("agent_runs_pending", "Agent runs waiting for a worker."),
    "running": ("agent_runs_running", "Running agent runs."),
    "busy_workers": ("workers_busy", "Workers with running agent runs."),
    "busy_hosts": ("graph_hosts_busy", "Graph hosts (revisions) with running agent runs."),
    "unsettled": ("pending_run_batches", "Batches of runs that wait for post-processing."),
    "held": ("deferred_operations", "Run operations that wait for another run."),
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
