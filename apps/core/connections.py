"""Long-lived PostgreSQL connections: one per thread for Django, and a pool per event loop."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db import connection, connections
from psycopg.rows import TupleRow


def close_dead(**_: object) -> None:
    """Close this thread's connections that the server has closed; the next query reconnects.

    The check costs one system call; Django's own health check costs a round trip per request.
    """
    for wrapper in connections.all(initialized_only=True):
        if wrapper.connection is None or wrapper.in_atomic_block:
            continue
        try:
            is_closed = is_closed_by_server(wrapper.connection.fileno())
        except (OSError, ValueError, psycopg.Error):
            is_closed = True
        if is_closed:
            wrapper.close()


def is_closed_by_server(fd: int) -> bool:
    """Return whether the server closed an idle connection.

    Readable data on an idle socket means that the server closed it. `poll`, unlike `select`,
    accepts descriptors above 1023, which a process with many streams has.
    """
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


Parameters = Mapping[str, Any] | Sequence[Any]
Connection = psycopg.AsyncConnection[TupleRow]
_PARAMETER_NAMES = (
    "dbname", "user", "password", "host", "port", "application_name", "sslmode", "options",
)  # fmt: skip


def connection_parameters() -> dict[str, Any]:
    """Return Django's connection parameters that psycopg accepts."""
    params = connections["default"].get_connection_params()
    return {name: params[name] for name in _PARAMETER_NAMES if params.get(name)}


class LoopDatabase:
    """A small connection pool; each statement is its own transaction."""

    def __init__(self, size: int) -> None:
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []

    async def fetch_rows(self, statement: str, parameters: Parameters) -> list[TupleRow]:
        """Execute a statement, prepared once per connection, and return its rows.

        Raises Django's database errors. A cancelled statement closes its connection.
        """
        with connections["default"].wrap_database_errors:
            async with self._slots:
                connection = await self._take_connection()
                try:
                    cursor = await connection.execute(
                        statement, parameters, prepare=True, binary=True
                    )
                    # `cursor.description` would create an object per column.
                    has_rows = cursor.pgresult is not None and cursor.pgresult.nfields > 0
                    return await cursor.fetchall() if has_rows else []
                except psycopg.Error:
                    raise
                except BaseException:
                    await connection.close()
                    raise
                finally:
                    if not connection.closed:
                        self._idle.append(connection)

    async def _take_connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not is_closed_by_server(connection.fileno()):
                return connection
            await connection.close()
        connection = await psycopg.AsyncConnection.connect(
            **connection_parameters(), autocommit=True, connect_timeout=5
        )
        try:
            await connection.execute(f"SET TIME ZONE '{settings.TIME_ZONE}'")
        except BaseException:
            await connection.close()
            raise
        return connection

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().close()


_databases: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopDatabase] = WeakKeyDictionary()


def loop_database() -> LoopDatabase:
    """Return the pool of the running loop."""
    loop = asyncio.get_running_loop()
    database = _databases.get(loop)
    if database is None:
        database = _databases[loop] = LoopDatabase(settings.WEB_THREADS)
    return database


@contextmanager
def raw_cursor() -> Iterator[psycopg.Cursor[Any]]:
    """Yield a psycopg cursor on Django's connection, for binary `COPY` and server-side parameters.

    It raises Django's errors, so that Django replaces a broken connection.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor


def sql(text: str) -> LiteralString:
    """Mark a statement that is built from constants as safe; pass all values as parameters."""
    return text
