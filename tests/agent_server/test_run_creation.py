"""`POST .../runs` and the runs that it creates."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID, uuid4

import pytest
import redis
from django.db import connections

from apps.agent_server.messaging import messages
from apps.agent_server.models import AgentRun, Assistant, Thread
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import dispatch, runs
from tests.factories.agent_server import (
    AgentFactory,
    CheckpointFactory,
    ThreadFactory,
    route_of,
    sibling_workspace,
)
from tests.factories.api_keys import key_for

BUSY = (
    "Thread is already running a task. Wait for it to finish or choose a different multitask"
    " strategy."
)
INVALID_UUID = "checkpoint_id: Input should be a valid UUID, invalid character: found `o` at 0"
FTP = "Webhook host blocked: the address must begin with https:// or http://."
NOT_FOUND = "Thread or assistant not found."
AGENT_ID = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"


@pytest.fixture
def thread(agent) -> Thread:
    return ThreadFactory(deployment=agent, metadata={"topic": "tea"})


@pytest.fixture
def post(client, agent, thread, key):
    def send(body, *, headers=None, path=f"/threads/{thread.thread_id}/runs"):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return client.post(
            f"/agents/{agent.slug}{path}",
            raw,
            content_type="application/json",
            headers={"X-Api-Key": key} if headers is None else headers,
        )

    return send


def test_anonymous_request_is_rejected(post):
    response = post({"assistant_id": "agent"}, headers={})

    assert response.status_code == 401
    assert response.json()["detail"] == "Sign in or send a valid API key."
    assert not AgentRun.unscoped.exists()


def test_agent_is_not_found_for_an_outsider(post, outsider_key):
    response = post({"assistant_id": "agent"}, headers={"X-Api-Key": outsider_key})

    assert response.status_code == 404
    assert response.json()["code"] == "agent_not_found"
    assert not AgentRun.unscoped.exists()


def test_read_only_key_cannot_create_a_run(post, reader_key):
    response = post({"assistant_id": "agent"}, headers={"X-Api-Key": reader_key})

    assert response.status_code == 403
    assert not AgentRun.unscoped.exists()


def test_key_bound_to_another_workspace_is_rejected(post, agent):
    sibling_key = key_for(sibling_workspace(agent), "write")

    response = post({"assistant_id": "agent"}, headers={"X-Api-Key": sibling_key})

    assert response.status_code == 403
    assert not AgentRun.unscoped.exists()


def test_bearer_token_is_accepted(post, key):
    response = post({"assistant_id": "agent"}, headers={"Authorization": f"Bearer {key}"})

    assert response.status_code == 200


def test_created_run_makes_the_thread_busy(post, agent, thread):
    response = post(
        {
            "assistant_id": "agent",
            "input": {"messages": [{"role": "user", "content": "Hi"}]},
            "metadata": {"topic": "coffee", "mood": "good"},
            "stream_mode": "updates",
            "unknown_field": True,
            "run_id": str(uuid4()),
        }
    )

    assert response.status_code == 200
    body = response.json()
    row = AgentRun.unscoped.get()
    assert body == {
        "run_id": str(row.pk),
        "thread_id": str(thread.thread_id),
        "assistant_id": AGENT_ID,
        "status": "pending",
        "metadata": {
            "created_by": "system",
            "topic": "coffee",
            "mood": "good",
            "graph_id": "agent",
            "assistant_id": AGENT_ID,
        },
        "kwargs": {
            "input": {"messages": [{"role": "user", "content": "Hi"}]},
            "command": None,
            "config": {"configurable": {"langgraph_request_id": response.headers["X-Request-ID"]}},
            "context": None,
            "checkpoint": None,
            "stream_mode": ["updates"],
            "interrupt_before": None,
            "interrupt_after": None,
            "webhook": None,
            "feedback_keys": None,
            "subgraphs": False,
            "resumable": False,
            "checkpoint_during": None,
            "durability": "async",
        },
        "multitask_strategy": "enqueue",
        "created_at": row.created_at.isoformat(timespec="microseconds"),
        "updated_at": row.updated_at.isoformat(timespec="microseconds"),
    }
    location = response.headers["Content-Location"]
    assert location == f"/threads/{thread.thread_id}/runs/{row.pk}"
    thread.refresh_from_db()
    assert thread.status == "busy"
    assert thread.metadata == {"topic": "tea", "graph_id": "agent", "assistant_id": AGENT_ID}
    assert thread.config == {"configurable": {}}
    assert thread.revision_id == row.revision_id == agent.active_revision_id


def test_request_overrides_the_assistants_configuration(post, agent):
    route_of(agent)
    config = {"tags": ["own"], "recursion_limit": 7, "configurable": {"model": "small", "a": 1}}
    Assistant.unscoped.filter(graph_id="agent").update(
        config=config, context={"model": "small", "a": 1}
    )

    with_config = post(
        {"assistant_id": "agent", "config": {"tags": ["new"], "configurable": {"model": "big"}}}
    )
    with_context = post({"assistant_id": AGENT_ID, "context": {"model": "huge"}})

    assert with_config.json()["kwargs"]["config"] == {
        "tags": ["new"],
        "recursion_limit": 7,
        "configurable": {
            "model": "big",
            "a": 1,
            "langgraph_request_id": with_config.headers["X-Request-ID"],
        },
    }
    assert with_config.json()["kwargs"]["context"] == {"model": "small", "a": 1}
    kwargs = with_context.json()["kwargs"]
    assert kwargs["context"] == {"model": "huge", "a": 1}
    assert kwargs["config"]["configurable"].items() > kwargs["context"].items()


def test_starting_checkpoint_is_stored(post, thread):
    checkpoint_id = "1ef4f797-8335-6428-8001-8a1503f9b875"
    CheckpointFactory(thread=thread, checkpoint_id=checkpoint_id)
    reference = {"checkpoint_id": checkpoint_id, "checkpoint_ns": ""}

    by_id = post({"assistant_id": "agent", "checkpoint_id": checkpoint_id})
    by_checkpoint = post(
        {
            "assistant_id": "agent",
            "checkpoint": {**reference, "thread_id": str(thread.thread_id)},
        }
    )

    expected = {"checkpoint_id": checkpoint_id, "checkpoint_ns": "", "checkpoint_map": None}
    assert by_checkpoint.json()["kwargs"]["checkpoint"] == expected
    assert by_id.json()["kwargs"]["checkpoint"] == {"checkpoint_id": checkpoint_id}


def test_delayed_run_stores_its_planned_start(post, thread):
    initial_count = AgentRun.unscoped.count()

    body = post({"assistant_id": "agent", "after_seconds": 3600}).json()

    row = AgentRun.unscoped.get(pk=body["run_id"])
    assert initial_count == 0
    assert row.created_at == row.available_at
    assert (row.created_at - row.updated_at).total_seconds() == 3600
    thread.refresh_from_db()
    assert thread.status == "busy"


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"", 422, "Invalid JSON in request body"),
        (b"{", 422, "Invalid JSON in request body"),
        ({}, 422, "assistant_id: Field required"),
        ({"assistant_id": 5}, 422, "assistant_id: Input should be a valid string"),
        (
            {"assistant_id": "unknown"},
            422,
            "Invalid assistant: 'unknown'. Must be a UUID or the name of a graph: agent, other",
        ),
        ({"assistant_id": str(UUID(int=7))}, 404, "Thread or assistant not found."),
        (
            {"assistant_id": "agent", "webhook": "ftp://example.com"},
            422,
            FTP,
        ),
        (
            {"assistant_id": "agent", "context": {"a": 1}, "config": {"configurable": {"a": 1}}},
            400,
            "Cannot specify both configurable and context. Prefer setting context alone.",
        ),
        (
            {"assistant_id": "agent", "checkpoint_id": "old"},
            422,
            INVALID_UUID,
        ),
        (
            {"assistant_id": "agent", "config": {"configurable": {"checkpoint_id": "old"}}},
            422,
            "config.configurable.checkpoint_id: must be the UUID of a checkpoint",
        ),
        (
            {"assistant_id": str(UUID(int=7)), "checkpoint_id": str(UUID(int=8))},
            404,
            "Thread or assistant not found.",
        ),
    ],
)
def test_invalid_body_is_rejected_with_one_sentence(post, thread, body, status, detail):
    response = post(body)

    assert (response.status_code, response.json()["detail"]) == (status, detail)
    assert not AgentRun.unscoped.exists()
    thread.refresh_from_db()
    assert thread.status == "idle"


@pytest.mark.parametrize(
    "field",
    [
        {"stream_mode": ["values", "tools"]},
        {"multitask_strategy": "queue"},
        {"durability": "later"},
        {"after_seconds": -1},
        {"interrupt_before": 5},
        {"config": {"recursion_limit": 0}},
        {"metadata": []},
    ],
)
def test_field_outside_its_range_is_rejected_by_name(post, field):
    response = post({"assistant_id": "agent", **field})

    assert response.status_code == 422
    assert response.json()["detail"].startswith(next(iter(field)))


def test_null_means_absent_in_every_field(post):
    fields = [name for name in RunBody.model_fields if name != "assistant_id"]

    response = post({"assistant_id": "agent", **dict.fromkeys(fields)})

    assert response.status_code == 200
    assert response.json()["kwargs"]["stream_mode"] == ["values"]


def test_unknown_thread_is_created_only_on_request(post, agent):
    thread_id = uuid4()
    path = f"/threads/{thread_id}/runs"

    rejected = post({"assistant_id": "agent"}, path=path)
    created = post({"assistant_id": "agent", "if_not_exists": "create"}, path=path)

    assert (rejected.status_code, rejected.json()["detail"]) == (
        404,
        "Thread or assistant not found.",
    )
    assert created.json()["thread_id"] == str(thread_id)
    assert Thread.unscoped.get(deployment=agent, thread_id=thread_id).status == "busy"


def test_malformed_id_is_rejected(post):
    response = post({"assistant_id": "agent"}, path="/threads/mine/runs")

    assert response.status_code == 400
    assert response.json()["detail"] == "Invalid thread ID: must be a UUID"


def test_thread_of_another_agent_is_not_found(post, agent):
    foreign_thread = ThreadFactory(deployment=AgentFactory(workspace=agent.workspace))

    response = post({"assistant_id": "agent"}, path=f"/threads/{foreign_thread.thread_id}/runs")

    assert response.status_code == 404
    foreign_thread.refresh_from_db()
    assert foreign_thread.status == "idle"


def test_busy_thread_follows_the_multitask_strategy(post):
    first = post({"assistant_id": "agent"})
    rejected = post({"assistant_id": "agent", "multitask_strategy": "reject"})
    queued = post({"assistant_id": "agent"})

    assert first.status_code == queued.status_code == 200
    assert (rejected.status_code, rejected.json()["detail"]) == (
        409,
        BUSY,
    )
    assert list(AgentRun.unscoped.order_by("sequence").values_list("pk", "sequence", "status")) == [
        (UUID(first.json()["run_id"]), 1, "pending"),
        (UUID(queued.json()["run_id"]), 2, "pending"),
    ]


@pytest.mark.parametrize("strategy", ["reject", "interrupt", "rollback"])
def test_idle_thread_accepts_every_multitask_strategy(post, strategy):
    response = post({"assistant_id": "agent", "multitask_strategy": strategy})

    assert response.status_code == 200
    assert response.json()["multitask_strategy"] == strategy


def test_null_character_is_kept_in_the_input_and_replaced_elsewhere(post):
    text = {"text": "a\0b"}

    response = post({"assistant_id": "agent", "input": text, "metadata": text, "context": text})

    run = response.json()
    assert run["kwargs"]["input"] == text
    assert run["metadata"]["text"] == run["kwargs"]["context"]["text"] == "a\ufffdb"


def test_stateless_run_gets_a_hidden_thread(client, post, agent, key):
    response = post({"assistant_id": "agent", "input": 1}, path="/runs")

    body = response.json()
    thread = Thread.unscoped.get(thread_id=body["thread_id"])
    assert response.headers["Content-Location"] == f"/runs/{body['run_id']}"
    assert thread.temporary
    assert "graph_id" not in body["metadata"]
    thread_response = client.get(
        f"/agents/{agent.slug}/threads/{thread.thread_id}", headers={"X-Api-Key": key}
    )
    assert thread_response.status_code == 404


def test_stateless_run_can_keep_its_thread(client, post, agent, key):
    body = post({"assistant_id": "agent", "on_completion": "keep"}, path="/runs").json()

    url = f"/agents/{agent.slug}/threads/{body['thread_id']}"
    assert client.get(url, headers={"X-Api-Key": key}).json()["status"] == "busy"


def test_creating_a_run_takes_one_query_with_a_warm_cache(
    post, django_assert_num_queries, django_capture_on_commit_callbacks
):
    post({"assistant_id": "agent"})

    with django_assert_num_queries(1):
        post({"assistant_id": "agent"})
    with django_assert_num_queries(1):
        post({"assistant_id": "agent"}, path="/runs")


def test_twenty_concurrent_runs_have_one_order(agent, thread, transactional_db, redis_client):
    """Sequence, creation time and id give the same order."""
    agent = AgentFactory()
    thread = ThreadFactory(deployment=agent)
    scope = Scope(route_of(agent))
    start = Barrier(20)

    def create(number: int) -> None:
        start.wait(timeout=60)
        runs.create_on_thread(scope, thread.thread_id, RunBody(assistant_id="agent", input=number))
        connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(create, range(20)))

    rows = list(AgentRun.unscoped.filter(thread=thread).order_by("sequence"))
    assert [row.sequence for row in rows] == list(range(1, 21))
    assert sorted(rows, key=lambda row: row.created_at) == rows
    assert sorted(rows, key=lambda row: row.pk) == rows
    assert sorted(row.kwargs["input"] for row in rows) == list(range(20))
    assert redis_client.zrange(messages.RUNS, 0, -1) == [thread.pk.bytes]


def test_run_is_created_while_redis_is_unavailable(
    post, monkeypatch, caplog, django_capture_on_commit_callbacks
):
    unavailable = redis.Redis(unix_socket_path="/nonexistent/redis.sock")
    monkeypatch.setattr(dispatch, "blocking_client", lambda _name: unavailable)

    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        response = post({"assistant_id": "agent"})

    assert response.status_code == 200
    assert len(callbacks) == 1
    assert AgentRun.unscoped.get().status == "pending"
    assert "which the sweeper will replace" in caplog.text
