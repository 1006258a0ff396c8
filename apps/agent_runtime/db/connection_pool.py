"""Asynchronous PostgreSQL connections of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from apps.core.connections import connection_parameters

logger = logging.getLogger(__name__)

T = TypeVar("T")

Connection = psycopg.AsyncConnection[TupleRow]

MAX_RETRY_PAUSE_SECONDS = 1.0
TRANSIENT = (
    psycopg.OperationalError,  # connection lost, deadlock, lock timeout
    psycopg.InterfaceError,
)


async def connect() -> Connection:
    """Open a connection in autocommit mode."""
    connection = await psycopg.AsyncConnection.connect(
        **connection_parameters(), autocommit=True, connect_timeout=5, prepare_threshold=1
    )
    try:
        await connection.execute("SET lock_timeout = '5s'; SET statement_timeout = '60s'")
    except BaseException:
        await connection.close()
        raise
    return connection


class ConnectionPool:
    """At most `size` connections, each used by one caller at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(size)
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection of the pool; an exception in the body closes it."""
        async with self._free:
            connection = self._idle.pop() if self._idle else await connect()
            try:
                yield connection
            except BaseException:
                await connection.close()
                raise
            if self._is_closed or connection.broken:
                await connection.close()
            elif not connection.closed:
                self._idle.append(connection)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection with a transaction that is committed at the end of the body."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def fetch_rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[TupleRow]:
        """Execute a repeatable statement, with retries while the server is unavailable."""

        async def fetch() -> list[TupleRow]:
            async with self.connection() as connection:
                cursor = await connection.execute(statement, parameters, prepare=True, binary=True)
                has_rows = cursor.pgresult is not None and cursor.pgresult.nfields > 0
                return await cursor.fetchall() if has_rows else []

        return await retry_transient(fetch)

    async def close(self) -> None:
        """Close the idle connections, and each other one when its caller has returned it."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop().close()


async def retry_transient(work: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    """Repeat idempotent work after transient errors for at most `seconds`."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, 0.02
    while True:
        try:
            return await work()
        except TRANSIENT as error:
            if loop.time() > deadline:
                raise
            logger.warning("PostgreSQL is unavailable: %s", str(error).strip())
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_PAUSE_SECONDS)
