"""Limits on the stored bytes of a workspace: examples, feedback, threads and store items.

A periodic task measures the tables of each kind, and writes are refused while the last measurement
is at the limit or above. Rows are deleted in many ways, by cascades too, so that counters would
drift. A large table is measured by a random sample of its blocks, which bounds the cost; the size
of a workspace that matters, one near its limit, is then known within a few percent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from apps.core import errors
from apps.core.ttl_cache import TTLCache
from apps.usage.models import StorageKind, StoredBytes

CACHE_SECONDS = 10.0
SAMPLE_BYTES = 33_554_432
"""Of a table that are read in one measurement; values that PostgreSQL moves out of the row are not
read."""
ROW_BYTES = 128
"""Of the header and the short columns of a row, and of its index entries."""
_SETTINGS = {
    StorageKind.DATASETS: "MAX_DATASET_STORAGE_BYTES",
    StorageKind.FEEDBACK: "MAX_FEEDBACK_STORAGE_BYTES",
    StorageKind.THREADS: "MAX_THREAD_STORAGE_BYTES",
    StorageKind.STORE: "MAX_STORE_STORAGE_BYTES",
}

_SAVE = """
INSERT INTO usage_storedbytes (id, created_at, workspace_id, kind, size, measured_at)
SELECT uuidv7(), now(), w.id, %s, measured.size, %s
FROM unnest(%s::uuid[], %s::int8[]) AS measured(workspace_id, size)
JOIN organizations_workspace w ON w.id = measured.workspace_id
ORDER BY w.id
ON CONFLICT (workspace_id, kind) DO UPDATE
SET size = excluded.size, measured_at = excluded.measured_at
"""
IS_FULL = """
SELECT 1 FROM usage_storedbytes WHERE workspace_id = %s AND kind = %s AND size >= %s
"""
"""Takes the workspace, the kind and `limit_of`; for connections that are not Django's."""


class StorageFull(errors.Invalid):
    """The workspace has the maximum of stored bytes of one kind."""

    code, detail = "storage_full", "The workspace has the maximum of stored bytes."

    def __init__(self, kind: StorageKind) -> None:
        limit = limit_of(kind) // 1_048_576
        super().__init__(
            f"The workspace has the maximum of {limit:,} MB of {kind.label}: delete some first."
            " Deleted ones count until the next measurement, for two minutes."
        )


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """A table whose rows are measured."""

    name: str
    columns: Sequence[str]
    """Those whose values are long."""
    workspace: str = "r.workspace_id"
    join: str = ""
    """Joins the table with the workspace; the measured row is `r`."""
    other_bytes: str = "0"
    """Bytes of a row that are stored elsewhere."""

    def measure(self) -> dict[UUID, int]:
        """Return the bytes of each workspace, estimated for a table above `SAMPLE_BYTES`."""
        sizes = [f"coalesce(pg_column_size(r.{column}), 0)" for column in self.columns]
        size = " + ".join([str(ROW_BYTES), *sizes, self.other_bytes])
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_relation_size(%s::regclass)", [self.name])
            (table_bytes,) = cursor.fetchone()
            percent = min(100.0, 100.0 * SAMPLE_BYTES / max(table_bytes, 1))
            cursor.execute(
                f"SELECT {self.workspace}, (sum({size}) * %s)::int8"  # noqa: S608  (constants)
                f" FROM {self.name} r TABLESAMPLE SYSTEM (%s) {self.join} GROUP BY 1",
                [100.0 / percent, percent],
            )
            return dict(cursor.fetchall())


class Storage(NamedTuple):
    """The stored bytes of one kind with their limit."""

    kind: StorageKind
    used: int
    limit: int
    measured_at: datetime | None

    @property
    def is_full(self) -> bool:
        return self.used >= self.limit

    @property
    def percent(self) -> int:
        return min(100, self.used * 100 // self.limit)


_tables: dict[StorageKind, list[MeasuredTable]] = defaultdict(list)
_sizes: TTLCache[UUID, Mapping[str, int]] = TTLCache(CACHE_SECONDS)


def register_table(kind: StorageKind, table: MeasuredTable) -> None:
    """Count the table's rows as this kind. Safe to repeat."""
    if table not in _tables[kind]:
        _tables[kind].append(table)


def limit_of(kind: StorageKind) -> int:
    """Return the bytes that a workspace may store of this kind."""
    limit: int = getattr(settings, _SETTINGS[kind])
    return limit


def measure() -> None:
    """Measure all workspaces. Safe to repeat; a run at the same time stores the same or newer."""
    for kind, tables in _tables.items():
        sizes: Counter[UUID] = Counter()
        for table in tables:
            sizes.update(table.measure())
        _save(kind, sizes)


@transaction.atomic
def _save(kind: StorageKind, sizes: Mapping[UUID, int]) -> None:
    with connection.cursor() as cursor:
        # The rows are locked in no common order otherwise.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('stored bytes', 0))")
        cursor.execute(_SAVE, [kind, timezone.now(), list(sizes), list(sizes.values())])
    rows = StoredBytes.objects.across_workspaces(reason="the measurement of all workspaces")
    rows.filter(kind=kind).exclude(workspace_id__in=list(sizes)).delete()


def check(workspace_id: UUID, kind: StorageKind) -> None:
    """Raise `StorageFull` if the workspace has the maximum of this kind.

    The measurement is minutes old, so that a limit can be exceeded by what is written meanwhile.
    """
    if _sizes.get(workspace_id, _read_sizes).get(kind, 0) >= limit_of(kind):
        raise StorageFull(kind)


def _read_sizes(workspace_id: UUID) -> Mapping[str, int]:
    return dict(StoredBytes.objects.for_workspace(workspace_id).values_list("kind", "size"))


def clear_cache() -> None:
    """Clear the cache of this process."""
    _sizes.clear()


def list_storage(workspace_id: UUID) -> list[Storage]:
    """Return what the workspace stores of each kind."""
    rows = {row.kind: row for row in StoredBytes.objects.for_workspace(workspace_id)}
    return [
        Storage(kind, row.size if row else 0, limit_of(kind), row.measured_at if row else None)
        for kind in StorageKind
        for row in [rows.get(kind)]
    ]
