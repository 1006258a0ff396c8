"""Connections of the engine are closed whenever their caller is cancelled or ends late."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from apps.agent_runtime.db.connection_pool import ConnectionPool, connect
from apps.core.connections import LoopDatabase

pytestmark = pytest.mark.django_db


@pytest.fixture
def first_statement(monkeypatch):
    """Let the first statement of each connection wait for ever; return an event and the list."""
    connections: list[psycopg.AsyncConnection] = []
    reached = asyncio.Event()

    async def execute(connection, *_args, **_options):
        connections.append(connection)
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", execute)
    return reached, connections


@pytest.mark.parametrize(
    "use", [connect, lambda: LoopDatabase(1).fetch_rows("SELECT 1", ())], ids=["engine", "web"]
)
async def test_cancelled_opening_closes_the_connection(first_statement, use):
    reached, connections = first_statement
    task = asyncio.create_task(use())
    await asyncio.wait_for(reached.wait(), 60)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert [connection.closed for connection in connections] == [True]


async def test_connection_that_is_returned_to_a_closed_pool_is_closed():
    pool = ConnectionPool(1)
    async with pool.connection() as connection:
        await pool.close()

        assert not connection.closed

    assert connection.closed
