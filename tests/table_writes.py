"""Which tables the transaction of a test has written to, without reading their rows.

PostgreSQL counts the rows that a session's transaction inserts, updates and deletes, also those of
savepoints that are rolled back. Digests of all tables take a hundred times as long.
"""

from __future__ import annotations

from django.db import connection

_COUNTS = """
SELECT coalesce(pg_partition_root(oid)::oid, oid)::regclass::text,
    sum(
        pg_stat_get_xact_tuples_inserted(oid)
        + pg_stat_get_xact_tuples_updated(oid)
        + pg_stat_get_xact_tuples_deleted(oid)
    )::int
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
GROUP BY 1
"""


def count_writes() -> dict[str, int]:
    """Return the rows that the current transaction has written, by table (not by partition)."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS)
        return dict(cursor.fetchall())


def find_written(before: dict[str, int]) -> set[str]:
    """Return the tables that were written to since `count_writes` returned `before`."""
    now = count_writes()
    return {table for table in now if now[table] != before.get(table, 0)}
