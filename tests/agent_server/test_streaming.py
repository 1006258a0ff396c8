"""Runs with somebody on the line: `stream`, `wait`, and the joins."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID, uuid4

import pytest

from apps.agent_server.models import AgentRun
from apps.agent_server.streaming import hub as hubs
from apps.agent_server.web import http_context as exchanges
from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import Caller
from tests.agent_server.conftest import hang_up
from tests.factories.agent_server import AgentRunFactory, ThreadFactory

HELLO = {"assistant_id": "agent", "input": {"n": 1}}


@pytest.fixture
def thread(agent):
    return ThreadFactory(deployment=agent)


@pytest.fixture
def runs(thread) -> str:
    return f"/threads/{thread.thread_id}/runs"


@pytest.fixture
def quick_heartbeat(monkeypatch) -> None:
    monkeypatch.setattr(exchanges, "HEARTBEAT_SECONDS", 0.05)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/threads/{t}/runs/stream"),
        ("POST", "/threads/{t}/runs/wait"),
        ("POST", "/runs/stream"),
        ("POST", "/runs/wait"),
        ("GET", "/threads/{t}/stream"),
        ("POST", "/threads/{t}/stream/events"),
        ("POST", "/threads/{t}/commands"),
        ("GET", "/threads/{t}/runs/{r}/stream"),
        ("GET", "/threads/{t}/runs/{r}/join"),
        ("POST", "/threads/{t}/runs/{r}/cancel"),
        ("GET", "/runs/{r}/stream"),
        ("GET", "/runs/{r}/join"),
        ("GET", "/threads/{t}/state"),
        ("GET", "/threads/{t}/state/{r}"),
        ("POST", "/threads/{t}/state/checkpoint"),
        ("GET", "/threads/{t}/history"),
        ("POST", "/threads/{t}/history"),
        ("GET", "/assistants/agent/graph"),
        ("GET", "/assistants/agent/subgraphs"),
        ("GET", "/assistants/agent/subgraphs/a"),
    ],
)
async def test_unauthorized_callers_are_rejected(  # noqa: PLR0917  (fixtures)
    front, agent, thread, outsider_key, reader_key, key, method, path
):
    run = await in_thread(AgentRunFactory, thread=thread)
    path = path.format(t=thread.thread_id, r=run.pk)
    body = HELLO if method == "POST" else None

    anonymous = await Caller(agent.slug)(method, path, body)
    wrong = await Caller(agent.slug, "slip_wrong")(method, path, body)
    outsider = await Caller(agent.slug, outsider_key)(method, path, body)
    elsewhere = await Caller("no-such-agent", key)(method, path, body)

    assert (anonymous.status, wrong.status) == (401, 401)
    assert (outsider.status, elsewhere.status) == (404, 404)
    assert outsider.json() == elsewhere.json()
    assert set(anonymous.json()) == {"detail", "code", "errors"}
    if path.endswith(("runs/stream", "runs/wait", "cancel")):
        under_privileged = await Caller(agent.slug, reader_key)(method, path, body)
        assert under_privileged.status == 403
    assert await in_thread(AgentRun.unscoped.count) == 1


async def test_stream_has_the_events_of_the_run_and_its_end(call, worker, runs):
    async with call.open("POST", f"{runs}/stream", HELLO) as request:
        answer = await request.started()
        run = await worker.take()
        await worker.say(run, ("metadata", {"run_id": str(run.pk), "attempt": 1}))
        await worker.say(run, ("updates|sub:1", {"plan": {"n": 1}}), ("values", {"n": "ü"}))
        await worker.end(run)
        await request.ended()

    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["content-location"] == f"{runs}/{run.pk}"
    assert answer.headers["location"] == f"{runs}/{run.pk}/stream"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "content-location" in answer.headers["access-control-expose-headers"]
    assert answer.body.decode() == (
        f'event: metadata\r\ndata: {{"run_id":"{run.pk}","attempt":1}}\r\n\r\n'
        'event: updates|sub:1\r\ndata: {"plan":{"n":1}}\r\n\r\n'
        'event: values\r\ndata: {"n":"ü"}\r\n\r\n'
        'event: end\r\ndata: {"status":"success"}\r\n\r\n'
    )


async def test_error_is_the_last_event(call, worker, runs):
    async with call.open("POST", f"{runs}/stream", HELLO) as request:
        run = await worker.take()
        error = {"error": "ValueError", "message": "no such city"}
        await worker.say(run, ("error", error))
        await worker.end(run, "error", error=error)
        answer = await request.ended()

    assert answer.events == [("error", error, None)]


async def test_event_ids_are_sent_for_resumable_runs_only(call, worker, runs):
    async with call.open("POST", f"{runs}/stream", {**HELLO, "stream_resumable": True}) as request:
        run = await worker.take()
        await worker.say(run, ("values", 1), ("values", 2))
        await worker.end(run)
        answer = await request.ended()

    ids = [event_id for _, _, event_id in answer.events]
    assert None not in ids
    assert len(set(ids)) == 3
    assert b"data: 1\r\nid: " in answer.body


async def test_stateless_stream_can_be_rejoined(call, worker):
    body = {**HELLO, "stream_resumable": True}
    async with call.open("POST", "/runs/stream", body) as request:
        answer = await request.started()
        run = await worker.take()
        await worker.say(run, ("values", 1))
        await request.until(lambda answer: answer.events)
    location = answer.headers["location"]
    [(_, _, last)] = answer.events

    async with call.open("GET", location, **{"Last-Event-ID": last}) as request:
        await worker.say(run, ("values", 2))
        await worker.end(run)
        rest = await request.ended()

    assert location == f"/runs/{run.pk}/stream"
    assert answer.headers["content-location"] == f"/runs/{run.pk}"
    assert [(name, data) for name, data, _ in rest.events] == [
        ("values", 2),
        ("end", {"status": "success"}),
    ]


async def test_rejoining_client_gets_each_event_once(call, worker, runs):
    body = {**HELLO, "stream_resumable": True}
    async with call.open("POST", f"{runs}/stream", body) as request:
        run = await worker.take()
        await worker.say(run, *[("custom", number) for number in range(10)])
        answer = await request.until(lambda answer: len(answer.events) == 10)
    await worker.say(run, *[("custom", number) for number in range(10, 20)])
    _, seen, last = answer.events[6]

    async with call.open("GET", f"{runs}/{run.pk}/stream", **{"Last-Event-ID": last}) as request:
        await request.until(lambda answer: len(answer.events) == 13)
        await worker.say(run, ("custom", 20))
        await worker.end(run)
        rest = await request.ended()
    again = await call("GET", f"{runs}/{run.pk}/stream", **{"Last-Event-ID": last})
    everything = await call("GET", f"{runs}/{run.pk}/stream", **{"Last-Event-ID": "-1"})

    assert seen == 6
    assert [data for _, data, _ in rest.events[:-1]] == list(range(7, 21))
    assert again.events == rest.events
    assert [data for _, data, _ in everything.events[:-1]] == list(range(21))


async def test_joining_without_an_id_gives_new_events(call, worker, runs):
    created = await call("POST", runs, HELLO)
    run = await worker.take()
    await worker.say(run, ("metadata", {}), ("values", 1))
    await call("GET", f"{runs}/{created.json()['run_id']}")

    async with call.open("GET", f"{runs}/{run.pk}/stream") as request:
        answer = await request.started()
        await in_thread(lambda: None)
        await hubs.hub().ask(("PING",))
        await worker.say(run, ("values", 2))
        await worker.end(run)
        await request.ended()

    assert answer.names == ["values", "end"]
    assert answer.events[0][1] == 2


async def test_join_can_select_stream_modes(call, worker, runs):
    await call("POST", runs, {**HELLO, "stream_resumable": True})
    run = await worker.take()
    await worker.say(
        run,
        ("metadata", {}),
        ("values", 1),
        ("messages", ["chunk", {}]),
        ("messages/partial", []),
        ("updates|a:1", {}),
    )
    await worker.end(run)

    async def names(query: str) -> list[str]:
        path = f"{runs}/{run.pk}/stream?{query}"
        return (await call("GET", path, **{"Last-Event-ID": "0"})).names

    assert await names("stream_mode=values") == ["values", "end"]
    assert await names("stream_mode=values&stream_mode=updates") == ["values", "updates|a:1", "end"]
    assert await names('stream_mode=["messages-tuple"]') == ["messages", "end"]
    assert await names("stream_mode=messages") == ["messages/partial", "end"]
    refused = await call("GET", f"{runs}/{run.pk}/stream?stream_mode=everything")
    assert refused.status == 422


async def test_joining_a_finished_or_unknown_run_ends_at_once(call, worker, runs):
    await call("POST", runs, HELLO)
    run = await worker.take()
    await worker.end(run, values={"n": 1})
    stream = f"{runs}/{run.pk}/stream"

    over = await call("GET", stream)
    not_resumable = await call("GET", stream, **{"Last-Event-ID": "0"})
    garbage = await call("GET", stream, **{"Last-Event-ID": "yesterday"})
    unknown = await call("GET", f"{runs}/{uuid4()}/stream")
    malformed = await call("GET", f"{runs}/mine/stream")

    assert (over.status, over.body) == (200, b"")
    assert (not_resumable.status, not_resumable.body) == (200, b"")
    assert (garbage.status, garbage.body) == (200, b"")
    assert unknown.status == 200
    assert unknown.events == [
        ("error", {"error": "HTTPException", "message": "404: Run not found"}, None)
    ]
    assert (malformed.status, malformed.json()["detail"]) == (
        422,
        "Invalid run ID: must be a UUID",
    )


async def test_wait_returns_the_result_sent_by_the_worker(call, worker, runs):
    async with call.open("POST", f"{runs}/wait", HELLO) as request:
        answer = await request.started()
        run = await worker.take()
        await worker.end(run, values={"n": 1}, result={"n": 1, "__interrupt__": []})
        await request.ended()

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-location"] == f"{runs}/{run.pk}"
    assert answer.headers["location"] == f"{runs}/{run.pk}/join"
    assert answer.json() == {"n": 1, "__interrupt__": []}


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ({"values": {"n": 1}}, {"n": 1}),
        ({"values": None}, {}),
        ({"values": ["a"]}, ["a"]),
        (
            {"values": {"n": 1}, "interrupts": {"t": [{"id": "i", "value": "sure?"}]}},
            {
                "n": 1,
                "__interrupt__": [{"id": "i", "value": "sure?", "response_schema": None}],
            },
        ),
        (
            {"values": {}, "interrupts": {"t": [{"id": "i", "value": 1}]}},
            {"__interrupt__": [{"id": "i", "value": 1, "response_schema": None}]},
        ),
        (
            {"status": "error", "error": {"error": "ValueError", "message": "no"}},
            {"__error__": {"error": "ValueError", "message": "no"}},
        ),
        (
            {"status": "timeout", "error": {"error": "TimeoutError", "message": "late"}},
            {"__error__": {"error": "TimeoutError", "message": "late"}},
        ),
        ({"status": "interrupted", "values": {"n": 0}}, {"n": 0}),
    ],
)
async def test_wait_reads_a_result_missing_from_the_stream(call, worker, runs, ending, expected):
    async with call.open("POST", f"{runs}/wait", HELLO) as request:
        run = await worker.take()
        await worker.end(run, **ending)
        answer = await request.ended()

    assert answer.json() == expected


async def test_stateless_wait_names_its_thread(call, worker):
    async with call.open("POST", "/runs/wait", HELLO) as request:
        answer = await request.started()
        run = await worker.take()
        await worker.end(run, result={"n": 2})
        await request.ended()

    place = f"/threads/{await in_thread(lambda: run.thread.thread_id)}/runs/{run.pk}"
    assert answer.headers["content-location"] == place
    assert answer.headers["location"] == f"{place}/join"
    assert answer.json() == {"n": 2}


async def test_join_returns_the_current_values_of_the_thread(call, worker, runs):
    await call("POST", runs, HELLO)
    run = await worker.take()
    async with call.open("GET", f"{runs}/{run.pk}/join") as request:
        await request.started()
        await worker.end(run, values={"n": 5})
        live = await request.ended()
    later = await call("GET", f"{runs}/{run.pk}/join")

    assert live.json() == later.json() == {"n": 5}


async def test_join_returns_interrupts_errors_and_null(call, worker, runs):
    question = {"id": "i", "value": "sure?"}
    await call("POST", runs, HELLO)
    asking = await worker.take()
    await worker.end(asking, values={"n": 1}, interrupts={"t": [question]})
    asked = await call("GET", f"{runs}/{asking.pk}/join")
    await call("POST", runs, HELLO)
    failing = await worker.take()
    await worker.end(failing, "error", error={"error": "KeyError", "message": "'x'"})

    failed = await call("GET", f"{runs}/{failing.pk}/join")
    unknown = await call("GET", f"{runs}/{uuid4()}/join")

    assert asked.json() == {"__interrupt__": [question]}
    assert failed.json() == {"__error__": {"error": "KeyError", "message": "'x'"}}
    assert (unknown.status, unknown.json()) == (
        200,
        {"__error__": {"error": "HTTPException", "message": "404: Run not found"}},
    )


async def test_heartbeats_are_sent_at_an_even_interval(call, worker, runs, quick_heartbeat):
    async with (
        call.open("POST", f"{runs}/stream", HELLO) as streaming,
        call.open("POST", f"{runs}/wait", HELLO) as waiting,
    ):
        await streaming.until(lambda answer: answer.body.count(b": heartbeat\r\n\r\n") == 3)
        await waiting.until(lambda answer: answer.body == b"\n\n\n")
        for _ in range(2):
            run = await worker.take()
            await worker.end(run, result={"n": 1})
        answer = await waiting.ended()

    assert answer.json() == {"n": 1}


@pytest.mark.parametrize("kind", ["stream", "wait"])
@pytest.mark.parametrize("wish", ["cancel", "continue"])
async def test_disconnect_cancels_the_run_on_request(call, worker, runs, kind, wish):
    body = {**HELLO, "on_disconnect": wish}
    async with call.open("POST", f"{runs}/{kind}", body) as request:
        await request.started()
        run = await worker.take()
    await in_thread(run.refresh_from_db)

    assert run.status == "running"
    assert run.cancel_action == ("interrupt" if wish == "cancel" else "")
    if wish == "cancel":
        assert await worker.told_to_stop() == run.pk


async def test_queued_run_is_cancelled_at_once(call, worker, thread, runs):
    body = {**HELLO, "stream_resumable": True, "on_disconnect": "cancel"}
    async with call.open("POST", f"{runs}/stream", body) as request:
        created = await request.started()
    run_id = created.headers["content-location"].rpartition("/")[2]

    run = await call("GET", f"{runs}/{run_id}")
    end = await call("GET", f"{runs}/{run_id}/stream", **{"Last-Event-ID": "-1"})
    await in_thread(thread.refresh_from_db)

    assert run.json()["status"] == "interrupted"
    assert [(name, data) for name, data, _ in end.events] == [("end", {"status": "interrupted"})]
    assert (thread.status, thread.error) == ("interrupted", None)


@pytest.mark.parametrize("value", ["true", "1"])
async def test_leaving_a_join_cancels_the_run_only_on_request(call, worker, runs, value):
    await call("POST", runs, HELLO)
    run = await worker.take()
    async with call.open("GET", f"{runs}/{run.pk}/join") as request:
        await request.started()
    await in_thread(run.refresh_from_db)
    assert run.cancel_action == ""

    path = f"{runs}/{run.pk}/stream?cancel_on_disconnect={value}"
    async with call.open("GET", path) as request:
        await request.started()
    await in_thread(run.refresh_from_db)
    assert run.cancel_action == "interrupt"


async def test_run_is_cancelled(call, worker, runs):
    running = (await call("POST", runs, HELLO)).json()["run_id"]
    queued = (await call("POST", runs, HELLO)).json()["run_id"]
    run = await worker.take()

    at_once = await call("POST", f"{runs}/{queued}/cancel")
    async with call.open("POST", f"{runs}/{running}/cancel?wait=1") as request:
        await request.started()
        await worker.end(run, "interrupted")
        waited = await request.ended()
    again = await call("POST", f"{runs}/{running}/cancel?wait=true")
    unknown = await call("POST", f"{runs}/{uuid4()}/cancel")
    pause = await call("POST", f"{runs}/{running}/cancel?action=pause")

    assert (at_once.status, at_once.body) == (202, b"")
    assert (waited.status, waited.json()) == (200, {})
    assert waited.headers["location"] == f"{runs}/{running}/join"
    assert again.status == unknown.status == 404
    assert again.json()["detail"].startswith("No matching runs to cancel")
    assert (pause.status, pause.json()["detail"]) == (
        422,
        "action: must be 'interrupt' or 'rollback'",
    )


async def test_end_lost_by_redis_is_read_from_postgresql(call, worker, runs, monkeypatch):
    monkeypatch.setattr(hubs, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(hubs, "POLLS_BETWEEN_HEALTHY_LOOKUPS", 1)
    error = {"error": "ValueError", "message": "no"}
    async with call.open("POST", f"{runs}/wait", HELLO) as waiting:
        run = await worker.take()
        await worker.end(run, values={"n": 1}, silently=True)
        answer = await waiting.ended()
    async with call.open("POST", f"{runs}/stream", HELLO) as streaming:
        run = await worker.take()
        await worker.end(run, "error", error=error, silently=True)
        stream = await streaming.ended()

    assert answer.json() == {"n": 1}
    assert stream.events == [("error", error, None)]


async def test_waiting_client_gets_its_result_after_redis_is_flushed(
    call, worker, runs, redis_client, monkeypatch
):
    monkeypatch.setattr(hubs, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(hubs, "POLLS_BETWEEN_HEALTHY_LOOKUPS", 1)
    async with call.open("POST", f"{runs}/stream", HELLO) as request:
        run = await worker.take()
        await worker.say(run, ("values", 1))
        await request.until(lambda answer: answer.events)
        redis_client.flushdb()
        hang_up(redis_client)
        await worker.say(run, ("values", 2))
        await request.until(lambda answer: len(answer.events) == 2)
        redis_client.flushdb()
        await worker.end(run, silently=True)
        answer = await request.ended()

    assert answer.names == ["values", "values", "end"]


async def test_runs_of_one_thread_are_claimed_in_order(call, worker, runs):
    ids = [(await call("POST", runs, {**HELLO, "input": n})).json()["run_id"] for n in range(5)]
    taken = []
    for _ in ids:
        run = await worker.take()
        taken.append(str(run.pk))
        await worker.end(run)
    listed = await call("GET", f"{runs}?limit=3")

    assert taken == ids == sorted(ids)
    assert [run["run_id"] for run in listed.json()] == ids[:1:-1]


async def test_body_over_the_limit_is_rejected(call, runs, settings):
    settings.MAX_BODY_BYTES = 100

    answer = await call("POST", f"{runs}/wait", {**HELLO, "input": "x" * 200})

    assert answer.status == 413
    assert not await in_thread(AgentRun.unscoped.exists)


async def test_request_id_is_kept_or_generated(call, runs):
    given = await call("POST", f"{runs}/wait", {}, **{"X-Request-ID": "abc-1"})
    made = await call("POST", f"{runs}/wait", {})

    assert given.status == made.status == 422
    assert given.headers["x-request-id"] == "abc-1"
    assert UUID(made.headers["x-request-id"]).version == 7


async def test_concurrent_streams_get_their_own_events(call, worker, agent):
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(call("POST", "/runs/wait", {**HELLO, "input": n})) for n in range(20)
        ]
        for _ in waiting:
            run = await worker.take()
            await worker.end(run, result={"got": run.kwargs["input"]})

    assert [task.result().json()["got"] for task in waiting] == list(range(20))
    assert json.loads(waiting[0].result().body) == {"got": 0}
