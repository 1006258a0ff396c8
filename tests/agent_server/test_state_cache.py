"""Cached answers about a thread are valid until the thread changes."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection

from apps.agent_server.endpoints.graph_calls import StateCache
from apps.agent_server.messaging import calls
from apps.agent_server.models import Thread
from apps.core.sync_bridge import in_thread
from tests.factories.agent_server import ThreadFactory


async def test_least_recently_used_entry_is_evicted_first():
    cache, thread, calls = StateCache(max_bytes=25, max_entry_bytes=20), uuid4(), []

    async def read_cached(name):
        async def fetch():
            calls.append(name)
            return b"x" * 10

        return await cache.get(thread, "1", (name,), fetch)

    for name in ("a", "b", "a", "c", "a", "b"):
        await read_cached(name)

    assert calls == ["a", "b", "c", "b"]
    assert cache.size == 20


async def test_large_response_is_not_cached():
    cache, calls = StateCache(max_bytes=25, max_entry_bytes=5), []

    async def fetch():
        calls.append(1)
        return b"x" * 6

    for _ in range(2):
        assert await cache.get(uuid4(), "1", (), fetch) == b"x" * 6

    assert (len(calls), cache.size) == (2, 0)


@pytest.fixture
def requested_limits(monkeypatch) -> list:
    limits: list = []

    async def call(route, graph_id, method, params, *, thread=None, revision_id=None):
        limits.append(params["limit"])
        return b'[{"answer":%d}]' % len(limits)

    monkeypatch.setattr(calls, "call_graph", call)
    return limits


def update_thread(pk, **fields):
    Thread.unscoped.filter(pk=pk).update(**fields)
    connection.close()


async def test_history_is_fetched_again_after_the_thread_changed(call, agent, requested_limits):
    thread = await in_thread(
        ThreadFactory, deployment=agent, runs_received=1, metadata={"graph_id": "agent"}
    )

    async def read_history(limit: int) -> int:
        answer = await call("POST", f"/threads/{thread.thread_id}/history", {"limit": limit})
        return answer.json()[0]["answer"]

    first = [
        await read_history(5),
        await read_history(5),
        await read_history(6),
        await read_history(5),
    ]
    await in_thread(update_thread, thread.pk, edits=1)
    after_edit = [await read_history(5), await read_history(5)]
    await in_thread(update_thread, thread.pk, status="busy")
    while_busy = [await read_history(5), await read_history(5)]

    assert (first, after_edit, while_busy) == ([1, 1, 2, 1], [3, 3], [4, 5])
    assert requested_limits == [5, 6, 5, 5, 5]
