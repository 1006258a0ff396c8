"""Messages between the platform and an engine in Redis."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis
from redis.asyncio.connection import parse_url

from apps.agent_server.messaging import calls, messages
from apps.agent_server.messaging.messages import CallRequest, CallResponse
from apps.agent_server.messaging.redis_dispatcher import RedisDispatcher
from apps.agent_server.services import dispatch
from apps.deployments import routes
from tests.agent_runtime.factories import let_continue, make_run, make_thread
from tests.installation import wait_until

ITEM = {"input": {"item": "a"}}


@pytest.fixture(autouse=True)
def redis_client(settings, empty_queues) -> Iterator[redis.Redis]:
    """The Redis database of the messages, without queued runs and calls."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    yield client
    client.close()


def test_an_enqueued_thread_is_executed(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs=ITEM)

    dispatch.enqueue_thread(thread.pk)
    events = list(listen(run.pk))

    assert events[-1] == ("end", {"status": "success"})


def test_enqueueing_a_thread_twice_keeps_its_place_in_the_queue(revision, redis_client):
    first, second = make_thread(revision).pk, make_thread(revision).pk

    dispatch.enqueue_threads([first])
    dispatch.enqueue_threads([second, first])

    assert redis_client.zrange(messages.RUNS, 0, -1) == [first.bytes, second.bytes]


def test_an_engine_claims_no_more_threads_than_its_capacity(
    engines, revision, listen, redis_client, file
):
    engines(AGENT_RUNS_PER_WORKER=2)
    threads = [make_thread(revision) for _ in range(4)]
    kwargs = {"input": {"file": str(file), "wait_at": "one"}}
    runs = [make_run(thread, "steps", kwargs=kwargs) for thread in threads]

    for thread in threads:
        dispatch.enqueue_thread(thread.pk)
    wait_until(lambda: redis_client.zcard(messages.RUNS) == 2, "claiming two threads")
    queued = redis_client.zrange(messages.RUNS, 0, -1)
    let_continue(file)
    for run in runs:
        assert list(listen(run.pk))[-1] == ("end", {"status": "success"})

    assert queued == [thread.pk.bytes for thread in threads[2:]]


def test_a_draining_engine_requeues_its_unclaimed_threads(engine, revision, redis_client):
    engine.run(engine.engine.drain(0))
    thread = make_thread(revision)

    engine.call(engine.engine.claim_or_queue, thread.pk)
    wait_until(lambda: redis_client.zcard(messages.RUNS) == 1, "requeueing the thread")
    dispatch.enqueue_thread(make_thread(revision).pk)
    engine.stop(0)

    assert redis_client.zcard(messages.RUNS) == 2


def test_graph_call_returns_the_response_of_the_graph_host(engine, revision):
    route = routes.find_route(revision.deployment.slug)

    drawing = asyncio.run(calls.call_graph(route, "collect", "graph", {"xray": False}))

    assert json.loads(drawing)["nodes"][0]["id"] == "__start__"
    with pytest.raises(calls.CallFailed, match="no graph `nowhere`") as error_info:
        asyncio.run(calls.call_graph(route, "nowhere", "graph", {}))
    assert error_info.value.name == "ProjectError"


def test_a_graph_call_without_answer_times_out(revision):
    route = routes.find_route(revision.deployment.slug)

    with pytest.raises(calls.CallFailed) as error_info:
        asyncio.run(calls.call_graph(route, "collect", "graph", {}, seconds=-0.9))

    assert error_info.value.name == "TimeoutError"


def build_request(channel: str) -> CallRequest:
    return CallRequest(
        id=uuid4().bytes,
        response_channel=channel,
        sent_at=time.time(),
        seconds=60,
        revision_id=b"",
        deployment_id=b"",
        workspace_id=b"",
        graph_id="collect",
        method="graph",
        thread=b"",
        thread_id="",
        params=b"{}",
    )


def test_a_large_answer_is_not_sent_over_the_channel(redis_client):
    async def call_with_large_response() -> tuple[CallResponse, list[bytes]]:
        dispatcher = RedisDispatcher()
        request = build_request(dispatcher.channel)
        call = asyncio.create_task(dispatcher.call(request, 10))
        await asyncio.to_thread(redis_client.blpop, [messages.CALLS], 60)
        large_response = CallResponse(request.id, True, b"x" * (messages.MAX_CHANNEL_BYTES + 1))
        commands = large_response.commands(request)
        await asyncio.to_thread(messages.send_commands, redis_client, *commands)
        response = await call
        await dispatcher.aclose()
        return response, [command[-1] for command in commands]

    response, payloads = asyncio.run(call_with_large_response())

    assert len(response.body or b"") == messages.MAX_CHANNEL_BYTES + 1
    assert [len(payloads[0]) > messages.MAX_CHANNEL_BYTES, len(payloads[2]) < 100] == [True, True]
    assert redis_client.keys("slipway:answer:*") == []


def test_a_large_answer_that_expired_before_it_is_read_times_out(redis_client):
    async def call_with_expired_response() -> None:
        dispatcher = RedisDispatcher()
        request = build_request(dispatcher.channel)
        call = asyncio.create_task(dispatcher.call(request, 10))
        await asyncio.to_thread(redis_client.blpop, [messages.CALLS], 60)
        announcement = CallResponse(request.id, True, b"x" * messages.MAX_CHANNEL_BYTES)
        *_, publish = announcement.commands(request)
        await asyncio.to_thread(messages.send_commands, redis_client, publish)
        try:
            await call
        finally:
            await dispatcher.aclose()

    with pytest.raises(TimeoutError, match="expired"):
        asyncio.run(call_with_expired_response())


def test_queued_messages_are_sent_once_redis_is_back(settings, redis_client, revision):
    """They are queued in the process meanwhile, and `send` does not block."""
    thread = make_thread(revision)

    async def send() -> None:
        dispatcher = RedisDispatcher("unix:///nonexistent/redis.sock")
        await asyncio.to_thread(dispatcher.send, messages.enqueue_thread(thread.pk))
        await asyncio.sleep(0)
        dispatcher._link._options = parse_url(settings.REDIS_URL)
        while not redis_client.zcard(messages.RUNS):
            await asyncio.sleep(0.01)
        await dispatcher.aclose()

    asyncio.run(asyncio.wait_for(send(), 60))

    assert redis_client.zrange(messages.RUNS, 0, -1) == [thread.pk.bytes]
