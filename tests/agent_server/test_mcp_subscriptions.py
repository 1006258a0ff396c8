"""Subscriptions of MCP clients to threads and resources of graphs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from apps.agent_server.mcp import subscriptions
from apps.agent_server.models import Thread
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.models import Deployment, Revision
from tests.agent_server.asgi import Answer, AsgiRequest, Caller
from tests.agent_server.test_mcp import META, begin_asking_session, request, stateless, user_call
from tests.factories.agent_server import ThreadFactory, route_of
from tests.factories.deployments import RevisionFactory

__all__ = ["user_call"]
UPDATED = "notifications/resources/updated"


@pytest.fixture(autouse=True)
def frequent_heartbeats(monkeypatch) -> None:
    monkeypatch.setattr("apps.agent_server.web.http_context.HEARTBEAT_SECONDS", 0.05)


@pytest.fixture
async def uri(call, agent) -> str:
    """The address of a thread."""
    thread = await in_thread(ThreadFactory, deployment=agent)
    return f"thread:///{thread.thread_id}"


async def change(call: Caller, uri: str) -> None:
    path = f"/threads/{uri.removeprefix('thread:///')}"
    assert (await call("PATCH", path, {"metadata": {"a": 1}})).status == 200


def open_stream(call: Caller, session: dict[str, str]) -> AsgiRequest:
    return call.open("GET", "/mcp", **session, Accept="text/event-stream")


async def send(call: Caller, method: str, uri: Any, session: dict[str, str]) -> Any:
    return (await call("POST", "/mcp", request(method, {"uri": uri}), **session)).json()


def has_beaten(answer: Answer) -> bool:
    """Whether the stream has looked for changes."""
    return answer.body.count(b": heartbeat") > 1


def listen(call: Caller, *uris: str, **filters: Any) -> AsgiRequest:
    body, headers = stateless(
        "subscriptions/listen", notifications={"resourceSubscriptions": list(uris), **filters}
    )
    return call.open("POST", "/mcp", body, **headers)


# A client with a session


async def test_a_session_is_told_of_the_changes_it_subscribed_to(call, agent, uri):
    session = await begin_asking_session(call)
    other = f"thread:///{(await in_thread(ThreadFactory, deployment=agent)).thread_id}"
    assert (await send(call, "resources/subscribe", uri, session))["result"] == {}

    async with open_stream(call, session) as client:
        await change(call, other)
        await change(call, uri)
        answer = await client.wait_until(lambda answer: answer.events and has_beaten(answer))
        beats = answer.body.count(b": heartbeat")
        await client.wait_until(lambda answer: answer.body.count(b": heartbeat") > beats + 1)

    assert answer.headers["content-type"].startswith("text/event-stream")
    [(name, message, _)] = client.answer.events
    assert name == "message"
    assert message == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri}}


async def test_a_stream_that_is_opened_later_misses_no_change(call, uri):
    session = await begin_asking_session(call)
    await send(call, "resources/subscribe", uri, session)
    await change(call, uri)

    async with open_stream(call, session) as client:
        answer = await client.wait_until(lambda answer: answer.events)

    assert answer.events[0][1]["params"] == {"uri": uri}


async def test_the_end_of_a_run_is_a_change(call, worker, uri):
    session = await begin_asking_session(call)
    thread_id = uri.removeprefix("thread:///")
    await call("POST", f"/threads/{thread_id}/runs", {"assistant_id": "agent"})
    run = await worker.claim_run()
    await send(call, "resources/subscribe", uri, session)

    async with open_stream(call, session) as client:
        await client.wait_until(has_beaten)
        assert client.answer.events == []
        await worker.end(run, values={"a": 1})
        answer = await client.wait_until(lambda answer: answer.events)

    assert answer.events[0][1]["params"] == {"uri": uri}


async def test_an_ended_subscription_is_silent(call, uri):
    session = await begin_asking_session(call)
    await send(call, "resources/subscribe", uri, session)

    assert (await send(call, "resources/unsubscribe", uri, session))["result"] == {}
    assert (await send(call, "resources/unsubscribe", uri, session))["result"] == {}
    async with open_stream(call, session) as client:
        await change(call, uri)
        await client.wait_until(has_beaten)

    assert client.answer.events == []


async def test_one_stream_of_a_session_tells_of_a_change(call, uri):
    session = await begin_asking_session(call)
    await send(call, "resources/subscribe", uri, session)

    async with open_stream(call, session) as first:
        await first.wait_until(has_beaten)
        async with open_stream(call, session) as second:
            ended = await first.wait_for_end()
            await change(call, uri)
            told = await second.wait_until(lambda answer: answer.events)

    assert (ended.events, len(told.events)) == ([], 1)


async def test_a_deleted_thread_is_told_once(call, uri):
    session = await begin_asking_session(call)
    await send(call, "resources/subscribe", uri, session)

    async with open_stream(call, session) as client:
        await call("DELETE", f"/threads/{uri.removeprefix('thread:///')}")
        answer = await client.wait_until(lambda answer: answer.events)
        beats = answer.body.count(b": heartbeat")
        await client.wait_until(lambda answer: answer.body.count(b": heartbeat") > beats + 1)

    assert [message["params"] for _, message, _ in client.answer.events] == [{"uri": uri}]


def serve_new_revision(agent: Deployment) -> None:
    active = agent.active_revision
    config = {"mcp": {"resources": {"docs://all": "agent"}}}
    revision = RevisionFactory(deployment=agent, config=config, number=active.number + 1)
    active.graphs.update(revision=revision)
    agent.active_revision = revision
    agent.save()
    routes.clear_cache()
    route_of(agent)


async def test_the_resource_of_a_graph_changes_with_its_revision(call, agent):
    await in_thread(serve_new_revision, agent)
    session = await begin_asking_session(call)
    assert "result" in await send(call, "resources/subscribe", "docs://all", session)

    async with open_stream(call, session) as client:
        await client.wait_until(has_beaten)
        assert client.answer.events == []
        await in_thread(serve_new_revision, agent)
        answer = await client.wait_until(lambda answer: answer.events)

    assert answer.events[0][1]["params"] == {"uri": "docs://all"}


@pytest.mark.parametrize("uri", ["docs://none", f"thread:///{UUID(int=7)}", "thread:///x", ""])
async def test_what_a_caller_does_not_see_has_no_subscription(call, uri):
    session = await begin_asking_session(call)

    refused = await send(call, "resources/subscribe", uri, session)

    assert refused["error"]["code"] == -32002


async def test_threads_of_others_have_no_subscription(call, user_call):
    foreign = f"thread:///{(await in_thread(ThreadFactory)).thread_id}"
    session = await begin_asking_session(user_call)

    refused = await send(user_call, "resources/subscribe", foreign, session)

    assert refused["error"]["code"] == -32002


async def test_users_subscribe_to_their_own_threads(user_call, agent):
    own = await in_thread(ThreadFactory, deployment=agent, metadata={"owner": "tom"})
    hidden = await in_thread(ThreadFactory, deployment=agent, metadata={"owner": "ann"})
    session = await begin_asking_session(user_call)

    accepted = await send(user_call, "resources/subscribe", f"thread:///{own.thread_id}", session)
    refused = await send(user_call, "resources/subscribe", f"thread:///{hidden.thread_id}", session)
    async with open_stream(user_call, session) as client:
        await in_thread(Thread.unscoped.filter(pk=own.pk).update, metadata={"owner": "ann"})
        answer = await client.wait_until(lambda answer: answer.events)

    assert accepted["result"] == {}
    assert refused["error"]["code"] == -32002
    assert answer.events[0][1]["params"] == {"uri": f"thread:///{own.thread_id}"}


async def test_a_session_has_a_bounded_number_of_subscriptions(call, agent, uri, monkeypatch):
    monkeypatch.setattr(subscriptions, "MAX_PER_CLIENT", 1)
    session = await begin_asking_session(call)
    other = f"thread:///{(await in_thread(ThreadFactory, deployment=agent)).thread_id}"
    await send(call, "resources/subscribe", uri, session)

    again = await send(call, "resources/subscribe", uri, session)
    second = await send(call, "resources/subscribe", other, session)

    assert again["result"] == {}
    assert second["error"]["code"] == -32602
    assert "at most 1" in second["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "application/json"}, 406),
        ({"Accept": "text/event-stream", "Mcp-Session-Id": "forged"}, 404),
        ({"Accept": "text/event-stream", "Origin": "http://evil.example"}, 403),
        ({"Accept": "text/event-stream", "Mcp-Protocol-Version": "2026-07-28"}, 405),
        ({"Accept": "text/event-stream", "X-Api-Key": "wrong"}, 401),
    ],
)
async def test_a_stream_needs_a_session_of_its_caller(call, headers, status):
    session = await begin_asking_session(call)

    answer = await call("GET", "/mcp", **{**session, **headers})

    assert answer.status == status


async def test_a_subscription_needs_a_session(call, uri):
    body = request("resources/subscribe", {"uri": uri})

    assert (await call("POST", "/mcp", body)).json()["error"]["code"] == -32600
    answer = await call("GET", "/mcp", Accept="text/event-stream")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


# A client without a session


async def test_a_client_listens_to_what_it_may_read(call, uri):
    unknown = f"thread:///{UUID(int=7)}"

    async with listen(call, uri, unknown, uri, toolsListChanged=True) as client:
        await client.wait_until(has_beaten)
        await change(call, uri)
        answer = await client.wait_until(lambda answer: len(answer.events) > 1)

    (_, first, _), (_, second, _) = answer.events
    meta = {"_meta": {f"{META}subscriptionId": 1}}
    assert first == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"resourceSubscriptions": [uri]}, **meta},
    }
    assert second == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri, **meta}}


async def test_a_client_may_listen_to_nothing(call):
    async with listen(call, f"thread:///{UUID(int=7)}") as client:
        answer = await client.wait_until(lambda answer: answer.events)

    assert answer.events[0][1]["params"]["notifications"] == {}


@pytest.mark.parametrize("uris", [7, [7], ["thread:///x"] * 101])
async def test_malformed_filters_are_refused(call, uris):
    body, headers = stateless("subscriptions/listen", notifications={"resourceSubscriptions": uris})

    assert (await call("POST", "/mcp", body, **headers)).json()["error"]["code"] == -32602
    body["params"]["notifications"] = []
    assert (await call("POST", "/mcp", body, **headers)).json()["error"]["code"] == -32602


async def test_disabled_threads_have_no_subscription(call, agent, uri):
    config = {"http": {"disable_threads": True}}
    await in_thread(Revision.unscoped.filter(deployment=agent).update, config=config)
    routes.clear_cache()
    session = await begin_asking_session(call)

    refused = await send(call, "resources/subscribe", uri, session)

    assert refused["error"]["code"] == -32002
