"""What reaches an engine through Redis, and what it leaves there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
import redis
from redis.asyncio.connection import parse_url

from apps.agent_server.messaging import calls, messages
from apps.agent_server.messaging.messages import CallResponse
from apps.agent_server.messaging.redis_dispatcher import RedisDispatcher
from apps.agent_server.services import dispatch
from tests.agent_runtime.factories import make_run, make_thread
from tests.installation import wait_until

ITEM = {"input": {"item": "a"}}


@pytest.fixture(autouse=True)
def mail(settings) -> Iterator[redis.Redis]:
    """The Redis of the messages, empty."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.delete(messages.RUNS, messages.CALLS)
    yield client
    client.close()


def test_a_thread_that_is_named_is_served(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs=ITEM)

    dispatch.enqueue_thread(thread.pk)
    events = list(listen(run.pk))

    assert events[-1] == ("end", {"status": "success"})


def test_a_thread_waits_once_and_keeps_its_place(revision, mail):
    first, second = make_thread(revision).pk, make_thread(revision).pk

    dispatch.enqueue_threads([first])
    dispatch.enqueue_threads([second, first])

    assert mail.zrange(messages.RUNS, 0, -1) == [first.bytes, second.bytes]


def test_an_engine_takes_no_more_than_it_has_room_for(engines, revision, listen, mail):
    engines(AGENT_RUNS_PER_WORKER=2)
    threads = [make_thread(revision) for _ in range(4)]
    runs = [
        make_run(thread, "collect", kwargs={"input": {"item": "a", "seconds": 1}})
        for thread in threads
    ]

    for thread in threads:
        dispatch.enqueue_thread(thread.pk)
    wait_until(lambda: mail.zcard(messages.RUNS) == 2, "the first two are taken")
    left = mail.zrange(messages.RUNS, 0, -1)
    for run in runs:
        assert list(listen(run.pk))[-1] == ("end", {"status": "success"})

    assert left == [thread.pk.bytes for thread in threads[2:]]


def test_an_engine_that_leaves_puts_back_what_it_will_not_serve(engine, revision, mail):
    engine.wait_for(engine.engine.drain(0))
    thread = make_thread(revision)

    engine.call(engine.engine.claim_or_queue, thread.pk)
    wait_until(lambda: mail.zcard(messages.RUNS) == 1, "the thread is there for others")
    dispatch.enqueue_thread(make_thread(revision).pk)
    engine.stop(0)

    assert mail.zcard(messages.RUNS) == 2


def test_a_graph_is_asked_by_a_thread_and_by_a_loop(engine, revision, settings):
    async def asked_by_a_loop() -> bytes:
        return await calls.acall(revision, "collect", "graph", {"xray": False})

    drawing = calls.call(revision, "collect", "graph", {"xray": False})

    assert json.loads(drawing)["nodes"][0]["id"] == "__start__"
    assert asyncio.run(asked_by_a_loop()) == drawing
    with pytest.raises(calls.CallFailed, match="no graph `nowhere`") as failure:
        calls.call(revision, "nowhere", "graph")
    assert failure.value.name == "ProjectError"


def test_nobody_answers(settings, revision):
    with pytest.raises(calls.CallFailed) as failure:
        calls.call(revision, "collect", "graph", seconds=-0.9)

    assert failure.value.name == "TimeoutError"


def test_a_large_answer_does_not_go_over_the_channel(settings, mail, revision):
    async def ask() -> tuple[CallResponse, list[bytes]]:
        dispatcher = RedisDispatcher()
        channel = dispatcher.channel
        request = calls._build_request(revision, "collect", "graph", None, None, 10, channel)
        call = asyncio.create_task(dispatcher.call(request, 10))
        await asyncio.to_thread(mail.blpop, [messages.CALLS], 10)
        large = CallResponse(request.id, True, b"x" * (messages.MAX_CHANNEL_BYTES + 1))
        commands = large.commands(request)
        await asyncio.to_thread(messages.send_commands, mail, *commands)
        response = await call
        await dispatcher.aclose()
        return response, [command[-1] for command in commands]

    response, sent = asyncio.run(ask())

    assert len(response.body or b"") == messages.MAX_CHANNEL_BYTES + 1
    assert [len(sent[0]) > messages.MAX_CHANNEL_BYTES, len(sent[2]) < 100] == [True, True]
    assert mail.keys("slipway:answer:*") == []


def test_messages_of_threads_go_out_when_redis_is_back(settings, mail, revision):
    """They wait in the process meanwhile, and nobody who sends them is held up."""
    thread = make_thread(revision)

    async def send() -> None:
        courier = RedisDispatcher("unix:///nonexistent/redis.sock")
        await asyncio.to_thread(courier.send, messages.enqueue_thread(thread.pk))
        await asyncio.sleep(0)
        courier._link._options = parse_url(settings.REDIS_URL)
        while not mail.zcard(messages.RUNS):
            await asyncio.sleep(0.01)
        await courier.aclose()

    asyncio.run(asyncio.wait_for(send(), 60))

    assert mail.zrange(messages.RUNS, 0, -1) == [thread.pk.bytes]
