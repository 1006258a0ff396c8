"""Retention defaults, their overrides, and partition sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from django.conf import settings

from apps.operators.system_status import Partition
from apps.tracing.models import Retention

MAX_EXCEPTIONS = 200


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
    partitions: list[Partition]

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    @property
    def size(self) -> int:
        return sum(partition.size for partition in self.partitions)


def tables(partitions: Iterable[Partition]) -> list[Table]:
    """Group partitions by table, in the given order."""
    by_name = groupby(partitions, lambda partition: partition.table)
    return [Table(name, list(days)) for name, days in by_name]


def default_retention() -> list[RetentionInfo]:
    """Return the retention that applies without an override."""
    return [
        RetentionInfo("Long-lived traces", settings.TRACE_RETENTION_DAYS, "TRACE_RETENTION_DAYS"),
        RetentionInfo(
            "Short-lived traces", settings.TRACE_RETENTION_SHORT_DAYS, "TRACE_RETENTION_SHORT_DAYS"
        ),
        RetentionInfo("Webhook delivery log", settings.WEBHOOK_LOG_DAYS, "WEBHOOK_LOG_DAYS"),
        RetentionInfo("Audit log", 0, "manage.py prune_audit_log"),
    ]


def retention_overrides() -> list[Retention]:
    """Return the overrides of organizations and workspaces, latest first."""
    rows = Retention.objects.select_related("organization", "workspace__organization")
    return list(rows.order_by("-updated_at")[:MAX_EXCEPTIONS])
