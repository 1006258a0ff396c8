"""A field of pgvector's `vector` type, and the creation of the extension."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper


class VectorField(models.Field[str, str]):
    """A vector of any dimension, read and written as pgvector's text form by raw SQL."""

    description = "pgvector's vector"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "vector"


def ensure_extension(*, using: str, **_: Any) -> None:
    """Create the pgvector extension before the tables that use it.

    The embedded PostgreSQL includes it. On another server the role needs the right to create it,
    or a superuser creates it beforehand. Raises `CommandError` with instructions otherwise.
    """
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_extension WHERE extname = 'vector'")
        if cursor.rowcount:
            return
        cursor.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'")
        if not cursor.rowcount:
            raise CommandError(
                "The PostgreSQL server of DATABASE_URL lacks pgvector, which the agent store and"
                " the search of datasets need."
                " Install it on the server (for example the package postgresql-18-pgvector)."
            )
    try:
        with connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except DatabaseError as error:
        raise CommandError(
            "pgvector is installed on the server but not in this database, and the role cannot"
            f" create it. Run `CREATE EXTENSION vector` as a superuser. ({str(error).strip()})"
        ) from error
