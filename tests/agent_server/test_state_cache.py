"""Answers about threads hold as long as the thread is as it was."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection

from apps.agent_server.endpoints import graph_calls
from apps.agent_server.endpoints.graph_calls import StateCache
from apps.agent_server.models import Thread
from apps.core.sync_bridge import in_thread
from tests.factories.agent_server import ThreadFactory


async def test_least_recently_used_entry_is_evicted_first():
    kept, thread, asked = StateCache(max_bytes=25, max_entry_bytes=20), uuid4(), []

    async def ask(name):
        async def answer():
            asked.append(name)
            return b"x" * 10

        return await kept.get(thread, "1", (name,), answer)

    for name in ("a", "b", "a", "c", "a", "b"):
        await ask(name)

    assert asked == ["a", "b", "c", "b"]
    assert kept.size == 20


async def test_large_response_is_not_cached():
    kept, asked = StateCache(max_bytes=25, max_entry_bytes=5), []

    async def answer():
        asked.append(1)
        return b"x" * 6

    for _ in range(2):
        assert await kept.get(uuid4(), "1", (), answer) == b"x" * 6

    assert (len(asked), kept.size) == (2, 0)


@pytest.fixture
def graph(monkeypatch) -> list:
    asked: list = []

    async def call(revision, graph_id, method, params=None, *, thread=None, seconds=60):
        asked.append(params["limit"])
        return b'[{"answer":%d}]' % len(asked)

    monkeypatch.setattr(graph_calls, "acall", call)
    return asked


def change(pk, **changed):
    Thread.unscoped.filter(pk=pk).update(**changed)
    connection.close()


async def test_history_is_fetched_again_after_the_thread_changed(call, agent, graph):
    thread = await in_thread(
        ThreadFactory, deployment=agent, runs_received=1, metadata={"graph_id": "agent"}
    )

    async def history(limit: int) -> int:
        answer = await call("POST", f"/threads/{thread.thread_id}/history", {"limit": limit})
        return answer.json()[0]["answer"]

    first = [await history(5), await history(5), await history(6), await history(5)]
    await in_thread(change, thread.pk, edits=1)
    then = [await history(5), await history(5)]
    await in_thread(change, thread.pk, status="busy")
    busy = [await history(5), await history(5)]

    assert (first, then, busy) == ([1, 1, 2, 1], [3, 3], [4, 5])
    assert graph == [5, 6, 5, 5, 5]
