"""Metrics of one agent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import redis
from django.conf import settings

from apps.agent_server import prepared_sql
from apps.agent_server.messaging.messages import CANCELS
from apps.agent_server.scope import Scope
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
    waited: float
    """Seconds that the first runnable pending run has been waiting."""
    slots: int
    """Total run capacity of the live workers, which all agents share."""
    answers: dict[int, int]
    """Number of responses by status."""

    def as_json(self) -> dict[str, object]:
        return {
            "queue": {
                "n_pending": self.pending,
                "n_running": self.running,
                "pending_runs_wait_time_max_secs": round(self.waited, 3),
            },
            "workers": {
                "max": self.slots,
                "active": self.running,
                "available": max(0, self.slots - self.running),
            },
            "api": {
                "requests": sum(self.answers.values()),
                "by_status": {str(status): count for status, count in self.answers.items()},
            },
        }

    def as_text(self, agent: str) -> str:
        """The metrics in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self._lines(f'agent="{agent}"'))

    def _lines(self, label: str) -> Iterator[str]:
        yield from _gauge("agent_runs_pending", "Runs that wait.", label, self.pending)
        yield from _gauge("agent_runs_running", "Runs under way.", label, self.running)
        yield from _gauge(
            "agent_runs_wait_seconds", "How long the first has waited.", label, self.waited
        )
        yield from _gauge(
            "agent_workers_slots", "Runs that all workers execute at once.", label, self.slots
        )
        name = "slipway_agent_http_requests_total"
        yield f"# HELP {name} Answered requests."
        yield f"# TYPE {name} counter"
        for status, count in self.answers.items():
            yield f'{name}{{{label},status="{status}"}} {count}'


def _gauge(name: str, help_text: str, label: str, value: float) -> Iterator[str]:
    yield f"# HELP slipway_{name} {help_text}"
    yield f"# TYPE slipway_{name} gauge"
    yield f"slipway_{name}{{{label}}} {value:g}"


def collect(scope: Scope) -> Metrics:
    """Read the current values: one query on the index of open runs, two Redis commands."""
    pending, running, waited = prepared_sql.fetch_row(_QUEUE, scope.key) or (0, 0, 0.0)
    slots = _engines() * settings.AGENT_RUNS_PER_WORKER
    return Metrics(
        pending, running, max(0.0, waited), slots, traffic.responses_for(scope.route.slug)
    )


def _engines() -> int:
    """The number of live workers; each subscribes to the channel of cancelled runs."""
    try:
        [(_, count)] = _client().pubsub_numsub(CANCELS)
    except redis.RedisError:
        return 0
    return int(count)


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=1,
        socket_connect_timeout=1,
        client_name="slipway-metrics",
    )
