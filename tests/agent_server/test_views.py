"""Views served by the web process directly, without Django's request handler."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import ThreadFactory


async def test_view_responds_as_behind_django(call, agent, key, client):
    thread = await in_thread(ThreadFactory, deployment=agent, metadata={"n": 1})
    path = f"/threads/{thread.thread_id}"

    direct = await call("GET", path)
    through_django = await in_thread(
        client.get, f"/agents/{agent.slug}{path}", headers={"X-Api-Key": key}
    )

    assert (direct.status, direct.body) == (through_django.status_code, through_django.content)
    assert (
        direct.headers["content-type"]
        == through_django.headers["Content-Type"]
        == "application/json"
    )
    assert direct.headers["content-length"] == str(len(direct.body))
    assert direct.headers["access-control-allow-origin"] == "*"
    assert direct.headers["x-request-id"]


async def test_empty_response_has_no_body(call, agent):
    thread = await in_thread(ThreadFactory, deployment=agent)
    path = f"/threads/{thread.thread_id}"

    minimal = await call("PATCH", path, {"metadata": {"n": 1}}, Prefer="return=minimal")
    deleted = await call("DELETE", path)

    for answer in (minimal, deleted):
        assert (answer.status, answer.body) == (204, b"")
        assert "content-type" not in answer.headers


async def test_pages_have_a_next_offset(call, agent):
    await in_thread(ThreadFactory.create_batch, 3, deployment=agent)

    page = await call("POST", "/threads/search", {"limit": 2})
    assistants = await call("POST", "/assistants/search", {"sort_by": "name", "name": "AGE"})

    assert len(page.json()) == 2
    assert page.headers["x-pagination-next"] == "2"
    assert [row["graph_id"] for row in assistants.json()] == ["agent"]
    assert set(assistants.json()[0]) == {
        "assistant_id",
        "graph_id",
        "name",
        "description",
        "config",
        "context",
        "metadata",
        "version",
        "created_at",
        "updated_at",
    }


async def test_failures_have_one_format(call, agent):
    anonymous = Caller(agent.slug)
    path = f"/threads/{uuid4()}"

    answers = [
        await anonymous("GET", path),
        await call("GET", path),
        await call("GET", "/threads/mine"),
        await call("POST", "/threads/search", {"limit": 0}),
        await call("PUT", path, {}),
    ]

    assert [answer.status for answer in answers] == [401, 404, 422, 422, 405]
    assert all(answer.json()["detail"] for answer in answers)


@pytest.mark.parametrize("kind", ["prometheus", "json"])
async def test_response_can_be_other_than_json(call, kind):
    answer = await call("GET", f"/metrics?format={kind}")

    expected = {
        "prometheus": "text/plain; version=0.0.4; charset=utf-8",
        "json": "application/json",
    }
    assert (answer.status, answer.headers["content-type"]) == (200, expected[kind])
