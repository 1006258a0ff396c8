"""Threads: creating, reading, changing, deleting, searching; their state and history."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from apps.agent_server.endpoints import graph_calls
from apps.agent_server.messaging import calls, messages
from apps.agent_server.models import AgentRun, Thread
from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import AgentFactory, AgentRunFactory, ThreadFactory
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
def ask(client, agent, key):
    def send(method, path, body=None, *, key=key, **headers):
        return getattr(client, method)(
            f"/agents/{agent.slug}{path}",
            data=None if body is None else json.dumps(body),
            content_type="application/json",
            headers={**({"X-Api-Key": key} if key else {}), **headers},
        )

    return send


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
def test_unauthorized_callers_are_rejected(ask, thread, outsider_key, method, path):
    run = AgentRunFactory(thread=thread)
    path = path.format(t=thread.thread_id, r=run.pk)
    body = None if method == "get" else {}

    assert ask(method, path, body, key=None).status_code == 401
    assert ask(method, path, body, key=outsider_key).status_code == 404
    assert Thread.unscoped.count() == 1


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_read_only_key_can_only_read(ask, thread, reader_key, method, path):
    run = AgentRunFactory(thread=thread)
    path = path.format(t=thread.thread_id, r=run.pk)

    status = ask(method, path, None if method == "get" else {}, key=reader_key).status_code

    reads = method == "get" or path.endswith(("search", "count"))
    assert status == (200 if reads else 403)


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if "{t}" in route[1]])
def test_threads_of_other_agents_are_not_found(ask, agent, method, path):
    elsewhere = ThreadFactory(deployment=AgentFactory(workspace=agent.workspace))
    run = AgentRunFactory(thread=elsewhere)
    path = path.format(t=elsewhere.thread_id, r=run.pk)

    response = ask(method, path, None if method == "get" else {})

    assert response.status_code == 404
    assert Thread.unscoped.filter(pk=elsewhere.pk).exists()


def test_thread_is_read_and_changed(ask, thread):
    path = f"/threads/{thread.thread_id}"

    changed = ask("patch", path, {"metadata": {"mood": "good", "topic": "coffee"}})
    minimal = ask("patch", path, {"metadata": {"n": 1}}, Prefer="return=minimal")
    read = ask("get", path)

    assert changed.json()["metadata"] == {"mood": "good", "topic": "coffee"}
    assert (minimal.status_code, minimal.content) == (204, b"")
    assert read.json()["metadata"] == {"mood": "good", "topic": "coffee", "n": 1}
    assert read.json()["updated_at"] > changed.json()["updated_at"]


def test_unknown_and_malformed_ids_are_rejected(ask):
    unknown = uuid4()

    for method in ("get", "patch", "delete"):
        body = None if method == "get" else {}
        missing = ask(method, f"/threads/{unknown}", body)
        malformed = ask(method, "/threads/mine", body)
        assert (missing.status_code, missing.json()["detail"]) == (
            404,
            f"Thread with ID {unknown} not found",
        )
        assert (malformed.status_code, malformed.json()["detail"]) == (
            422,
            "Invalid thread ID: must be a UUID",
        )


def test_deleting_a_busy_thread_cancels_its_run(
    ask, agent, redis_client, django_capture_on_commit_callbacks
):
    thread = ThreadFactory(deployment=agent, status="busy")
    run = AgentRunFactory(thread=thread, status="running")
    cancels = redis_client.pubsub(ignore_subscribe_messages=True)
    cancels.subscribe(messages.CANCELS)
    assert cancels.get_message(timeout=10) is None  # the subscription itself

    with django_capture_on_commit_callbacks(execute=True):
        response = ask("delete", f"/threads/{thread.thread_id}")
    again = ask("delete", f"/threads/{thread.thread_id}")

    assert (response.status_code, response.content) == (204, b"")
    assert again.status_code == 404
    assert not AgentRun.unscoped.exists()
    assert cancels.get_message(timeout=10)["data"] == run.pk.bytes


def test_search_filters_threads(ask, agent):
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

    def found(**body):
        return [row["metadata"]["n"] for row in ask("post", "/threads/search", body).json()]

    assert found() == [4, 3, 2, 1, 0]
    assert found(metadata={"nested": {"even": True}}) == [4, 2, 0]
    assert found(values={"n": 3}) == [3]
    assert found(status="error") == [4]
    assert found(ids=[str(rows[1].thread_id), str(uuid4())]) == [1]
    assert found(sort_by="updated_at", sort_order="asc", limit=2, offset=1) == [1, 2]
    counts = [
        ask("post", "/threads/count", body).json()
        for body in ({}, {"status": "idle"}, {"metadata": {"n": 2}})
    ]
    assert counts == [5, 4, 1]


def test_pages_have_a_next_offset(ask, agent):
    ThreadFactory.create_batch(3, deployment=agent)

    first = ask("post", "/threads/search", {"limit": 2})
    last = ask("post", "/threads/search", {"limit": 2, "offset": 2})

    assert len(first.json()) == 2
    assert first.headers["X-Pagination-Total"] == "3"
    assert first.headers["X-Pagination-Next"] == "2"
    assert len(last.json()) == 1
    assert last.headers["X-Pagination-Total"] == "3"
    assert "X-Pagination-Next" not in last.headers


def test_search_returns_only_selected_fields(ask, thread):
    rows = ask("post", "/threads/search", {"select": ["thread_id", "status"]})
    wrong = ask("post", "/threads/search", {"select": ["secrets"]})

    assert rows.json() == [{"thread_id": str(thread.thread_id), "status": "idle"}]
    assert wrong.status_code == 422


@pytest.mark.parametrize(
    "body",
    [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"status": "asleep"}, {"extract": {"a": "b"}}],
)
def test_search_outside_its_range_is_rejected(ask, body):
    assert ask("post", "/threads/search", body).status_code == 422


def test_runs_are_listed_and_read(ask, thread):
    runs = [AgentRunFactory(thread=thread, sequence=n, status="success") for n in (1, 2, 3)]
    AgentRunFactory(thread=thread, sequence=4, status="error")
    path = f"/threads/{thread.thread_id}/runs"

    listed = ask("get", f"{path}?limit=2&offset=1")
    succeeded = ask("get", f"{path}?status=success&select=run_id")
    both_forms = ask("get", f'{path}?limit=1&select=["run_id","status"]')
    one = ask("get", f"{path}/{runs[0].pk}")

    assert [run["run_id"] for run in listed.json()] == [str(runs[2].pk), str(runs[1].pk)]
    assert succeeded.json() == [{"run_id": str(run.pk)} for run in reversed(runs)]
    assert set(both_forms.json()[0]) == {"run_id", "status"}
    assert one.json()["run_id"] == str(runs[0].pk)
    assert ask("get", f"{path}?status=lost").json() == []
    assert ask("get", f"{path}?select=secrets").status_code == 422
    assert ask("get", f"{path}?limit=x").status_code == 422
    assert ask("get", f"{path}/{uuid4()}").status_code == 404
    assert ask("get", f"{path}/mine").status_code == 422
    assert ask("get", f"/threads/{uuid4()}/runs").status_code == 404


def test_requests_take_a_fixed_number_of_queries(ask, agent, thread, django_assert_num_queries):
    run = AgentRunFactory(thread=thread)
    path = f"/threads/{thread.thread_id}"
    ask("get", path)

    for count, method, where, body in [
        (1, "get", path, None),
        (1, "patch", path, {"metadata": {}}),
        (1, "get", f"{path}/runs/{run.pk}", None),
        (2, "get", f"{path}/runs", None),
        (1, "post", "/threads/count", {}),
    ]:
        with django_assert_num_queries(count):
            ask(method, where, body)
    for size in (1, 20):
        ThreadFactory.create_batch(size, deployment=agent)
        with django_assert_num_queries(1):
            ask("post", "/threads/search", {"limit": 50})


# State and history wait for graphs, so consumers answer them.


async def test_thread_without_runs_has_an_empty_state(call, thread):
    state = await call("GET", f"/threads/{thread.thread_id}/state")
    history = await call("GET", f"/threads/{thread.thread_id}/history")
    posted = await call("POST", f"/threads/{thread.thread_id}/history", {"limit": 10})

    assert state.json() == BLANK
    assert history.json() == posted.json() == []


async def test_state_after_a_run_is_read_from_the_row(call, agent):
    kept = {"values": {"n": 1}, "next": [], "tasks": []}
    thread = await in_thread(
        ThreadFactory,
        deployment=agent,
        state=kept,
        runs_received=1,
        metadata={"graph_id": "agent"},
    )

    plain = await call("GET", f"/threads/{thread.thread_id}/state")
    nested = await call("GET", f"/threads/{thread.thread_id}/state?subgraphs=true")

    assert plain.json() == nested.json() == kept
    assert plain.headers["content-type"] == "application/json"


@pytest.fixture
def graph(monkeypatch) -> list:
    """Stands for the worker's side of a call: notes what was asked."""
    asked: list = []

    async def call(revision, graph_id, method, params=None, *, thread=None, seconds=60):
        asked.append((revision.pk, graph_id, method, params, thread and thread.thread_id))
        return b'{"live":true}'

    monkeypatch.setattr(graph_calls, "acall", call)
    return asked


