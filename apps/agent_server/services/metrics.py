"""Metrics of one agent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.conf import settings

from apps.agent_server import prepared_sql
from apps.agent_server.scope import Scope
from apps.agent_server.services import queue_limits, run_usage
from apps.agent_server.web import traffic

# Open runs are few, and the index `agent_run_open` holds nothing else.
_QUEUE = """
SELECT count(*) FILTER (WHERE status = 'pending'),
    count(*) FILTER (WHERE status = 'running'),
    coalesce(extract(epoch FROM clock_timestamp()
        - min(available_at) FILTER (WHERE status = 'pending')), 0)::float8
FROM agent_server_agentrun
WHERE status IN ('pending', 'running') AND workspace_id = %s AND deployment_id = %s
"""


class Metrics(NamedTuple):
    pending: int
    running: int
    max_wait_seconds: float
    """How long the oldest runnable pending run has been waiting."""
    capacity: int
    """Concurrent runs of the live workers, which all agents share."""
    organization_pending: int
    responses: dict[int, int]
    """Number of responses by status."""

    def as_json(self) -> dict[str, object]:
        return {
            "queue": {
                "n_pending": self.pending,
                "n_running": self.running,
                "pending_runs_wait_time_max_secs": round(self.max_wait_seconds, 3),
            },
            "workers": {
                "max": self.capacity,
                "active": self.running,
                "available": max(0, self.capacity - self.running),
            },
            "api": {
                "requests": sum(self.responses.values()),
                "by_status": {str(status): count for status, count in self.responses.items()},
            },
        }

    def as_text(self, agent: str) -> str:
        """The metrics in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self._lines(f'agent="{agent}"'))

    def _lines(self, label: str) -> Iterator[str]:
        yield from _gauge("agent_runs_pending", "Pending runs.", label, self.pending)
        yield from _gauge(
            "agent_runs_pending_limit",
            "Highest permitted number of pending runs.",
            label,
            settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT,
        )
        yield from _gauge(
            "agent_organization_runs_pending",
            "Pending runs of the agent's organization.",
            label,
            self.organization_pending,
        )
        yield from _gauge(
            "agent_organization_runs_pending_limit",
            "Highest permitted number of pending runs of the agent's organization.",
            label,
            settings.MAX_QUEUED_RUNS,
        )
        yield from _gauge("agent_runs_running", "Running runs.", label, self.running)
        yield from _gauge(
            "agent_runs_wait_seconds",
            "Seconds that the oldest pending run has waited.",
            label,
            self.max_wait_seconds,
        )
        yield from _gauge(
            "agent_workers_slots", "Concurrent runs of all workers.", label, self.capacity
        )
        name = "slipway_agent_http_requests_total"
        yield f"# HELP {name} HTTP requests by response status."
        yield f"# TYPE {name} counter"
        for status, count in self.responses.items():
            yield f'{name}{{{label},status="{status}"}} {count}'


def _gauge(name: str, help_text: str, label: str, value: float) -> Iterator[str]:
    yield f"# HELP slipway_{name} {help_text}"
    yield f"# TYPE slipway_{name} gauge"
    yield f"slipway_{name}{{{label}}} {value:g}"


def collect(scope: Scope) -> Metrics:
    """Read the current values: one query on the index of open runs, two Redis commands."""
    pending, running, max_wait_seconds = prepared_sql.fetch_row(_QUEUE, scope.key) or (0, 0, 0.0)
    capacity = run_usage.count_workers() * settings.AGENT_RUNS_PER_WORKER
    return Metrics(
        pending,
        running,
        max(0.0, max_wait_seconds),
        capacity,
        sum(queue_limits.count_pending(scope.route.organization_id).values()),
        traffic.responses_for(scope.route.slug),
    )
