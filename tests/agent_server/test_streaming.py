"""Requests that follow a run: `stream`, `wait` and the joins."""

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
from tests.agent_server.conftest import drop_connections
from tests.factories.agent_server import AgentRunFactory

HELLO = {"assistant_id": "agent", "input": {"n": 1}}


@pytest.fixture
def runs(thread) -> str:
    return f"/threads/{thread.thread_id}/runs"


@pytest.fixture
def short_heartbeat(monkeypatch) -> None:
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
    asgi_app, agent, thread, outsider_key, reader_key, key, method, path
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
        answer = await request.wait_for_start()
        run = await worker.claim_run()
        await worker.publish(run, ("metadata", {"run_id": str(run.pk), "attempt": 1}))
        await worker.publish(run, ("updates|sub:1", {"plan": {"n": 1}}), ("values", {"n": "ü"}))
        await worker.end(run)
        await request.wait_for_end()

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
        run = await worker.claim_run()
        error = {"error": "ValueError", "message": "no such city"}
        await worker.publish(run, ("error", error))
        await worker.end(run, "error", error=error)
        answer = await request.wait_for_end()

    assert answer.events == [("error", error, None)]


async def test_event_ids_are_sent_for_resumable_runs_only(call, worker, runs):
    async with call.open("POST", f"{runs}/stream", {**HELLO, "stream_resumable": True}) as request:
        run = await worker.claim_run()
        await worker.publish(run, ("values", 1), ("values", 2))
        await worker.end(run)
        answer = await request.wait_for_end()

    ids = [event_id for _, _, event_id in answer.events]
    assert None not in ids
    assert len(set(ids)) == 3
    assert b"data: 1\r\nid: " in answer.body


async def test_stateless_stream_can_be_rejoined(call, worker):
    body = {**HELLO, "stream_resumable": True}
    async with call.open("POST", "/runs/stream", body) as request:
        answer = await request.wait_for_start()
        run = await worker.claim_run()
        await worker.publish(run, ("values", 1))
        await request.wait_until(lambda answer: answer.events)
    location = answer.headers["location"]
    [(_, _, last_id)] = answer.events

    async with call.open("GET", location, **{"Last-Event-ID": last_id}) as request:
        await worker.publish(run, ("values", 2))
        await worker.end(run)
        remaining = await request.wait_for_end()

    assert location == f"/runs/{run.pk}/stream"
    assert answer.headers["content-location"] == f"/runs/{run.pk}"
    assert [(name, data) for name, data, _ in remaining.events] == [
        ("values", 2),
        ("end", {"status": "success"}),
    ]


async def test_rejoining_client_gets_each_event_once(call, worker, runs):
    body = {**HELLO, "stream_resumable": True}
    async with call.open("POST", f"{runs}/stream", body) as request:
        run = await worker.claim_run()
        await worker.publish(run, *[("custom", number) for number in range(10)])
        answer = await request.wait_until(lambda answer: len(answer.events) == 10)
    await worker.publish(run, *[("custom", number) for number in range(10, 20)])
    _, seen, last_id = answer.events[6]

    async with call.open("GET", f"{runs}/{run.pk}/stream", **{"Last-Event-ID": last_id}) as request:
        await request.wait_until(lambda answer: len(answer.events) == 13)
        await worker.publish(run, ("custom", 20))
        await worker.end(run)
        remaining = await request.wait_for_end()
    repeated = await call("GET", f"{runs}/{run.pk}/stream", **{"Last-Event-ID": last_id})
    complete = await call("GET", f"{runs}/{run.pk}/stream", **{"Last-Event-ID": "-1"})

    assert seen == 6
    assert [data for _, data, _ in remaining.events[:-1]] == list(range(7, 21))
    assert repeated.events == remaining.events
    assert [data for _, data, _ in complete.events[:-1]] == list(range(21))


async def test_joining_without_an_id_gives_new_events(call, worker, runs):
    created = await call("POST", runs, HELLO)
    run = await worker.claim_run()
    await worker.publish(run, ("metadata", {}), ("values", 1))
    await call("GET", f"{runs}/{created.json()['run_id']}")

    async with call.open("GET", f"{runs}/{run.pk}/stream") as request:
        answer = await request.wait_for_start()
        await in_thread(lambda: None)
        await hubs.get_hub().request(("PING",))
        await worker.publish(run, ("values", 2))
        await worker.end(run)
        await request.wait_for_end()

    assert answer.names == ["values", "end"]
    assert answer.events[0][1] == 2


async def test_join_can_select_stream_modes(call, worker, runs):
    await call("POST", runs, {**HELLO, "stream_resumable": True})
    run = await worker.claim_run()
    await worker.publish(
        run,
        ("metadata", {}),
        ("values", 1),
        ("messages", ["chunk", {}]),
        ("messages/partial", []),
        ("updates|a:1", {}),
    )
    await worker.end(run)

    async def read_names(query: str) -> list[str]:
        path = f"{runs}/{run.pk}/stream?{query}"
        return (await call("GET", path, **{"Last-Event-ID": "0"})).names

    assert await read_names("stream_mode=values") == ["values", "end"]
    assert await read_names("stream_mode=values&stream_mode=updates") == [
        "values",
        "updates|a:1",
        "end",
    ]
    assert await read_names('stream_mode=["messages-tuple"]') == ["messages", "end"]
    assert await read_names("stream_mode=messages") == ["messages/partial", "end"]
    rejected = await call("GET", f"{runs}/{run.pk}/stream?stream_mode=everything")
    assert rejected.status == 422


