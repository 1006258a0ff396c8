"""The partitions of the tables of runs: one a day, made ahead, without gaps.

Everything before the first day that was ever made lies in one open partition, so that an import of
old runs needs no tables of its own. Days follow one another without a gap up to `AHEAD` from now; a
run that claims to start later than that is refused, see `latest_placement`.
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
"""How far back the first installation makes days; older runs go to the open partition."""

_covered_until: dict[str, date] = {}
_lock = threading.Lock()


def latest_start_time(now: datetime | None = None) -> datetime:
    """A run may start this late: clocks differ, but not by days."""
    return (now or datetime.now(UTC)) + timedelta(days=1)


def ensure_partitions(moment: datetime) -> None:
    """Make the partitions up to that moment unless this process knows that they exist.

    Beat makes them ahead; this is for the first run after a time in which nothing ran.
    """
    day = moment.astimezone(UTC).date()
    database = str(connection.settings_dict["NAME"])
    if day < _covered_until.get(database, date.min):
        return
    with _lock:
        _covered_until[database] = create_partitions()


@transaction.atomic
def create_partitions(now: datetime | None = None) -> date:
    """Make the missing days up to `AHEAD` from now and return the first day not covered.

    Safe to repeat and to race: one maker at a time. After a long pause the missed time becomes one
    wide partition, not hundreds.
    """
    today = (now or datetime.now(UTC)).date()
    until = today + CREATE_AHEAD
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('tracing.partitions', 0))")
        covered = _first_uncovered_day(cursor)
        if covered is None:
            covered = today - CREATE_BEHIND
            _create_partitions(cursor, "past", None, covered)
        if covered < today - CREATE_BEHIND:
            _create_partitions(cursor, f"d{covered:%Y%m%d}", covered, today - CREATE_BEHIND)
            covered = today - CREATE_BEHIND
        while covered < until:
            following = covered + timedelta(days=1)
            _create_partitions(cursor, f"d{covered:%Y%m%d}", covered, following)
            covered = following
    return covered


def _first_uncovered_day(cursor: Any) -> date | None:
    """The first day after the last partition; None when there are none."""
    cursor.execute(
        """
        SELECT max((regexp_match(pg_get_expr(c.relpartbound, c.oid),
                                 $$TO \\('(\\d{4}-\\d{2}-\\d{2})$$))[1]::date)
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'trace_store_run'::regclass
        """
    )
    found: date | None = cursor.fetchone()[0]
    return found


def _create_partitions(cursor: Any, suffix: str, begin: date | None, end: date) -> None:
    lower = "MINVALUE" if begin is None else f"'{begin} 00:00:00+00'"
    for table in _tables(cursor):
        _create_partition(cursor, f"{table}_{suffix}", table, f"({lower}) TO ('{end} 00:00:00+00')")


def _tables(cursor: Any) -> list[str]:
    """Those that are there: the first migrations make days before later ones bring more tables."""
    cursor.execute(
        "SELECT t FROM unnest(%s::text[]) AS t WHERE to_regclass(t) IS NOT NULL", [list(TABLES)]
    )
    there = {row[0] for row in cursor.fetchall()}
    return [table for table in TABLES if table in there]


def _create_partition(cursor: Any, name: str, table: str, bounds: str) -> None:
    cursor.execute(
        f'CREATE TABLE "{name}" PARTITION OF {table} FOR VALUES FROM {bounds}'
        # Room on the page, so that the end of a run lies beside its beginning.
        " WITH (fillfactor = 90)"
    )


def create_missing_partitions(table: str) -> None:
    """Give a table that came later the days that the runs have."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT c.relname, pg_get_expr(c.relpartbound, c.oid)
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'trace_store_run'::regclass
            """
        )
        for name, bounds in cursor.fetchall():
            day = table + name.removeprefix(TABLES[0])
            _create_partition(cursor, day, table, bounds.removeprefix("FOR VALUES FROM "))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: a day, several without a run between them, or all before the first."""

    suffix: str
    begins_at: datetime | None
    ends_at: datetime

    @property
    def table(self) -> str:
        """The part of `trace_store_run`."""
        return f"{TABLES[0]}_{self.suffix}"

    @property
    def payload_table(self) -> str:
        """The part of `trace_store_run_payload`."""
        return f"{TABLES[1]}_{self.suffix}"


def list_partitions() -> list[Partition]:
    """All partitions, the oldest first."""
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
        cursor.execute(f'SELECT NOT EXISTS (SELECT FROM "{day.table}")')  # noqa: S608  (its own)
        found: bool = cursor.fetchone()[0]
        return found


def lock_partition(day: Partition) -> None:
    """Let nobody write to the day until the caller's transaction ends; readers do not notice."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        cursor.execute(f'LOCK TABLE "{day.table}" IN SHARE MODE')
        cursor.execute("SET LOCAL lock_timeout = 0")


def truncate_partition(day: Partition) -> None:
    """Throw away everything in the day, at a cost that does not depend on how much that is."""
    names = ", ".join(f'"{table}_{day.suffix}"' for table in TABLES)
    with connection.cursor() as cursor:
        # Who reads the day for long is not waited for: there is another time.
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        cursor.execute(f"TRUNCATE {names}")
        cursor.execute("SET LOCAL lock_timeout = 0")


@transaction.atomic
def merge_empty_partitions(until: datetime) -> int:
    """Make one partition of each stretch of empty days that ended by then; how many went away.

    An old run still finds a place, and what was dropped long ago costs no query a thought.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('tracing.partitions', 0))")
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        gone = 0
        stretch: list[Partition] = []
        for day in [*list_partitions(), None]:
            if day is not None and day.ends_at <= until and is_empty(day):
                stretch.append(day)
                continue
            gone += _merge_run(cursor, stretch)
            stretch = []
    return gone


def _merge_run(cursor: Any, stretch: list[Partition]) -> int:
    if len(stretch) < 2:
        return 0
    for day in stretch:
        cursor.execute(f'LOCK TABLE "{day.table}" IN ACCESS EXCLUSIVE MODE')
        if not is_empty(day):  # a run came meanwhile
            return 0
    for day in stretch:
        for table in TABLES:
            cursor.execute(f'DROP TABLE "{table}_{day.suffix}"')
    first = stretch[0]
    begin = None if first.begins_at is None else first.begins_at.astimezone(UTC).date()
    _create_partitions(cursor, first.suffix, begin, stretch[-1].ends_at.astimezone(UTC).date())
    return len(stretch) - 1
