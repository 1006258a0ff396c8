"""Columns of pgvector's type, and the extension that brings it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper


class VectorField(models.Field[str, str]):
    """A vector of any dimension, read and written as pgvector's text by SQL of our own."""

    description = "pgvector's vector"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "vector"


def ensure_extension(*, using: str, **_: Any) -> None:
    """Have pgvector in the database before its tables are made; a sentence says when it cannot be.

    The embedded PostgreSQL brings it. Elsewhere an extension that is installed on the server but
    not in this database is created here if the role may; a superuser may do it beforehand.
    """
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_extension WHERE extname = 'vector'")
        if cursor.rowcount:
            return
        cursor.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'")
        if not cursor.rowcount:
            raise CommandError(
                "The PostgreSQL of DATABASE_URL has no pgvector, which the agents' store needs:"
                " install it on the server (for example the package postgresql-18-pgvector)."
            )
    try:
        with connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except DatabaseError as error:
        raise CommandError(
            "pgvector is installed but not in this database, and this role may not create it: run"
            f" `CREATE EXTENSION vector` there as a superuser. ({str(error).strip()})"
        ) from error