async def test_joining_a_finished_or_unknown_run_ends_at_once(call, worker, runs):
    await call("POST", runs, HELLO)
    run = await worker.claim_run()
    await worker.end(run, values={"n": 1})
    stream = f"{runs}/{run.pk}/stream"

    finished = await call("GET", stream)
    not_resumable = await call("GET", stream, **{"Last-Event-ID": "0"})
    malformed_event_id = await call("GET", stream, **{"Last-Event-ID": "yesterday"})
    unknown = await call("GET", f"{runs}/{uuid4()}/stream")
    malformed = await call("GET", f"{runs}/mine/stream")

    assert (finished.status, finished.body) == (200, b"")
    assert (not_resumable.status, not_resumable.body) == (200, b"")
    assert (malformed_event_id.status, malformed_event_id.body) == (200, b"")
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
        answer = await request.wait_for_start()
        run = await worker.claim_run()
        await worker.end(run, values={"n": 1}, result={"n": 1, "__interrupt__": []})
        await request.wait_for_end()

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
        run = await worker.claim_run()
        await worker.end(run, **ending)
        answer = await request.wait_for_end()

    assert answer.json() == expected


async def test_stateless_wait_names_its_thread(call, worker):
    async with call.open("POST", "/runs/wait", HELLO) as request:
        answer = await request.wait_for_start()
        run = await worker.claim_run()
        await worker.end(run, result={"n": 2})
        await request.wait_for_end()

    run_path = f"/threads/{await in_thread(lambda: run.thread.thread_id)}/runs/{run.pk}"
    assert answer.headers["content-location"] == run_path
    assert answer.headers["location"] == f"{run_path}/join"
    assert answer.json() == {"n": 2}


async def test_join_returns_the_current_values_of_the_thread(call, worker, runs):
    await call("POST", runs, HELLO)
    run = await worker.claim_run()
    async with call.open("GET", f"{runs}/{run.pk}/join") as request:
        await request.wait_for_start()
        await worker.end(run, values={"n": 5})
        live = await request.wait_for_end()
    later = await call("GET", f"{runs}/{run.pk}/join")

    assert live.json() == later.json() == {"n": 5}


async def test_join_returns_interrupts_errors_and_null(call, worker, runs):
    interrupt = {"id": "i", "value": "sure?"}
    await call("POST", runs, HELLO)
    interrupted_run = await worker.claim_run()
    await worker.end(interrupted_run, values={"n": 1}, interrupts={"t": [interrupt]})
    interrupted = await call("GET", f"{runs}/{interrupted_run.pk}/join")
    await call("POST", runs, HELLO)
    failed_run = await worker.claim_run()
    await worker.end(failed_run, "error", error={"error": "KeyError", "message": "'x'"})

    failed = await call("GET", f"{runs}/{failed_run.pk}/join")
    unknown = await call("GET", f"{runs}/{uuid4()}/join")

    assert interrupted.json() == {"__interrupt__": [interrupt]}
    assert failed.json() == {"__error__": {"error": "KeyError", "message": "'x'"}}
    assert (unknown.status, unknown.json()) == (
        200,
        {"__error__": {"error": "HTTPException", "message": "404: Run not found"}},
    )


async def test_heartbeats_are_sent_at_an_even_interval(call, worker, runs, short_heartbeat):
    async with (
        call.open("POST", f"{runs}/stream", HELLO) as streaming,
        call.open("POST", f"{runs}/wait", HELLO) as waiting,
    ):
        await streaming.wait_until(lambda answer: answer.body.count(b": heartbeat\r\n\r\n") == 3)
        await waiting.wait_until(lambda answer: answer.body == b"\n\n\n")
        for _ in range(2):
            run = await worker.claim_run()
            await worker.end(run, result={"n": 1})
        answer = await waiting.wait_for_end()

    assert answer.json() == {"n": 1}


@pytest.mark.parametrize("kind", ["stream", "wait"])
@pytest.mark.parametrize("on_disconnect", ["cancel", "continue"])
async def test_disconnect_cancels_the_run_on_request(call, worker, runs, kind, on_disconnect):
    body = {**HELLO, "on_disconnect": on_disconnect}
    async with call.open("POST", f"{runs}/{kind}", body) as request:
        await request.wait_for_start()
        run = await worker.claim_run()
    await in_thread(run.refresh_from_db)

    assert run.status == "running"
    assert run.cancel_action == ("interrupt" if on_disconnect == "cancel" else "")
    if on_disconnect == "cancel":
        assert await worker.next_cancelled_run() == run.pk


