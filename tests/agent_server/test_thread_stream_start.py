"""The stream of a thread starts after its subscription, so that no event is missed."""

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
    list_followed, lookup_started, may_continue = (
        stream_history.list_followed,
        threading.Event(),
        threading.Event(),
    )

    def list_followed_late(*arguments):
        lookup_started.set()
        assert may_continue.wait(PATIENCE_SECONDS)
        return list_followed(*arguments)

    monkeypatch.setattr(stream_history, "list_followed", list_followed_late)
    async with call.open("GET", path) as request:
        assert await in_thread(lookup_started.wait, PATIENCE_SECONDS)
        await asyncio.sleep(0)
        status_before = request.answer.status
        may_continue.set()
        await request.wait_for_start()

    assert (status_before, request.answer.status) == (0, 200)


async def test_thread_deleted_meanwhile_is_not_found(call, path, monkeypatch):
    monkeypatch.setattr(stream_history, "list_followed", lambda *_: None)

    async with call.open("GET", path) as request:
        answer = await request.wait_for_end()

    assert answer.status == 404
