"""What is counted, for Prometheus.

Each process counts into files of its own (prometheus-client's multi-process mode: a memory map,
which survives a `kill -9`), in `DATA_DIR/run/metrics/<host>/`; whoever answers `/metrics` adds up
the files of all processes that share the data folder, so one scrape tells of every web process,
worker and beat. The supervisor empties the folder when it starts. What can be asked for at any time
(queues, hosts, partitions) is not counted but looked up: apps/operators/collectors.py.

Labels come from routes, statuses and tables in code, never from what a client sends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from django.conf import settings

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def folder() -> Path:
    """Where all hosts' processes of this data folder count."""
    return Path(settings.DATA_DIR) / "run" / "metrics"


def _make_own_folder() -> None:
    """prometheus-client looks at the environment once, when it is imported.

    A command of somebody who may not write there counts in its memory alone.
    """
    own = folder() / socket.gethostname()
    with suppress(OSError):
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ[_VARIABLE] = str(own)


_make_own_folder()

from prometheus_client import (  # noqa: E402
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector  # noqa: E402
from prometheus_client.registry import Collector  # noqa: E402

# The files are what is read; no process shows its own numbers alone.
_REGISTRY = CollectorRegistry()
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def _counter(name: str, what: str, *labels: str) -> Counter:
    return Counter(name, what, labels, namespace="slipway", registry=_REGISTRY)


def _histogram(name: str, what: str, *labels: str) -> Histogram:
    return Histogram(name, what, labels, namespace="slipway", registry=_REGISTRY, buckets=_SECONDS)


requests = _histogram(
    "http_request_seconds",
    "Time to the beginning of the answer.",
    "method",
    "route",
    "status",
)
limits = _counter(
    "rate_limit_checks",
    "Requests counted on a row of the limit table; unchecked ones passed while Redis was away.",
    "category",
    "outcome",
)
ingested_runs = _counter("ingested_runs", "Run operations that were accepted.", "wire")
ingested_bytes = _counter("ingested_bytes", "Bytes of accepted run operations.", "wire")
refused_ingest = _counter("ingest_refused", "Requests with runs that were turned away.", "reason")
agent_runs = _counter("agent_runs_ended", "Runs of agents that came to an end.", "status")
tasks = _histogram("task_seconds", "Time that a task took.", "task", "outcome")

NO_ROUTE = "none"
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_children: dict[tuple[str, str, int], Histogram] = {}


def answered(method: str, route: str, status: int, seconds: float) -> None:
    """A request was answered; `route` is the pattern, so that ids are in no label."""
    key = method, route, status
    child = _children.get(key)
    if child is None:
        # A method is what a client likes it to be.
        known = method if method in _METHODS else "other"
        child = _children[known, route, status] = requests.labels(known, route, str(status))
    child.observe(seconds)


class _Summed(Collector):
    """The numbers of every process of every host that shares the data folder."""

    def collect(self) -> Iterable[Metric]:
        found: Iterable[Metric] = MultiProcessCollector.merge(  # type: ignore[no-untyped-call]
            [str(path) for path in folder().glob("*/*.db")]
        )
        return found


def exposition(*others: Collector) -> bytes:
    """Everything in Prometheus' text format, with what `others` look up now."""
    registry = CollectorRegistry()
    for collector in (_Summed(), *others):
        registry.register(collector)
    return generate_latest(registry)
