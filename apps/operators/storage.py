"""How long what is kept where."""

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
    what: str
    days: int
    """0 is for ever."""
    setting: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is cut by days."""

    name: str
    partitions: list[Partition]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.partitions)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.partitions)


def tables(partitions: Iterable[Partition]) -> list[Table]:
    """The partitions by their tables, in the order in which they come."""
    by_name = groupby(partitions, lambda one: one.table)
    return [Table(name, list(days)) for name, days in by_name]


def default_retention() -> list[RetentionInfo]:
    """What holds where nobody has said otherwise."""
    return [
        RetentionInfo("Long-lived traces", settings.TRACE_RETENTION_DAYS, "TRACE_RETENTION_DAYS"),
        RetentionInfo(
            "Short-lived traces", settings.TRACE_RETENTION_SHORT_DAYS, "TRACE_RETENTION_SHORT_DAYS"
        ),
        RetentionInfo("Webhook delivery log", settings.WEBHOOK_LOG_DAYS, "WEBHOOK_LOG_DAYS"),
        RetentionInfo("Audit log", 0, "manage.py prune_audit_log"),
    ]


def retention_overrides() -> list[Retention]:
    """Organizations and workspaces that have said otherwise, the latest first."""
    rows = Retention.objects.select_related("organization", "workspace__organization")
    return list(rows.order_by("-updated_at")[:MAX_EXCEPTIONS])
