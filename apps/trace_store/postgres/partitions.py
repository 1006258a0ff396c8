"""Daily partitions of the run tables, created ahead and without gaps.

Everything before the first day is in one open partition, so an import of old runs needs no tables.
Days exist up to `CREATE_AHEAD` from now; runs that claim a later start are rejected, see
`apps.trace_store.dotted_order.latest_start_time`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection, transaction

TABLES = ("trace_store_run", "trace_store_run_payload", "trace_store_run_terms")
CREATE_AHEAD = timedelta(days=3)
CREATE_BEHIND = timedelta(days=31)
"""How far back the first installation creates days; older runs go to the open partition."""

_covered_until: dict[str, date] = {}
_lock = threading.Lock()


def ensure_partitions(timestamp: datetime) -> None:
    """Create the partitions up to that time, unless this process knows that they exist.

    The scheduler creates partitions ahead of time; this call serves the first run after a downtime.
    """
    day = timestamp.astimezone(UTC).date()
    database = str(connection.settings_dict["NAME"])
    if day < _covered_until.get(database, date.min):
        return
    with _lock:
        _covered_until[database] = create_partitions()


@transaction.atomic
def create_partitions(now: datetime | None = None) -> date:
    """Create the missing days up to `CREATE_AHEAD`; return the first day without a partition.

    Safe to repeat and to run concurrently. After a long downtime the gap becomes one partition.
    """
    today = (now or datetime.now(UTC)).date()
    until = today + CREATE_AHEAD
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('trace_store.partitions', 0))"
        )
        covered = _first_uncovered_day(cursor)
        if covered is None:
            covered = today - CREATE_BEHIND
            _create_partitions(cursor, "past", None, covered)
        if covered < today - CREATE_BEHIND:
            _create_partitions(cursor, f"d{covered:%Y%m%d}", covered, today - CREATE_BEHIND)
            covered = today - CREATE_BEHIND
        while covered < until:
            next_day = covered + timedelta(days=1)
            _create_partitions(cursor, f"d{covered:%Y%m%d}", covered, next_day)
            covered = next_day
    return covered


def _first_uncovered_day(cursor: Any) -> date | None:
    """The first day after the last partition; None without partitions."""
    cursor.execute(
        """
        SELECT max((regexp_match(pg_get_expr(c.relpartbound, c.oid),
                                 $$TO \\('(\\d{4}-\\d{2}-\\d{2})$$))[1]::date)
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'trace_store_run'::regclass
        """
    )
    result: date | None = cursor.fetchone()[0]
    return result


def _create_partitions(cursor: Any, suffix: str, begin: date | None, end: date) -> None:
    lower = "MINVALUE" if begin is None else f"'{begin} 00:00:00+00'"
    for table in _existing_tables(cursor):
        _create_partition(cursor, f"{table}_{suffix}", table, f"({lower}) TO ('{end} 00:00:00+00')")


def _existing_tables(cursor: Any) -> list[str]:
    """The tables that exist: the first migration creates partitions before all tables exist."""
    cursor.execute(
        "SELECT t FROM unnest(%s::text[]) AS t WHERE to_regclass(t) IS NOT NULL", [list(TABLES)]
    )
    existing_names = {row[0] for row in cursor.fetchall()}
    return [table for table in TABLES if table in existing_names]


def _create_partition(cursor: Any, name: str, table: str, bounds: str) -> None:
    cursor.execute(
        f'CREATE TABLE "{name}" PARTITION OF {table} FOR VALUES FROM {bounds}'
        # Free space on the page, so that the end of a run is stored next to its start.
        " WITH (fillfactor = 90)"
    )


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: one day, several empty days, or everything before the first day."""

    suffix: str
    begins_at: datetime | None
    ends_at: datetime

    @property
    def table(self) -> str:
        """The partition of `trace_store_run`."""
        return f"{TABLES[0]}_{self.suffix}"

    @property
    def payload_table(self) -> str:
        """The partition of `trace_store_run_payload`."""
        return f"{TABLES[1]}_{self.suffix}"


def list_partitions() -> list[Partition]:
    """All partitions, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT substr(c.relname, length('trace_store_run_') + 1),
                   (regexp_match(bound.text, $$FROM \\('([^']+)'$$))[1]::timestamptz,
                   (regexp_match(bound.text, $$TO \\('([^']+)'$$))[1]::timestamptz
            FROM pg_inherits i
            JOIN pg_class c ON c.oid = i.inhrelid
            CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS text) bound
            WHERE i.inhparent = 'trace_store_run'::regclass
            ORDER BY 3
            """
        )
        return [Partition(*row) for row in cursor.fetchall()]


def is_empty(day: Partition) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT NOT EXISTS (SELECT FROM "{day.table}")')  # noqa: S608  (an own name)
        result: bool = cursor.fetchone()[0]
        return result


def lock_partition(day: Partition) -> None:
    """Block writes to the partition until the end of the transaction; readers are not blocked."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        cursor.execute(f'LOCK TABLE "{day.table}" IN SHARE MODE')
        cursor.execute("SET LOCAL lock_timeout = 0")


def truncate_partition(day: Partition) -> None:
    """Truncate the partition, at a cost that does not depend on its size."""
    names = ", ".join(f'"{table}_{day.suffix}"' for table in TABLES)
    with connection.cursor() as cursor:
        # Do not wait for long readers; the next maintenance run retries.
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        cursor.execute(f"TRUNCATE {names}")
        cursor.execute("SET LOCAL lock_timeout = 0")


@transaction.atomic
def merge_empty_partitions(until: datetime) -> int:
    """Merge adjacent empty partitions that end by `until`; return how many were removed.

    Imported old runs still have a partition, and empty days do not slow queries down.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('trace_store.partitions', 0))"
        )
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        removed = 0
        adjacent: list[Partition] = []
        for day in [*list_partitions(), None]:
            if day is not None and day.ends_at <= until and is_empty(day):
                adjacent.append(day)
                continue
            removed += _merge_adjacent(cursor, adjacent)
            adjacent = []
    return removed


def _merge_adjacent(cursor: Any, adjacent: list[Partition]) -> int:
    if len(adjacent) < 2:
        return 0
    for day in adjacent:
        cursor.execute(f'LOCK TABLE "{day.table}" IN ACCESS EXCLUSIVE MODE')
        if not is_empty(day):  # a run was stored meanwhile
            return 0
    for day in adjacent:
        for table in TABLES:
            cursor.execute(f'DROP TABLE "{table}_{day.suffix}"')
    first, last = adjacent[0], adjacent[-1]
    begin = None if first.begins_at is None else first.begins_at.astimezone(UTC).date()
    _create_partitions(cursor, first.suffix, begin, last.ends_at.astimezone(UTC).date())
    return len(adjacent) - 1
