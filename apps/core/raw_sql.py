"""psycopg cursors on Django's connection: binary `COPY` and server-side parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from django.db import connection


@contextmanager
def raw_cursor() -> Iterator[psycopg.Cursor[Any]]:
    """A psycopg cursor that raises Django's errors, so that Django replaces a broken connection."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor


def sql(text: str) -> LiteralString:
    """Mark a statement as safe: it consists of our own names, and values are parameters."""
    return text
