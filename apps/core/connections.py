"""Long-lived PostgreSQL connections: Django's of each thread, and a pool of each event loop."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db import connections
from psycopg.rows import TupleRow


def close_dead(**_: object) -> None:
    """Close this thread's connections that the server has closed; the next query reconnects.

    The check costs one system call; Django's own health check costs a round trip per request.
    """
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or connection.in_atomic_block:
            continue
        try:
            is_closed = is_closed_by_server(connection.connection.fileno())
        except (OSError, ValueError, psycopg.Error):
            is_closed = True
        if is_closed:
            connection.close()


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
_NAMES = ("dbname", "user", "password", "host", "port", "application_name", "sslmode", "options")


class LoopDatabase:
    """A small connection pool; each statement is its own transaction."""

    def __init__(self, size: int) -> None:
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []

    async def rows(self, statement: str, parameters: Parameters) -> list[TupleRow]:
        """Execute a statement, prepared once per connection, and return its rows.

        Raises Django's database errors. A cancelled statement closes its connection.
        """
        with connections["default"].wrap_database_errors:
            async with self._slots:
                connection = await self._connection()
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

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not is_closed_by_server(connection.fileno()):
                return connection
            await connection.close()
        params = connections["default"].get_connection_params()
        connection = await psycopg.AsyncConnection.connect(
            **{name: params[name] for name in _NAMES if params.get(name)},
            autocommit=True,
            connect_timeout=5,
        )
        await connection.execute(f"SET TIME ZONE '{settings.TIME_ZONE}'")
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
