"""The partitions of the tables of runs: one a day, made ahead, without gaps.

Everything before the first day that was ever made lies in one open partition, so that an import of
old runs needs no tables of its own. Days follow one another without a gap up to `AHEAD` from now; a
run that claims to start later than that is refused, see `latest_placement`.
"""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection, transaction

TABLES = ("tracing_run", "tracing_runpayload")
AHEAD = timedelta(days=3)
BEHIND = timedelta(days=31)
"""How far back the first installation makes days; older runs go to the open partition."""

_covered_until: dict[str, date] = {}
_lock = threading.Lock()


def latest_placement(now: datetime | None = None) -> datetime:
    """A run may start this late: clocks differ, but not by days."""
    return (now or datetime.now(UTC)) + timedelta(days=1)


def ensure_covered(moment: datetime) -> None:
    """Make the partitions up to that moment unless this process knows that they exist.

    Beat makes them ahead; this is for the first run after a time in which nothing ran.
    """
    day = moment.astimezone(UTC).date()
    database = str(connection.settings_dict["NAME"])
    if day < _covered_until.get(database, date.min):
        return
    with _lock:
        _covered_until[database] = make_ahead()


@transaction.atomic
def make_ahead(now: datetime | None = None) -> date:
    """Make the missing days up to `AHEAD` from now and return the first day not covered.

    Safe to repeat and to race: one maker at a time. After a long pause the missed time becomes one
    wide partition, not hundreds.
    """
    today = (now or datetime.now(UTC)).date()
    until = today + AHEAD
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('tracing.partitions', 0))")
        covered = _covered(cursor)
        if covered is None:
            covered = today - BEHIND
            _make(cursor, "past", None, covered)
        if covered < today - BEHIND:
            _make(cursor, f"d{covered:%Y%m%d}", covered, today - BEHIND)
            covered = today - BEHIND
        while covered < until:
            following = covered + timedelta(days=1)
            _make(cursor, f"d{covered:%Y%m%d}", covered, following)
            covered = following
    return covered


def _covered(cursor: Any) -> date | None:
    """The first day after the last partition; None when there are none."""
    cursor.execute(
        """
        SELECT max((regexp_match(pg_get_expr(c.relpartbound, c.oid),
                                 $$TO \\('(\\d{4}-\\d{2}-\\d{2})$$))[1]::date)
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'tracing_run'::regclass
        """
    )
    found: date | None = cursor.fetchone()[0]
    return found


def _make(cursor: Any, suffix: str, begin: date | None, end: date) -> None:
    lower = "MINVALUE" if begin is None else f"'{begin} 00:00:00+00'"
    for table in TABLES:
        cursor.execute(
            f"CREATE TABLE {table}_{suffix} PARTITION OF {table}"
            f" FOR VALUES FROM ({lower}) TO ('{end} 00:00:00+00')"
            # Room on the page, so that the end of a run lies beside its beginning.
            " WITH (fillfactor = 90)"
        )


@transaction.atomic
def drop_before(cutoff: datetime) -> int:
    """Drop everything in the days that ended at the cutoff or before; return how many there were.

    The open partition takes their place, empty, so that an old run still finds one.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('tracing.partitions', 0))")
        cursor.execute(
            """
            SELECT c.relname, e.ends_at::date
            FROM pg_inherits i
            JOIN pg_class c ON c.oid = i.inhrelid
            CROSS JOIN LATERAL (
                SELECT (regexp_match(pg_get_expr(c.relpartbound, c.oid),
                                     $$TO \\('([^']+)'$$))[1]::timestamptz AS ends_at
            ) e
            WHERE i.inhparent = 'tracing_run'::regclass AND e.ends_at <= %s
            ORDER BY e.ends_at
            """,
            [cutoff],
        )
        found = cursor.fetchall()
        for name, _ in found:
            for table in TABLES:
                cursor.execute(f'DROP TABLE "{table}{name.removeprefix(TABLES[0])}"')
        if found:
            _make(cursor, "past", None, found[-1][1])
    return len(found)
