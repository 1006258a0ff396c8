"""Row counts and checksums of tables, for comparing two databases."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

# Tables and single partitions, without tables of extensions.
_TABLES = """
SELECT c.oid::regclass::text FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r'
  AND NOT EXISTS (
      SELECT FROM pg_depend d
      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
  )
ORDER BY 1
"""
_SUM = """
SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM ONLY {} t
"""
_COUNT = "SELECT count(*), '' FROM ONLY {} t"


def measure(connection: psycopg.Connection[Any], *, quick: bool = False) -> dict[str, list[Any]]:
    """Return row count and checksum of each table; `quick` omits the checksums.

    The checksum is a sum of row hashes, so it is independent of their order.
    """
    statement = _COUNT if quick else _SUM
    measures: dict[str, list[Any]] = {}
    # The text form of values, and so the hash, depends on these settings.
    connection.execute("SET LOCAL search_path = public, pg_catalog")
    connection.execute("SET LOCAL extra_float_digits = 1")
    connection.execute("SET LOCAL bytea_output = 'hex'")
    connection.execute("SET LOCAL timezone = 'UTC'")
    for (table,) in connection.execute(_TABLES).fetchall():
        row = connection.execute(sql.SQL(statement).format(_name(table))).fetchone()
        measures[table] = list(row or ())
    return measures


def differences(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> list[str]:
    """Return the tables that differ, with both measures."""
    return [
        f"{table}: {first.get(table, 'missing')} and {second.get(table, 'missing')}"
        for table in sorted({*first, *second})
        if first.get(table) != second.get(table)
    ]


def _name(table: str) -> sql.Composable:
    """Return the table name as SQL; `regclass` output is already quoted."""
    return sql.SQL(table)
