"""The status of the installation: components, queues, partitions and retention."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import redis
from django.conf import settings
from django.db import connection

from apps.core.observability import readiness
from apps.core.ttl_cache import TTLCache
from apps.trace_store import run_store
from apps.tracing.models import Retention

QUEUES = ("runs", "periodic", "builds")
CACHE_SECONDS = 4.0
MAX_OVERRIDES = 200

_COUNTS = """
SELECT
    (SELECT count(*) FROM agent_server_agentrun WHERE status = 'pending') AS pending,
    (SELECT count(*) FROM agent_server_agentrun WHERE status = 'running') AS running,
    (SELECT count(*) FROM ingest_deferredoperation) AS deferred,
    (SELECT count(*) FROM tracing_tracedeletion WHERE finished_at IS NULL) AS deletions,
    (SELECT count(*) FROM deployments_revision
     WHERE status IN ('QUEUED', 'AWAITING_BUILD', 'AWAITING_DEPLOY')) AS waiting,
    (SELECT count(*) FROM deployments_revision
     WHERE status IN ('BUILDING', 'DEPLOYING')) AS building,
    pg_database_size(current_database()) AS size,
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections
"""
_HOSTS = """
SELECT count(DISTINCT lease_owner), count(DISTINCT revision_id) FROM agent_server_agentrun
WHERE status = 'running'
"""
_PARTITIONS = """
SELECT parent.relname, child.relname, greatest(child.reltuples, 0)::int8,
       pg_total_relation_size(child.oid), pg_get_expr(child.relpartbound, child.oid)
FROM pg_inherits i
JOIN pg_class parent ON parent.oid = i.inhparent AND parent.relkind = 'p'
JOIN pg_class child ON child.oid = i.inhrelid
ORDER BY parent.relname, child.relname DESC
"""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One day of a partitioned table; `rows` is PostgreSQL's estimate."""

    table: str
    name: str
    rows: int
    size: int
    bounds: str

    @property
    def first(self) -> str:
        """First day of the partition; empty if it is unbounded."""
        return self._day("FROM")

    @property
    def last(self) -> str:
        """First day after the partition; empty if it is unbounded."""
        return self._day("TO")

    def _day(self, keyword: str) -> str:
        match = re.search(rf"{keyword} \('(\d{{4}}-\d\d-\d\d)", self.bounds)
        return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """Components, queue lengths and row counts of the installation."""

    parts: dict[str, str]
    counts: dict[str, int]
    queues: dict[str, int | None]
    """Waiting messages by queue; None while Redis is unavailable."""
    heartbeats: dict[str, str] = field(default_factory=dict)
    """The host of each Celery role with a heartbeat."""

    @property
    def is_ready(self) -> bool:
        return all(state == "ok" for state in self.parts.values())


def collect() -> SystemStatus:
    """Return the status, at most `CACHE_SECONDS` old."""
    return _cache.get(None, _collect)


def _collect(_: None) -> SystemStatus:
    queues, heartbeats = _read_redis()
    return SystemStatus(readiness.check_components(), _read_counts(), queues, heartbeats)


_cache: TTLCache[None, SystemStatus] = TTLCache(CACHE_SECONDS)


def _read_counts() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS)
        row: tuple[Any, ...] = cursor.fetchone() or ()
        names = [column.name for column in cursor.description or ()]
        cursor.execute(_HOSTS)
        workers, hosts = cursor.fetchone() or (0, 0)
    return {
        **dict(zip(names, row, strict=True)),
        "busy_workers": workers,
        "busy_hosts": hosts,
        "pending_run_batches": run_store.count_pending_entries(),
    }


def _read_redis() -> tuple[dict[str, int | None], dict[str, str]]:
    roles = readiness.list_roles()
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2) as client:
            pipe = client.pipeline(transaction=False)
            for queue in QUEUES:
                pipe.llen(queue)
            pipe.mget([readiness.heartbeat_key(role) for role in roles])
            *lengths, values = pipe.execute()
    except redis.RedisError:
        return dict.fromkeys(QUEUES), {}
    by_role = dict(zip(roles, values, strict=True))
    return (
        dict(zip(QUEUES, lengths, strict=True)),
        {role: host.decode() for role, host in by_role.items() if host},
    )


def list_partitions() -> list[PartitionStatus]:
    """Return the partitions of every table partitioned by day, newest first."""
    with connection.cursor() as cursor:
        cursor.execute(_PARTITIONS)
        return [PartitionStatus(*row) for row in cursor]


@dataclass(frozen=True, slots=True)
class RetentionInfo:
    name: str
    days: int
    """0 means forever."""
    setting: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table partitioned by day."""

    name: str
    partitions: list[PartitionStatus]

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    @property
    def size(self) -> int:
        return sum(partition.size for partition in self.partitions)


def group_by_table(partitions: Iterable[PartitionStatus]) -> list[Table]:
    """Group partitions by table, in the given order."""
    by_name = groupby(partitions, lambda partition: partition.table)
    return [Table(name, list(days)) for name, days in by_name]


def list_default_retention() -> list[RetentionInfo]:
    """Return the retention that applies without an override."""
    return [
        RetentionInfo("Long-lived traces", settings.TRACE_RETENTION_DAYS, "TRACE_RETENTION_DAYS"),
        RetentionInfo(
            "Short-lived traces", settings.TRACE_RETENTION_SHORT_DAYS, "TRACE_RETENTION_SHORT_DAYS"
        ),
        RetentionInfo("Webhook delivery log", settings.WEBHOOK_LOG_DAYS, "WEBHOOK_LOG_DAYS"),
        RetentionInfo("Audit log", 0, "manage.py prune_audit_log"),
    ]


def list_retention_overrides() -> list[Retention]:
    """Return the overrides of organizations and workspaces, latest first."""
    rows = Retention.objects.select_related("organization", "workspace__organization")
    return list(rows.order_by("-updated_at")[:MAX_OVERRIDES])
