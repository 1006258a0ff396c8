"""Threads: creating, reading, changing, deleting, searching; their state and history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from apps.agent_server.messaging import calls, messages
from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.services import threads
from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import (
    AgentFactory,
    AgentRunFactory,
    CheckpointFactory,
    ThreadFactory,
)
from tests.factories.organizations import WorkspaceMembershipFactory

BLANK = {
    "values": {},
    "next": [],
    "tasks": [],
    "metadata": None,
    "created_at": None,
    "checkpoint": None,
    "parent_checkpoint": None,
    "interrupts": [],
}


@pytest.fixture
def thread(agent) -> Thread:
    return ThreadFactory(deployment=agent, metadata={"topic": "tea"})


ROUTES = [
    ("get", "/threads/{t}"),
    ("patch", "/threads/{t}"),
    ("delete", "/threads/{t}"),
    ("post", "/threads/search"),
    ("post", "/threads/count"),
    ("get", "/threads/{t}/runs"),
    ("get", "/threads/{t}/runs/{r}"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_unauthorized_callers_are_rejected(send, thread, outsider_key, method, path):
    run = AgentRunFactory(thread=thread)
    path = path.format(t=thread.thread_id, r=run.pk)
    body = None if method == "get" else {}

    assert send(method, path, body, key=None).status_code == 401
    assert send(method, path, body, key=outsider_key).status_code == 404
    assert Thread.unscoped.count() == 1


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_read_only_key_can_only_read(send, thread, reader_key, method, path):
    run = AgentRunFactory(thread=thread)
    path = path.format(t=thread.thread_id, r=run.pk)

    status = send(method, path, None if method == "get" else {}, key=reader_key).status_code

    reads = method == "get" or path.endswith(("search", "count"))
    assert status == (200 if reads else 403)


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if "{t}" in route[1]])
def test_threads_of_other_agents_are_not_found(send, agent, method, path):
    foreign_thread = ThreadFactory(deployment=AgentFactory(workspace=agent.workspace))
    run = AgentRunFactory(thread=foreign_thread)
    path = path.format(t=foreign_thread.thread_id, r=run.pk)

    response = send(method, path, None if method == "get" else {})

    assert response.status_code == 404
    assert Thread.unscoped.filter(pk=foreign_thread.pk).exists()


def test_thread_is_read_and_changed(send, thread):
    path = f"/threads/{thread.thread_id}"

    changed = send("patch", path, {"metadata": {"mood": "good", "topic": "coffee"}})
    minimal = send("patch", path, {"metadata": {"n": 1}}, Prefer="return=minimal")
    read = send("get", path)

    assert changed.json()["metadata"] == {"mood": "good", "topic": "coffee"}
    assert (minimal.status_code, minimal.content) == (204, b"")
    assert read.json()["metadata"] == {"mood": "good", "topic": "coffee", "n": 1}
    assert read.json()["updated_at"] > changed.json()["updated_at"]


def test_unknown_and_malformed_ids_are_rejected(send):
    unknown = uuid4()

    for method in ("get", "patch", "delete"):
        body = None if method == "get" else {}
        missing = send(method, f"/threads/{unknown}", body)
        malformed = send(method, "/threads/mine", body)
        assert (missing.status_code, missing.json()["detail"]) == (
            404,
            f"Thread with ID {unknown} not found",
        )
        assert (malformed.status_code, malformed.json()["detail"]) == (
            422,
            "Invalid thread ID: must be a UUID",
        )


def test_deleting_a_busy_thread_cancels_its_run(
    send, agent, redis_client, django_capture_on_commit_callbacks
):
    thread = ThreadFactory(deployment=agent, status="busy")
    run = AgentRunFactory(thread=thread, status="running")
    cancels = redis_client.pubsub(ignore_subscribe_messages=True)
    cancels.subscribe(messages.CANCELS)
    assert cancels.get_message(timeout=60) is None  # the subscription itself

    with django_capture_on_commit_callbacks(execute=True):
        response = send("delete", f"/threads/{thread.thread_id}")
    repeated = send("delete", f"/threads/{thread.thread_id}")

    assert (response.status_code, response.content) == (204, b"")
    assert repeated.status_code == 404
    assert not AgentRun.unscoped.exists()
    assert cancels.get_message(timeout=60)["data"] == run.pk.bytes


def test_search_filters_threads(send, agent):
    now = datetime.now(UTC)
    rows = [
        ThreadFactory(
            deployment=agent,
            metadata={"n": n, "nested": {"even": n % 2 == 0}},
            values={"n": n},
            status="error" if n == 4 else "idle",
            updated_at=now + timedelta(minutes=n),
        )
        for n in range(5)
    ]
    ThreadFactory(deployment=agent, temporary=True)

    def search_numbers(**body):
        return [row["metadata"]["n"] for row in send("post", "/threads/search", body).json()]

    assert search_numbers() == [4, 3, 2, 1, 0]
    assert search_numbers(metadata={"nested": {"even": True}}) == [4, 2, 0]
    assert search_numbers(values={"n": 3}) == [3]
    assert search_numbers(status="error") == [4]
    assert search_numbers(ids=[str(rows[1].thread_id), str(uuid4())]) == [1]
    assert search_numbers(sort_by="updated_at", sort_order="asc", limit=2, offset=1) == [1, 2]
    counts = [
        send("post", "/threads/count", body).json()
        for body in ({}, {"status": "idle"}, {"metadata": {"n": 2}})
    ]
    assert counts == [5, 4, 1]


def test_pages_have_a_next_offset(send, agent):
    ThreadFactory.create_batch(3, deployment=agent)

    first = send("post", "/threads/search", {"limit": 2})
    last = send("post", "/threads/search", {"limit": 2, "offset": 2})

    assert len(first.json()) == 2
    assert first.headers["X-Pagination-Total"] == "3"
    assert first.headers["X-Pagination-Next"] == "2"
    assert len(last.json()) == 1
    assert last.headers["X-Pagination-Total"] == "3"
    assert "X-Pagination-Next" not in last.headers


def test_search_with_too_many_bytes_is_refused(send, agent, monkeypatch):
    for _ in range(3):
        ThreadFactory(deployment=agent, values={"text": "x" * 1_000})
    ThreadFactory(deployment=agent, values=None)
    monkeypatch.setattr(threads, "MAX_PAGE_BYTES", 3_500)

    assert len(send("post", "/threads/search", {}).json()) == 4
    monkeypatch.setattr(threads, "MAX_PAGE_BYTES", 2_500)
    refused = send("post", "/threads/search", {})

    assert refused.status_code == 413
    assert "search with a smaller `limit`" in refused.json()["detail"]
    assert len(send("post", "/threads/search", {"select": ["thread_id"]}).json()) == 4
    assert len(send("post", "/threads/search", {"limit": 1}).json()) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"select": ["thread_id", "interrupts"]},
        {"select": ["thread_id"], "extract": {"text": "values.text"}},
        {"select": ["thread_id"], "extract": {"asked": "interrupts"}},
    ],
)
def test_parts_of_states_have_the_same_limit(send, agent, monkeypatch, fields):
    for _ in range(3):
        asked = {"task": [{"id": "1", "value": "x" * 1_000}]}
        ThreadFactory(deployment=agent, values={"text": "x" * 1_000}, interrupts=asked)
    monkeypatch.setattr(threads, "MAX_PAGE_BYTES", 12_000)
    assert len(send("post", "/threads/search", fields).json()) == 3
    monkeypatch.setattr(threads, "MAX_PAGE_BYTES", 2_500)

    refused = send("post", "/threads/search", fields)

    assert refused.status_code == 413
    assert len(send("post", "/threads/search", fields | {"limit": 1}).json()) == 1


def test_search_returns_only_selected_fields(send, thread):
    rows = send("post", "/threads/search", {"select": ["thread_id", "status"]})
    rejected = send("post", "/threads/search", {"select": ["secrets"]})

    assert rows.json() == [{"thread_id": str(thread.thread_id), "status": "idle"}]
    assert rejected.status_code == 422


@pytest.mark.parametrize(
    "body",
    [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"status": "asleep"}, {"extract": {"a": "b"}}],
)
def test_search_outside_its_range_is_rejected(send, body):
    assert send("post", "/threads/search", body).status_code == 422


def test_runs_are_listed_and_read(send, thread):
    runs = [AgentRunFactory(thread=thread, sequence=n, status="success") for n in (1, 2, 3)]
    AgentRunFactory(thread=thread, sequence=4, status="error")
    path = f"/threads/{thread.thread_id}/runs"

    listed = send("get", f"{path}?limit=2&offset=1")
    succeeded = send("get", f"{path}?status=success&select=run_id")
    both_forms = send("get", f'{path}?limit=1&select=["run_id","status"]')
    single = send("get", f"{path}/{runs[0].pk}")

    assert [run["run_id"] for run in listed.json()] == [str(runs[2].pk), str(runs[1].pk)]
    assert succeeded.json() == [{"run_id": str(run.pk)} for run in reversed(runs)]
    assert set(both_forms.json()[0]) == {"run_id", "status"}
    assert single.json()["run_id"] == str(runs[0].pk)
    assert send("get", f"{path}?status=lost").json() == []
    assert send("get", f"{path}?select=secrets").status_code == 422
    assert send("get", f"{path}?limit=x").status_code == 422
    assert send("get", f"{path}/{uuid4()}").status_code == 404
    assert send("get", f"{path}/mine").status_code == 422
    assert send("get", f"/threads/{uuid4()}/runs").status_code == 404


@pytest.mark.usefixtures("unexpired_caches")
def test_requests_take_a_fixed_number_of_queries(send, agent, thread, django_assert_num_queries):
    run = AgentRunFactory(thread=thread)
    path = f"/threads/{thread.thread_id}"
    send("patch", path, {"metadata": {}})

    for count, method, address, body in [
        (1, "get", path, None),
        (1, "patch", path, {"metadata": {}}),
        (1, "get", f"{path}/runs/{run.pk}", None),
        (2, "get", f"{path}/runs", None),
        (1, "post", "/threads/count", {}),
    ]:
        with django_assert_num_queries(count):
            send(method, address, body)
    for size in (1, 20):
        ThreadFactory.create_batch(size, deployment=agent)
        with django_assert_num_queries(1):
            send("post", "/threads/search", {"limit": 50})


# State and history may call a graph.


async def test_thread_without_runs_has_an_empty_state(call, thread):
    state = await call("GET", f"/threads/{thread.thread_id}/state")
    history = await call("GET", f"/threads/{thread.thread_id}/history")
    posted = await call("POST", f"/threads/{thread.thread_id}/history", {"limit": 10})

    assert state.json() == BLANK
    assert history.json() == posted.json() == []


async def test_state_after_a_run_is_read_from_the_row(call, agent):
    stored_state = {"values": {"n": 1}, "next": [], "tasks": []}
    thread = await in_thread(
        ThreadFactory,
        deployment=agent,
        state=stored_state,
        runs_received=1,
        metadata={"graph_id": "agent"},
    )

    plain = await call("GET", f"/threads/{thread.thread_id}/state")
    nested = await call("GET", f"/threads/{thread.thread_id}/state?subgraphs=true")

    assert plain.json() == nested.json() == stored_state
    assert plain.headers["content-type"] == "application/json"


@pytest.fixture
def graph_requests(monkeypatch) -> list:
    """Replaces the call of a graph; the list has the calls."""
    calls_made: list = []

    async def call(route, graph_id, method, params, *, thread=None, revision_id=None):
        revision_id = revision_id or route.active_revision_id
        calls_made.append((revision_id, graph_id, method, params, thread and thread.thread_id))
        return b'{"live":true}'

    monkeypatch.setattr(calls, "call_graph", call)
    return calls_made


async def test_other_states_are_requested_from_the_graph(call, agent, graph_requests):
    thread = await in_thread(
        ThreadFactory,
        deployment=agent,
        status="busy",
        state={"values": {}},
        runs_received=2,
        metadata={"graph_id": "other"},
    )
    path, revision = f"/threads/{thread.thread_id}", agent.active_revision_id
    checkpoint_id = "1ef4f797-8335-6428-8001-8a1503f9b875"
    reference = {"checkpoint_id": checkpoint_id, "checkpoint_ns": "", "checkpoint_map": None}
    await in_thread(CheckpointFactory, thread=thread, checkpoint_id=checkpoint_id)

    live = await call("GET", f"{path}/state")
    await call("GET", f"{path}/state/{checkpoint_id}?subgraphs=1")
    await call("POST", f"{path}/state/checkpoint", {"checkpoint": reference})
    await call("GET", f"{path}/history?limit=3&before={checkpoint_id}")
    before = {"configurable": {"checkpoint_id": checkpoint_id}}
    await call("POST", f"{path}/history", {"before": before, "metadata": {"step": 1}})
    await call("GET", "/assistants/other/graph?xray=2")
    await call("GET", "/assistants/other/subgraphs?recurse=true")

    config = {"config": {}, "user": None}
    history = {"metadata": None, "checkpoint": None, **config}
    assert live.json() == {"live": True}
    assert graph_requests == [
        (revision, "other", "state", {"subgraphs": False, **config}, thread.thread_id),
        (
            revision,
            "other",
            "state",
            {"checkpoint": reference, "subgraphs": True, **config},
            thread.thread_id,
        ),
        (
            revision,
            "other",
            "state",
            {"checkpoint": reference, "subgraphs": False, **config},
            thread.thread_id,
        ),
        (
            revision,
            "other",
            "history",
            {"limit": 3, "before": checkpoint_id, **history},
            thread.thread_id,
        ),
        (
            revision,
            "other",
            "history",
            {"limit": 1, "before": checkpoint_id, **history, "metadata": {"step": 1}},
            thread.thread_id,
        ),
        (revision, "other", "graph", {"xray": 2, "user": None}, None),
        (revision, "other", "subgraphs", {"namespace": None, "recurse": True, "user": None}, None),
    ]


async def test_invalid_state_request_is_rejected(call, thread, graph_requests):
    path = f"/threads/{thread.thread_id}"

    assert (await call("GET", f"{path}/history?limit=0")).status == 422
    assert (await call("GET", f"{path}/history?before=x")).status == 422
    assert (await call("POST", f"{path}/state/checkpoint", {})).status == 422
    assert (await call("POST", f"{path}/history")).status == 422
    assert (await call("GET", f"/threads/{uuid4()}/state")).status == 404
    assert (await call("GET", "/threads/mine/state")).status == 422
    assert (await call("GET", "/assistants/agent/graph?xray=-1")).status == 422
    assert graph_requests == []


async def test_unresponsive_graph_is_unavailable(call, agent, monkeypatch):
    async def fail(*_, **__):
        raise calls.CallFailed("TimeoutError", "The graph did not answer in time.")

    monkeypatch.setattr(calls, "call_graph", fail)

    answer = await call("GET", "/assistants/agent/graph?xray=true")

    assert (answer.status, answer.json()["detail"]) == (503, "The graph did not answer in time.")


async def test_browser_session_is_accepted_like_a_key(asgi_app, agent, thread, client, settings):
    member = await in_thread(WorkspaceMembershipFactory, workspace=agent.workspace)
    await in_thread(client.force_login, member.user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    browser = Caller(agent.slug, Cookie=cookie)

    state = await browser("GET", f"/threads/{thread.thread_id}/state")
    forged = await browser("POST", "/runs/wait", {"assistant_id": "agent"})

    assert state.json() == BLANK
    assert (forged.status, forged.json()["detail"][:18]) == (403, "CSRF check failed:")
    assert not await in_thread(AgentRun.unscoped.exists)
