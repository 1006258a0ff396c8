"""When the stream of a thread answers: once it listens, so that nothing after that is missed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from apps.agent_server.services import stream_history
from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import PATIENCE_SECONDS
from tests.factories.agent_server import ThreadFactory


@pytest.fixture
def path(agent):
    return f"/threads/{ThreadFactory(deployment=agent).thread_id}/stream"


async def test_response_starts_once_the_open_runs_are_followed(call, path, monkeypatch):
    look, asked, may_look = stream_history.list_followed, threading.Event(), threading.Event()

    def look_late(*words):
        asked.set()
        assert may_look.wait(PATIENCE_SECONDS)
        return look(*words)

    monkeypatch.setattr(stream_history, "list_followed", look_late)
    async with call.open("GET", path) as request:
        assert await in_thread(asked.wait, PATIENCE_SECONDS)
        await asyncio.sleep(0)
        before = request.answer.status
        may_look.set()
        await request.started()

    assert (before, request.answer.status) == (0, 200)


async def test_thread_deleted_meanwhile_is_not_found(call, path, monkeypatch):
    monkeypatch.setattr(stream_history, "list_followed", lambda *_: None)

    async with call.open("GET", path) as request:
        answer = await request.ended()

    assert answer.status == 404
