"""psycopg's own cursors on Django's connection: binary `COPY`, values bound by the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from django.db import connection


@contextmanager
def raw_cursor() -> Iterator[psycopg.Cursor[Any]]:
    """A cursor whose failures are Django's, so that a broken connection is noticed and replaced."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor


def sql(text: str) -> LiteralString:
    """Vouches that the statement is made of this package's own names, and values go beside it."""
    return text
