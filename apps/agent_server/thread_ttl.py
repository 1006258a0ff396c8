"""Times to live: deletes inactive threads and old checkpoints.

The time to live is the thread's own; interval and size of a sweep come from `checkpointer.ttl` in
the deployment's `langgraph.json`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.utils import timezone

from apps.agent_server.services import checkpoints, delete_threads
from apps.agent_server.statuses import TTLStrategy
from apps.core.json import loads

MAX_THREADS_PER_SWEEP = 1_000
"""Threads of one deployment in one sweep, unless its configuration sets a lower limit."""
INTERVAL_MINUTES = 5.0
MAX_DEPLOYMENTS = 1_000

_DUE = """
SELECT d.id, coalesce(r.config #> '{checkpointer,ttl}', '{}')::text
FROM deployments_deployment d
LEFT JOIN deployments_revision r ON r.id = d.active_revision_id
WHERE d.id IN (
    SELECT deployment_id FROM agent_server_thread
    WHERE ttl_until < clock_timestamp() AND NOT temporary
)
ORDER BY d.id LIMIT %s
"""
_EXPIRED = """
SELECT t.id, t.ttl_strategy, t.ttl_minutes
FROM agent_server_thread t
WHERE t.ttl_until < clock_timestamp() AND NOT t.temporary AND t.deployment_id = %s
  AND NOT EXISTS (
      SELECT 1 FROM agent_server_agentrun r
      WHERE r.thread_id = t.id AND r.status IN ('pending', 'running')
  )
ORDER BY t.ttl_until LIMIT %s
"""


class SweepPolicy(NamedTuple):
    """Interval and size of a deployment's sweeps."""

    interval_minutes: float
    limit: int

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SweepPolicy:
        interval = config.get("sweep_interval_minutes") or INTERVAL_MINUTES
        limit = config.get("sweep_limit") or MAX_THREADS_PER_SWEEP
        return cls(float(interval), max(1, min(int(limit), MAX_THREADS_PER_SWEEP)))

    def is_due(self, minute: int) -> bool:
        """Whether a sweep falls into this minute since 1970."""
        every = max(1, round(self.interval_minutes))
        return minute % every == 0


def sweep(*, always: bool = False) -> int:
    """Apply expired times to live; return the number of threads. Safe to repeat.

    Called every minute; `always` ignores the deployments' own intervals.
    """
    minute, swept = int(time.time() // 60), 0
    for deployment, config in _rows(_DUE, [MAX_DEPLOYMENTS]):
        policy = SweepPolicy.from_config(loads(config))
        if always or policy.is_due(minute):
            swept += _sweep_deployment(deployment, policy)
    return swept


def _sweep_deployment(deployment: UUID, policy: SweepPolicy) -> int:
    by_strategy: dict[str, list[tuple[UUID, float]]] = defaultdict(list)
    for pk, strategy, minutes in _rows(_EXPIRED, [deployment, policy.limit]):
        by_strategy[strategy].append((pk, minutes))
    deleted = delete_threads.delete_rows([pk for pk, _ in by_strategy[TTLStrategy.DELETE]])
    now, pruned = timezone.now(), 0
    for pk, minutes in by_strategy[TTLStrategy.KEEP_LATEST]:
        pruned += checkpoints.keep_latest(pk, before=now - timedelta(minutes=minutes))
    return deleted + pruned


def _rows(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
