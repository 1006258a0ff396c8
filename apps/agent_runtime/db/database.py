"""The engine's own connections to PostgreSQL: asynchronous, few, and replaced when they break."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
from django.db import connections
from psycopg.rows import TupleRow

logger = logging.getLogger(__name__)

T = TypeVar("T")

Connection = psycopg.AsyncConnection[TupleRow]

LONGEST_PAUSE_SECONDS = 1.0
TRANSIENT = (
    psycopg.OperationalError,  # the server went away, a deadlock, a lock that took too long
    psycopg.InterfaceError,
)


def connection_parameters() -> dict[str, Any]:
    """What Django would connect with, for psycopg itself."""
    given = connections["default"].get_connection_params()
    names = ("dbname", "user", "password", "host", "port", "application_name", "sslmode", "options")
    return {name: given[name] for name in names if given.get(name)}


async def connect() -> Connection:
    """A new connection; every statement outside a pipeline is its own transaction."""
    connection = await psycopg.AsyncConnection.connect(
        **connection_parameters(), autocommit=True, connect_timeout=5, prepare_threshold=1
    )
    await connection.execute("SET lock_timeout = '5s'; SET statement_timeout = '60s'")
    return connection


class Database:
    """A few connections, handed out one caller at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._idle: list[Connection] = []
        self._turns = asyncio.Semaphore(size)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One of the connections; it is thrown away when its use ends in an error of the server."""
        async with self._turns:
            connection = self._idle.pop() if self._idle else await connect()
            try:
                yield connection
            except BaseException:
                await connection.close()
                raise
            if connection.closed or connection.broken:
                return
            self._idle.append(connection)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One of the connections, in a transaction that is committed at the end."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[TupleRow]:
        """The rows of one statement; asked again, on a new connection, if the server went away."""

        async def ask() -> list[TupleRow]:
            async with self.connection() as connection:
                cursor = await connection.execute(statement, parameters, prepare=True, binary=True)
                has_rows = cursor.pgresult is not None and cursor.pgresult.nfields > 0
                return await cursor.fetchall() if has_rows else []

        return await patiently(ask)

    async def perform(self, deed: Sequence[tuple[str, Sequence[Any]]]) -> None:
        """Several statements as one transaction; they may be repeated when the server went away."""

        async def do() -> None:
            async with self.connection() as connection, connection.transaction():
                for statement, parameters in deed:
                    await connection.execute(statement, parameters)

        await patiently(do)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()


async def patiently(work: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    """Repeat work that may be repeated until the server is back; at most for so long."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, 0.02
    while True:
        try:
            return await work()
        except TRANSIENT as error:
            if loop.time() > deadline:
                raise
            logger.warning("The database did not answer: %s", str(error).strip())
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
