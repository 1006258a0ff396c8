"""What a database holds, in numbers that two databases can be compared by."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

# Tables with rows of their own, partitions one by one; those of extensions are not ours.
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
    """Rows and checksum of each table; `quick` leaves the checksums out.

    The checksum is a sum of hashes of whole rows, so their order does not matter.
    """
    statement = _COUNT if quick else _SUM
    found: dict[str, list[Any]] = {}
    # Two sessions that show a value differently would not agree on its hash.
    connection.execute("SET LOCAL search_path = public, pg_catalog")
    connection.execute("SET LOCAL extra_float_digits = 1")
    connection.execute("SET LOCAL bytea_output = 'hex'")
    connection.execute("SET LOCAL timezone = 'UTC'")
    for (table,) in connection.execute(_TABLES).fetchall():
        counted = connection.execute(sql.SQL(statement).format(_name(table))).fetchone()
        found[table] = list(counted or ())
    return found


def differences(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> list[str]:
    """The tables that are not the same, with their numbers; `[]` when all are."""
    return [
        f"{table}: {one.get(table, 'missing')} and {other.get(table, 'missing')}"
        for table in sorted({*one, *other})
        if one.get(table) != other.get(table)
    ]


def _name(table: str) -> sql.Composable:
    """`regclass` has quoted the name already where that is needed."""
    return sql.SQL(table)
