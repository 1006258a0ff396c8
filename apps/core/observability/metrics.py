"""Prometheus metrics of all processes.

Each process writes to its own files (prometheus-client's multi-process mode: a memory map that
survives `kill -9`) in `DATA_DIR/run/metrics/<host>/`. `/metrics` aggregates the files of all
processes that share the data folder. The supervisor empties the folder at start. Values that can be
queried (queues, hosts, partitions) are collected on scrape: apps/operators/metrics.py.

Label values come from routes, statuses and tables in code, never from client input.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from django.conf import settings

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def metrics_folder() -> Path:
    """Return the folder of the metric files of all hosts."""
    return Path(settings.DATA_DIR) / "run" / "metrics"


def _create_host_folder() -> None:
    """Set prometheus-client's folder, which it reads once on import.

    A command of a user without write access to the folder counts in memory only.
    """
    host_folder = metrics_folder() / socket.gethostname()
    with suppress(OSError):
        host_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ[_VARIABLE] = str(host_folder)


_create_host_folder()

from prometheus_client import (  # noqa: E402
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector  # noqa: E402
from prometheus_client.registry import Collector  # noqa: E402

# Reads go through the files; a process never exposes its own values alone.
_REGISTRY = CollectorRegistry()
_BUCKET_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def _counter(name: str, description: str, *labels: str) -> Counter:
    return Counter(name, description, labels, namespace="slipway", registry=_REGISTRY)


def _histogram(name: str, description: str, *labels: str) -> Histogram:
    return Histogram(
        name, description, labels, namespace="slipway", registry=_REGISTRY, buckets=_BUCKET_SECONDS
    )


requests = _histogram(
    "http_request_seconds",
    "Time to the start of the response.",
    "method",
    "route",
    "status",
)
limits = _counter(
    "rate_limit_checks",
    "Requests per limit table row; `unchecked` ones passed while Redis was down.",
    "category",
    "outcome",
)
ingested_runs = _counter("ingested_runs", "Accepted run operations.", "wire")
ingested_bytes = _counter("ingested_bytes", "Bytes of accepted run operations.", "wire")
refused_ingest = _counter("ingest_refused", "Rejected ingest requests.", "reason")
agent_runs = _counter("agent_runs_ended", "Finished agent runs.", "status")
tasks = _histogram("task_seconds", "Duration of a task.", "task", "outcome")

NO_ROUTE = "none"
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_children: dict[tuple[str, str, int], Histogram] = {}


def observe_request(method: str, route: str, status: int, seconds: float) -> None:
    """Record a response; `route` is the URL pattern, so labels contain no ids."""
    key = method, route, status
    child = _children.get(key)
    if child is None:
        # Clients may send any string as method.
        label = method if method in _METHODS else "other"
        child = _children[label, route, status] = requests.labels(label, route, str(status))
    child.observe(seconds)


class _AggregatedMetrics(Collector):
    """Metrics of all processes of all hosts that share the data folder."""

    def collect(self) -> Iterable[Metric]:
        metrics: Iterable[Metric] = MultiProcessCollector.merge(  # type: ignore[no-untyped-call]
            [str(path) for path in metrics_folder().glob("*/*.db")]
        )
        return metrics


def render_metrics(*others: Collector) -> bytes:
    """Return all metrics in Prometheus' text format, including those of `others`."""
    registry = CollectorRegistry()
    for collector in (_AggregatedMetrics(), *others):
        registry.register(collector)
    return generate_latest(registry)