async def test_other_states_are_requested_from_the_graph(call, agent, graph):
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
    assert graph == [
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


async def test_invalid_state_request_is_rejected(call, thread, graph):
    path = f"/threads/{thread.thread_id}"

    assert (await call("GET", f"{path}/history?limit=0")).status == 422
    assert (await call("GET", f"{path}/history?before=x")).status == 422
    assert (await call("POST", f"{path}/state/checkpoint", {})).status == 422
    assert (await call("POST", f"{path}/history")).status == 422
    assert (await call("GET", f"/threads/{uuid4()}/state")).status == 404
    assert (await call("GET", "/threads/mine/state")).status == 422
    assert (await call("GET", "/assistants/agent/graph?xray=-1")).status == 422
    assert graph == []


async def test_unresponsive_graph_is_unavailable(call, agent, monkeypatch):
    async def fail(*_, **__):
        raise calls.CallFailed("TimeoutError", "The graph did not answer in time.")

    monkeypatch.setattr(graph_calls, "acall", fail)

    answer = await call("GET", "/assistants/agent/graph?xray=true")

    assert (answer.status, answer.json()["detail"]) == (503, "The graph did not answer in time.")


async def test_browser_session_is_accepted_like_a_key(front, agent, thread, client, settings):
    member = await in_thread(WorkspaceMembershipFactory, workspace=agent.workspace)
    await in_thread(client.force_login, member.user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    browser = Caller(agent.slug, Cookie=cookie)

    state = await browser("GET", f"/threads/{thread.thread_id}/state")
    forged = await browser("POST", "/runs/wait", {"assistant_id": "agent"})

    assert state.json() == BLANK
    assert (forged.status, forged.json()["detail"][:18]) == (403, "CSRF check failed:")
    assert not await in_thread(AgentRun.unscoped.exists)
