"""An event loop's own connections to PostgreSQL, for statements that are waited for there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db import connections
from psycopg.rows import TupleRow

from apps.core.connections import has_hung_up

Parameters = Mapping[str, Any] | Sequence[Any]
Connection = psycopg.AsyncConnection[TupleRow]
_NAMES = ("dbname", "user", "password", "host", "port", "application_name", "sslmode", "options")


class LoopDatabase:
    """A few connections, each for one statement at a time, which is a transaction of its own."""

    def __init__(self, size: int) -> None:
        self._turns = asyncio.Semaphore(size)
        self._idle: list[Connection] = []

    async def rows(self, statement: str, parameters: Parameters) -> list[TupleRow]:
        """The rows of a statement, which is parsed and planned once for each connection.

        Errors are Django's. The connection of a cancelled statement is given up.
        """
        with connections["default"].wrap_database_errors:
            async with self._turns:
                connection = await self._connection()
                try:
                    cursor = await connection.execute(
                        statement, parameters, prepare=True, binary=True
                    )
                    # Its `description` would make an object of every column.
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
            if not has_hung_up(connection.fileno()):
                return connection
            await connection.close()
        given = connections["default"].get_connection_params()
        connection = await psycopg.AsyncConnection.connect(
            **{name: given[name] for name in _NAMES if given.get(name)},
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
    """The connections of the running loop."""
    loop = asyncio.get_running_loop()
    found = _databases.get(loop)
    if found is None:
        found = _databases[loop] = LoopDatabase(settings.WEB_THREADS)
    return found