async def test_queued_run_is_cancelled_at_once(call, worker, thread, runs):
    body = {**HELLO, "stream_resumable": True, "on_disconnect": "cancel"}
    async with call.open("POST", f"{runs}/stream", body) as request:
        created = await request.wait_for_start()
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
    run = await worker.claim_run()
    async with call.open("GET", f"{runs}/{run.pk}/join") as request:
        await request.wait_for_start()
    await in_thread(run.refresh_from_db)
    assert run.cancel_action == ""

    path = f"{runs}/{run.pk}/stream?cancel_on_disconnect={value}"
    async with call.open("GET", path) as request:
        await request.wait_for_start()
    await in_thread(run.refresh_from_db)
    assert run.cancel_action == "interrupt"


async def test_run_is_cancelled(call, worker, runs):
    running = (await call("POST", runs, HELLO)).json()["run_id"]
    queued = (await call("POST", runs, HELLO)).json()["run_id"]
    run = await worker.claim_run()

    cancelled_queued = await call("POST", f"{runs}/{queued}/cancel")
    async with call.open("POST", f"{runs}/{running}/cancel?wait=1") as request:
        await request.wait_for_start()
        await worker.end(run, "interrupted")
        cancelled_running = await request.wait_for_end()
    repeated = await call("POST", f"{runs}/{running}/cancel?wait=true")
    unknown = await call("POST", f"{runs}/{uuid4()}/cancel")
    unknown_action = await call("POST", f"{runs}/{running}/cancel?action=pause")

    assert (cancelled_queued.status, cancelled_queued.body) == (202, b"")
    assert (cancelled_running.status, cancelled_running.json()) == (200, {})
    assert cancelled_running.headers["location"] == f"{runs}/{running}/join"
    assert repeated.status == unknown.status == 404
    assert repeated.json()["detail"].startswith("No matching runs to cancel")
    assert (unknown_action.status, unknown_action.json()["detail"]) == (
        422,
        "action: must be 'interrupt' or 'rollback'",
    )


async def test_end_lost_by_redis_is_read_from_postgresql(call, worker, runs, monkeypatch):
    monkeypatch.setattr(hubs, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(hubs, "POLLS_BETWEEN_HEALTHY_LOOKUPS", 1)
    error = {"error": "ValueError", "message": "no"}
    async with call.open("POST", f"{runs}/wait", HELLO) as waiting:
        run = await worker.claim_run()
        await worker.end(run, values={"n": 1}, silently=True)
        answer = await waiting.wait_for_end()
    async with call.open("POST", f"{runs}/stream", HELLO) as streaming:
        run = await worker.claim_run()
        await worker.end(run, "error", error=error, silently=True)
        stream = await streaming.wait_for_end()

    assert answer.json() == {"n": 1}
    assert stream.events == [("error", error, None)]


async def test_waiting_client_gets_its_result_after_redis_is_flushed(
    call, worker, runs, redis_client, monkeypatch
):
    monkeypatch.setattr(hubs, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(hubs, "POLLS_BETWEEN_HEALTHY_LOOKUPS", 1)
    async with call.open("POST", f"{runs}/stream", HELLO) as request:
        run = await worker.claim_run()
        await worker.publish(run, ("values", 1))
        await request.wait_until(lambda answer: answer.events)
        redis_client.flushdb()
        drop_connections(redis_client)
        await worker.publish(run, ("values", 2))
        await request.wait_until(lambda answer: len(answer.events) == 2)
        redis_client.flushdb()
        await worker.end(run, silently=True)
        answer = await request.wait_for_end()

    assert answer.names == ["values", "values", "end"]


async def test_runs_of_one_thread_are_claimed_in_order(call, worker, runs):
    ids = [(await call("POST", runs, {**HELLO, "input": n})).json()["run_id"] for n in range(5)]
    claimed = []
    for _ in ids:
        run = await worker.claim_run()
        claimed.append(str(run.pk))
        await worker.end(run)
    listed = await call("GET", f"{runs}?limit=3")

    assert claimed == ids == sorted(ids)
    assert [run["run_id"] for run in listed.json()] == ids[:1:-1]


async def test_body_over_the_limit_is_rejected(call, runs, settings):
    settings.MAX_BODY_BYTES = 100

    answer = await call("POST", f"{runs}/wait", {**HELLO, "input": "x" * 200})

    assert answer.status == 413
    assert not await in_thread(AgentRun.unscoped.exists)


async def test_request_id_is_kept_or_generated(call, runs):
    with_id = await call("POST", f"{runs}/wait", {}, **{"X-Request-ID": "abc-1"})
    without_id = await call("POST", f"{runs}/wait", {})

    assert with_id.status == without_id.status == 422
    assert with_id.headers["x-request-id"] == "abc-1"
    assert UUID(without_id.headers["x-request-id"]).version == 7


async def test_concurrent_streams_get_their_own_events(call, worker, agent):
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(call("POST", "/runs/wait", {**HELLO, "input": n})) for n in range(20)
        ]
        for _ in waiting:
            run = await worker.claim_run()
            await worker.end(run, result={"got": run.kwargs["input"]})

    assert [task.result().json()["got"] for task in waiting] == list(range(20))
    assert json.loads(waiting[0].result().body) == {"got": 0}
