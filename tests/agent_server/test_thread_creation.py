"""Creating threads."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.agent_server.models import Thread
from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import AgentFactory, ThreadFactory


async def test_outsiders_and_readers_are_rejected(call, agent, outsider_key, reader_key):
    keys = [None, outsider_key, reader_key]

    answers = [await Caller(agent.slug, key)("POST", "/threads", {}) for key in keys]

    assert [answer.status for answer in answers] == [401, 404, 403]
    assert await in_thread(Thread.unscoped.count) == 0


async def test_new_thread_has_defaults(call, agent):
    answer = await call("POST", "/threads", {"metadata": {"a": [1]}, "unknown": 1})

    row = await in_thread(Thread.unscoped.get)
    created = row.created_at.isoformat(timespec="microseconds")
    assert answer.status == 200
    assert answer.json() == {
        "thread_id": str(row.thread_id),
        "created_at": created,
        "updated_at": created,
        "state_updated_at": created,
        "metadata": {"a": [1]},
        "config": {},
        "status": "idle",
        "values": None,
        "error": None,
    }
    assert created.endswith("+00:00")
    assert row.thread_id.version == 7
    assert (row.deployment_id, row.workspace_id) == (agent.pk, agent.workspace_id)
    assert (row.ttl_minutes, row.ttl_until) == (None, None)


async def test_empty_body_creates_a_thread(call):
    answer = await call("POST", "/threads")

    assert answer.status == 200


async def test_repeated_thread_id_is_a_conflict(call, agent):
    thread_id = str(uuid4())
    await in_thread(lambda: ThreadFactory(deployment=AgentFactory(), thread_id=thread_id))

    first = await call("POST", "/threads", {"thread_id": thread_id, "metadata": {"n": 1}})
    repeated = await call("POST", "/threads", {"thread_id": thread_id, "metadata": {"n": 2}})
    body = {"thread_id": thread_id, "metadata": {"n": 3}, "if_exists": "do_nothing"}
    existing = await call("POST", "/threads", body)

    assert first.json()["thread_id"] == thread_id
    assert repeated.status == 409
    assert repeated.json()["detail"] == f"Thread with ID {thread_id} already exists"
    assert existing.json() == first.json()
    assert await in_thread(Thread.unscoped.filter(deployment=agent).count) == 1


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"ttl": 5}, 422, "ttl: Input should be a valid dictionary or instance of TTL"),
        ({"ttl": {"ttl": 0}}, 422, "ttl.ttl: Input should be greater than 0"),
        (
            {"ttl": {"ttl": 1, "strategy": "none"}},
            422,
            "ttl.strategy: Input should be 'delete' or 'keep_latest'",
        ),
        ({"supersteps": [{}]}, 422, "supersteps.0.updates: Field required"),
        (
            {"supersteps": [{"updates": [{"values": {}, "as_node": "a"}]}]},
            400,
            "The thread has no graph: create a run on it, or set metadata.graph_id.",
        ),
        ({"if_exists": "replace"}, 422, "if_exists: Input should be 'raise' or 'do_nothing'"),
        ({"metadata": 1}, 422, "metadata: Input should be a valid dictionary"),
        (
            {"thread_id": "x"},
            422,
            "thread_id: Input should be a valid UUID, invalid character: found `x` at 0",
        ),
    ],
)
async def test_unsupported_field_is_rejected_by_name(call, body, status, detail):
    answer = await call("POST", "/threads", body)

    assert (answer.status, answer.json()["detail"]) == (status, detail)
    assert await in_thread(Thread.unscoped.count) == 0
