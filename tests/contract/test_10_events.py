"""Section 10: the thread-centric protocol over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.contract.sse import iterate_frames

EVERY_CHANNEL = [
    "values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"
]  # fmt: skip
TOOL_CALL_INPUT = {"messages": [{"role": "user", "content": 'call multiply {"a": 6, "b": 7}'}]}
MESSAGE_INPUT = {"messages": [{"role": "user", "content": "hello"}]}
TIMEOUT_SECONDS = 120


@pytest.fixture
async def aclient(live, agent_url) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=agent_url, api_key=live.api_key, timeout=60) as client:
        yield client


@pytest.fixture
def thread_path() -> str:
    """The path of a thread that does not exist yet."""
    return f"/threads/{uuid4()}"


def send_command(raw_client, thread_path, method, **params):
    return raw_client(
        "POST", f"{thread_path}/commands", {"id": 7, "method": method, "params": params}
    ).json()


def start_run(raw_client, thread_path, assistant_id="steps", **params):
    params = {"assistant_id": assistant_id, "input": {"notes": ["start"]}, **params}
    response = send_command(raw_client, thread_path, "run.start", **params)
    assert response["type"] == "success", response
    return response["result"]["run_id"]


def is_terminal(event, *ends):
    data = event["params"]["data"]
    return (
        event["method"] == "lifecycle"
        and not event["params"]["namespace"]
        and data["event"] in (ends or ("completed", "failed", "interrupted"))
    )


def collect_events(raw_client, thread_path, *channels, runs=1, **params):
    """Collect the events of the channels and of lifecycle up to the end of `runs` runs."""
    body = {"channels": [*channels, "lifecycle"], **params}
    events = []
    with raw_client.open("POST", f"{thread_path}/stream/events", body) as response:
        assert response.status_code == 200
        for frame in iterate_frames(response):
            events.append(frame.data)
            assert (frame.name, frame.id) == (frame.data["method"], str(frame.data["seq"]))
            if is_terminal(frame.data):
                runs -= 1
                if not runs:
                    break
    return events


def data_of(events, method):
    return [event["params"]["data"] for event in events if event["method"] == method]


# 10.1 Commands


def test_a_run_creates_its_thread(raw_client, client, thread_path):
    response = send_command(
        raw_client, thread_path, "run.start", assistant_id="steps", input={"notes": []}
    )
    run_id = response["result"]["run_id"]
    thread_id = thread_path.rpartition("/")[2]
    client.runs.join(thread_id, run_id)

    assert response == {
        "type": "success", "id": 7, "result": {"run_id": run_id},
        "meta": {"applied_through_seq": 0},
    }  # fmt: skip
    assert client.threads.get_state(thread_id)["values"]["notes"] == ["plan", "write", "review"]


def test_a_started_run_is_resumable_by_the_run_stream(raw_client, client, thread_path):
    run_id = start_run(raw_client, thread_path)
    thread_id = thread_path.rpartition("/")[2]
    client.runs.join(thread_id, run_id)
    kwargs = client.runs.get(thread_id, run_id)["kwargs"]
    path = f"{thread_path}/runs/{run_id}/stream?stream_mode=values"
    values = raw_client.request_frames("GET", path, **{"Last-Event-ID": "-1"})

    assert (kwargs["resumable"], kwargs["subgraphs"]) == (True, True)
    assert [frame.name for frame in values] == [*["values"] * 4, "end"]


@pytest.mark.parametrize(
    ("body", "message_id"),
    [
        ({"method": "run.start"}, None),
        ({"id": -1, "method": "run.start"}, -1),
        ({"id": "x", "method": "run.start"}, "x"),
        ({"id": 1}, 1),
        ([], None),
    ],
)
def test_an_invalid_command_is_rejected_with_an_error_envelope(
    raw_client, thread_path, body, message_id
):
    response = raw_client("POST", f"{thread_path}/commands", body)

    assert response.status_code == 400
    assert response.json()["type"] == "error"
    assert (response.json()["id"], response.json()["error"]) == (message_id, "invalid_argument")


def test_a_body_that_is_not_json_is_rejected(raw_client, thread_path):
    response = raw_client._client.post(f"{thread_path}/commands", content=b"{")

    assert response.status_code == 400
    assert "detail" in response.json()


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("run.stop", {}, "unknown_command"),
        ("run.start", {}, "invalid_argument"),
        ("run.start", {"assistant_id": "missing"}, "unknown_error"),
        ("run.start", {"assistant_id": str(uuid4())}, "unknown_error"),
        (
            "run.start",
            {"assistant_id": "steps", "config": {"configurable": {"checkpoint_id": "x"}}},
            "invalid_argument",
        ),
        ("run.start", {"assistant_id": "steps", "multitaskStrategy": "x"}, "invalid_argument"),
        ("agent.getTree", {}, "no_such_run"),
        ("input.respond", {"responses": []}, "invalid_argument"),
        ("input.inject", {}, "not_supported"),
        ("subscription.subscribe", {"channels": ["values"]}, "not_supported"),
        ("subscription.unsubscribe", {"subscription_id": "x"}, "not_supported"),
    ],
)
def test_a_failing_command_is_an_error_with_status_200(
    raw_client, thread_path, method, params, code
):
    response = raw_client(
        "POST", f"{thread_path}/commands", {"id": 0, "method": method, "params": params}
    )

    assert response.status_code == 200
    assert (response.json()["type"], response.json()["id"]) == ("error", 0)
    assert response.json()["error"] == code
    assert response.json()["message"]


def test_responding_to_an_unknown_interrupt_is_an_error(raw_client, client, thread_path):
    start_run(raw_client, thread_path)
    collect_events(raw_client, thread_path)
    response = send_command(
        raw_client, thread_path, "input.respond", interrupt_id="x", namespace=[], response=1
    )

    assert response["error"] == "no_such_interrupt"


@pytest.fixture
def interrupted_events(raw_client, thread_path):
    """The events of a run that is interrupted twice."""
    start_run(raw_client, thread_path, "human", input={"notes": [], "ask": 2})
    return collect_events(raw_client, thread_path, "input", "values")


def test_interrupts_are_sent_after_the_values_and_before_the_lifecycle_event(interrupted_events):
    methods = [event["method"] for event in interrupted_events]
    questions = data_of(interrupted_events, "input.requested")

    assert methods[-3:] == ["input.requested", "input.requested", "lifecycle"]
    assert [q["payload"] for q in questions] == [q["value"] for q in questions]
    assert questions[0]["payload"] == {"approve": "send it? (0)"}
    assert interrupted_events[-1]["params"]["data"]["event"] == "interrupted"
    assert "__interrupt__" not in json.dumps(data_of(interrupted_events, "values"))


def test_responding_to_one_of_two_interrupts_keeps_the_other(
    raw_client, thread_path, interrupted_events
):
    first, second = data_of(interrupted_events, "input.requested")
    answer = {"namespace": [], "interrupt_id": first["interrupt_id"], "response": "yes"}

    assert send_command(raw_client, thread_path, "input.respond", **answer)["result"] == {}
    events = collect_events(raw_client, thread_path, "input", runs=2)[-2:]
    assert data_of(events, "input.requested") == [second]


def test_responding_to_all_interrupts_finishes_the_run(
    raw_client, client, thread_path, interrupted_events
):
    responses = [
        {"namespace": [], "interrupt_id": q["interrupt_id"], "response": q["value"]["approve"]}
        for q in data_of(interrupted_events, "input.requested")
    ]
    send_command(raw_client, thread_path, "input.respond", responses=responses)
    collect_events(raw_client, thread_path, runs=2)
    state = client.threads.get_state(thread_path.rpartition("/")[2])

    assert state["values"]["notes"] == [
        "draft", "answer 0: send it? (0)", "answer 1: send it? (1)", "sent"
    ]  # fmt: skip


def test_a_response_is_sent_with_a_state_update(raw_client, client, thread_path):
    start_run(raw_client, thread_path, "human", input={"notes": []})
    [question] = data_of(collect_events(raw_client, thread_path, "input"), "input.requested")
    send_command(
        raw_client, thread_path, "input.respond", namespace=[],
        interrupt_id=question["interrupt_id"], response="yes", update={"notes": ["by the way"]},
    )  # fmt: skip
    collect_events(raw_client, thread_path, runs=2)

    notes = client.threads.get_state(thread_path.rpartition("/")[2])["values"]["notes"]
    assert set(notes) == {"draft", "by the way", "answer 0: yes", "sent"}


def test_input_on_an_interrupted_thread_resumes_it(raw_client, client, thread_path):
    start_run(raw_client, thread_path, "human", input={"notes": []})
    collect_events(raw_client, thread_path)
    start_run(raw_client, thread_path, "human", input="go ahead")
    collect_events(raw_client, thread_path, runs=2)

    notes = client.threads.get_state(thread_path.rpartition("/")[2])["values"]["notes"]
    assert notes == ["draft", "answer 0: go ahead", "sent"]


@pytest.mark.parametrize("spelling", ["multitaskStrategy", "multitask_strategy"])
def test_the_multitask_strategy_applies_on_a_busy_thread(raw_client, thread_path, spelling):
    start_run(raw_client, thread_path, "slow", input={"seconds": 100})
    params = {"assistant_id": "slow", "input": {"seconds": 0}, spelling: "reject"}
    response = send_command(raw_client, thread_path, "run.start", **params)
    raw_client("DELETE", thread_path)

    assert response["error"] == "unknown_error"
    assert response["message"].startswith("409: Thread is already running a task.")


def test_a_rollback_replaces_the_running_run(raw_client, client, thread_path):
    old = start_run(raw_client, thread_path, "slow", input={"seconds": 100})
    new = start_run(
        raw_client, thread_path, "slow", input={"seconds": 0}, multitaskStrategy="rollback"
    )
    thread_id = thread_path.rpartition("/")[2]
    client.runs.join(thread_id, new)

    assert [run["run_id"] for run in client.runs.list(thread_id)] == [new]
    assert old != new


def test_a_run_forks_from_an_old_checkpoint(raw_client, client, thread_path):
    start_run(raw_client, thread_path)
    checkpoints = data_of(collect_events(raw_client, thread_path, "checkpoints"), "checkpoints")
    config = {"configurable": {"checkpoint_id": checkpoints[2]["id"]}}
    start_run(raw_client, thread_path, input={"notes": ["forked"]}, config=config)
    collect_events(raw_client, thread_path, runs=2)

    notes = client.threads.get_state(thread_path.rpartition("/")[2])["values"]["notes"]
    assert notes[:3] == ["start", "plan", "forked"]


def test_the_tree_contains_the_subgraphs_of_the_latest_run(raw_client, thread_path):
    start_run(raw_client, thread_path, "nested", input={"topic": "keels"})
    collect_events(raw_client, thread_path)
    tree = send_command(raw_client, thread_path, "agent.getTree")["result"]["tree"]
    [research] = tree["children"]
    [search] = research["children"]

    assert (tree["namespace"], tree["status"], tree["graph_name"]) == ([], "completed", "nested")
    assert (research["graph_name"], research["status"]) == ("research", "completed")
    assert search["namespace"][:1] == research["namespace"]


def test_selected_keys_of_the_state_are_read(raw_client, thread_path):
    start_run(raw_client, thread_path)
    collect_events(raw_client, thread_path)
    whole = send_command(raw_client, thread_path, "state.get", namespace=[])["result"]
    part = send_command(raw_client, thread_path, "state.get", namespace=[], keys=["count"])[
        "result"
    ]

    assert whole["values"]["notes"] == ["start", "plan", "write", "review"]
    assert part == {"values": {"count": 3}, "checkpoint": whole["checkpoint"]}
    assert set(whole["checkpoint"]) == {"id", "ns"}


def test_checkpoints_are_listed_newest_first_in_pages(raw_client, thread_path):
    start_run(raw_client, thread_path)
    collect_events(raw_client, thread_path)
    checkpoints = send_command(raw_client, thread_path, "state.listCheckpoints")["result"][
        "checkpoints"
    ]
    page = send_command(
        raw_client, thread_path, "state.listCheckpoints", limit=2, before=checkpoints[1]["id"]
    )

    assert [checkpoint["step"] for checkpoint in checkpoints] == [3, 2, 1, 0, -1]
    assert {"id", "timestamp", "step"} <= set(checkpoints[0])
    assert page["result"]["checkpoints"] == checkpoints[2:4]


def test_a_fork_command_returns_its_run(raw_client, client, thread_path):
    start_run(raw_client, thread_path)
    collect_events(raw_client, thread_path)
    checkpoints = send_command(raw_client, thread_path, "state.listCheckpoints")["result"][
        "checkpoints"
    ]
    fork = send_command(
        raw_client,
        thread_path,
        "state.fork",
        checkpoint_id=checkpoints[2]["id"],
        input={"notes": ["forked"]},
    )["result"]
    client.runs.join(fork["thread_id"], fork["run_id"])

    assert fork["thread_id"] == thread_path.rpartition("/")[2]
    assert "forked" in client.threads.get_state(fork["thread_id"])["values"]["notes"]


# 10.2 Events


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"channels": []},
        {"channels": ["everything"]},
        {"channels": "values"},
        {"channels": ["values"], "depth": -1},
        {"channels": ["values"], "since": "x"},
    ],
)
def test_an_invalid_request_for_events_is_rejected(raw_client, client, body):
    thread_id = client.threads.create()["thread_id"]
    response = raw_client("POST", f"/threads/{thread_id}/stream/events", body)

    assert response.status_code == 400
    assert isinstance(response.json()["detail"], str)


def test_a_stream_of_events_waits_for_its_thread(raw_client, thread_path):
    """Older SDKs open the stream before the run that creates the thread."""
    body = {"channels": ["lifecycle", "values"]}
    with raw_client.open("POST", f"{thread_path}/stream/events", body) as response:
        assert response.status_code == 200
        threading.Timer(0.5, start_run, (raw_client, thread_path)).start()
        events = []
        for frame in iterate_frames(response):
            events.append(frame.data)
            if is_terminal(frame.data):
                break

    assert events[0]["params"]["data"]["event"] == "running"
    assert "values" in {event["method"] for event in events}


def test_an_event_has_its_fields_and_increasing_numbers(raw_client, thread_path):
    start_run(raw_client, thread_path)
    events = collect_events(raw_client, thread_path, *EVERY_CHANNEL)
    first = events[0]

    assert set(first) == {"type", "event_id", "seq", "method", "params"}
    assert set(first["params"]) == {"namespace", "timestamp", "data"}
    assert first["params"]["data"] == {"event": "running", "graph_name": "steps"}
    assert events[-1]["params"]["data"] == {"event": "completed", "graph_name": "steps"}
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] < 2**53


def test_every_reader_gets_the_same_ids_and_numbers(raw_client, thread_path):
    start_run(raw_client, thread_path)
    first = collect_events(raw_client, thread_path, *EVERY_CHANNEL)
    second = collect_events(raw_client, thread_path, *EVERY_CHANNEL)
    values_only = collect_events(raw_client, thread_path, "values")

    assert first == second
    assert len({event["event_id"] for event in first}) == len(first)
    assert values_only == [event for event in first if event["method"] in ("values", "lifecycle")]


def test_a_reader_resumes_after_a_number(raw_client, thread_path):
    start_run(raw_client, thread_path)
    all_events = collect_events(raw_client, thread_path, *EVERY_CHANNEL)
    rest = collect_events(raw_client, thread_path, *EVERY_CHANNEL, since=all_events[5]["seq"])

    assert rest == all_events[6:]


def test_events_of_earlier_runs_come_first(raw_client, thread_path):
    start_run(raw_client, thread_path)
    first_run = collect_events(raw_client, thread_path, "values")
    start_run(raw_client, thread_path)
    both_runs = collect_events(raw_client, thread_path, "values", runs=2)

    assert both_runs[: len(first_run)] == first_run
    assert [data["event"] for data in data_of(both_runs, "lifecycle")] == [
        "running",
        "completed",
    ] * 2


@pytest.mark.parametrize("channel", ["updates", "tasks", "custom", "checkpoints", "values"])
def test_a_channel_sends_its_events_and_lifecycle(raw_client, thread_path, channel):
    start_run(raw_client, thread_path)
    methods = {event["method"] for event in collect_events(raw_client, thread_path, channel)}

    assert methods == {channel, "lifecycle"}


def test_tool_events_describe_the_calls(raw_client, thread_path):
    start_run(raw_client, thread_path, "chat", input=TOOL_CALL_INPUT)
    started, finished = data_of(collect_events(raw_client, thread_path, "tools"), "tools")

    assert started == {
        "event": "tool-started", "tool_call_id": "call_0_multiply", "tool_name": "multiply",
        "input": {"a": 6, "b": 7},
    }  # fmt: skip
    assert (finished["event"], finished["output"]["content"]) == ("tool-finished", "42")


def test_messages_are_streamed_as_content_blocks(raw_client, thread_path):
    start_run(raw_client, thread_path, "chat", input=MESSAGE_INPUT)
    events = collect_events(raw_client, thread_path, "messages")
    messages = data_of(events, "messages")

    assert [data["event"] for data in messages] == [
        "message-start", "content-block-start", *["content-block-delta"] * 3,
        "content-block-finish", "message-finish",
    ]  # fmt: skip
    assert messages[0]["role"] == "ai"
    assert messages[2]["delta"] == {"type": "text-delta", "text": "You"}
    assert messages[-2]["content"]["text"] == "You wrote: hello"
    assert {event["params"].get("node") for event in events[1:-1]} == {"agent"}


def test_messages_are_stored_as_content_blocks(raw_client, client, thread_path):
    start_run(raw_client, thread_path, "chat", input=MESSAGE_INPUT)
    collect_events(raw_client, thread_path)
    message = client.threads.get_state(thread_path.rpartition("/")[2])["values"]["messages"][-1]

    assert message["content"][0]["text"] == "You wrote: hello"
    assert message["response_metadata"]["output_version"] == "v1"


@pytest.mark.parametrize(
    ("params", "depths"),
    [
        ({}, {0, 1, 2}),
        ({"namespaces": [[]]}, {0, 1, 2}),
        ({"namespaces": [[]], "depth": 0}, {0}),
        ({"namespaces": [[]], "depth": 1}, {0, 1}),
        ({"namespaces": [[], ["research"]], "depth": 1}, {0, 1, 2}),
    ],
)
def test_events_are_filtered_by_namespace_and_depth(raw_client, thread_path, params, depths):
    start_run(raw_client, thread_path, "nested", input={"topic": "keels"})
    events = collect_events(raw_client, thread_path, "values", **params)

    assert {len(e["params"]["namespace"]) for e in events if e["method"] == "values"} == depths


def test_lifecycle_events_are_sent_for_subgraphs(raw_client, thread_path):
    start_run(raw_client, thread_path, "nested", input={"topic": "keels"})
    lifecycle = [
        (len(event["params"]["namespace"]), event["params"]["data"]["event"])
        for event in collect_events(raw_client, thread_path)
    ]

    assert lifecycle == [
        (0, "running"), (1, "started"), (2, "started"), (2, "completed"), (1, "completed"),
        (0, "completed"),
    ]  # fmt: skip


def test_a_failure_has_an_error_message(raw_client, thread_path):
    start_run(raw_client, thread_path, "faults", input={"kind": "value"})
    last = collect_events(raw_client, thread_path)[-1]["params"]["data"]

    assert (last["event"], last["error"]) == ("failed", "ValueError: no such city")


def test_the_root_subscription_of_the_javascript_client_is_accepted(raw_client, thread_path):
    start_run(raw_client, thread_path)
    channels = ["values", "checkpoints", "lifecycle", "input", "messages", "tools"]
    events = collect_events(raw_client, thread_path, *channels, namespaces=[[]], depth=1)

    assert {"values", "checkpoints"} <= {event["method"] for event in events}


def test_runs_started_by_the_run_api_are_streamed(raw_client, client):
    thread_id = client.threads.create()["thread_id"]
    body = {"channels": ["lifecycle", "values"]}
    with raw_client.open("POST", f"/threads/{thread_id}/stream/events", body) as response:
        threading.Timer(
            0.3, client.runs.wait, (thread_id, "steps"), {"input": {"notes": []}}
        ).start()
        events = []
        for frame in iterate_frames(response):
            events.append(frame.data)
            if is_terminal(frame.data):
                break

    assert events[0]["params"]["data"]["event"] == "running"
    assert events[-2]["params"]["data"]["notes"] == ["plan", "write", "review"]


# The public Python client


async def test_the_client_streams_a_chat(aclient):
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aclient.threads.stream(assistant_id="chat") as thread,
    ):
        await thread.run.start(input=TOOL_CALL_INPUT)
        messages = [message async for message in thread.messages]
        output = await thread.output
        texts = [await message.text for message in messages]

    assert output["messages"][-1]["content"][0]["text"] == "Tool results: 42"
    assert texts[-1] == "Tool results: 42"


async def test_the_client_streams_tool_calls(aclient):
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aclient.threads.stream(assistant_id="chat") as thread,
    ):
        await thread.run.start(input=TOOL_CALL_INPUT)
        calls = [call async for call in thread.tool_calls]

    assert [(call.name, call.input) for call in calls] == [("multiply", {"a": 6, "b": 7})]


async def test_the_client_resumes_an_interrupt(aclient):
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aclient.threads.stream(assistant_id="human") as thread,
    ):
        await thread.run.start(input={"notes": []})
        async for _ in thread.values:
            pass
        interrupted, questions = thread.interrupted, list(thread.interrupts)
        await thread.run.respond("yes")
        output = await thread.output

    assert interrupted
    assert [question["value"] for question in questions] == [{"approve": "send it? (0)"}]
    assert output["notes"] == ["draft", "answer 0: yes", "sent"]


async def test_the_client_streams_subgraphs(aclient):
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aclient.threads.stream(assistant_id="nested") as thread,
    ):
        await thread.run.start(input={"topic": "keels"})
        subgraphs = [child async for child in thread.subgraphs]

    assert [(child.graph_name, child.status) for child in subgraphs] == [("research", "completed")]


async def test_the_client_raises_the_error_of_a_run(aclient):
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aclient.threads.stream(assistant_id="faults") as thread,
    ):
        await thread.run.start(input={"kind": "value"})
        with pytest.raises(RuntimeError, match="ValueError: no such city"):
            await thread.output


async def test_the_client_interleaves_channels(aclient):
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aclient.threads.stream(assistant_id="steps") as thread,
    ):
        await thread.run.start(input={"notes": []})
        names = [name async for name, _ in thread.interleave_projections(["updates", "values"])]

    assert names.count("updates") == 3
    assert names.count("values") == 4


async def test_the_client_uses_a_websocket(aclient, live):
    headers = {"x-api-key": live.api_key}
    stream = aclient.threads.stream(assistant_id="human", transport="websocket", headers=headers)
    async with asyncio.timeout(TIMEOUT_SECONDS), stream as thread:
        await thread.run.start(input={"notes": []})
        async for _ in thread.values:
            pass
        await thread.run.respond("yes")
        output = await thread.output

    assert output["notes"] == ["draft", "answer 0: yes", "sent"]


# 10.3 The WebSocket


@pytest.fixture
def socket(live, agent_url, thread_path):
    url = agent_url.replace("http", "ws", 1) + f"{thread_path}/stream/events"
    with connect(url, additional_headers={"x-api-key": live.api_key}) as socket:
        yield CommandSocket(socket)


class CommandSocket:
    """Sends commands and collects the events that arrive before the response."""

    def __init__(self, socket) -> None:
        self.socket = socket
        self.events: list[dict] = []

    def send_command(self, method, number=1, **params):
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        return self.read_response()

    def read_response(self):
        while (message := json.loads(self.socket.recv(TIMEOUT_SECONDS))).get("type") == "event":
            self.events.append(message)
        return message

    def read_until_end(self):
        while not self.events or not is_terminal(self.events[-1]):
            self.events.append(json.loads(self.socket.recv(TIMEOUT_SECONDS)))
        return self.events


def test_commands_and_events_share_a_socket(socket):
    subscribed = socket.send_command("subscription.subscribe", channels=["values", "lifecycle"])
    started = socket.send_command("run.start", 2, assistant_id="steps", input={"notes": []})
    events = socket.read_until_end()

    assert subscribed["type"] == started["type"] == "success"
    assert subscribed["result"]["replayed_events"] == 0
    assert started["id"] == 2
    assert [event["method"] for event in events] == ["lifecycle", *["values"] * 4, "lifecycle"]


def test_a_late_subscription_gets_the_number_of_replayed_events_and_the_events(socket):
    socket.send_command("subscription.subscribe", channels=["lifecycle"])
    socket.send_command("run.start", assistant_id="steps", input={"notes": []})
    socket.read_until_end()
    socket.events.clear()
    response = socket.send_command("subscription.subscribe", channels=["updates", "lifecycle"])
    before = list(socket.events)
    replayed = socket.read_until_end()

    assert before == []
    assert response["result"]["replayed_events"] == len(replayed) == 5
    assert response["meta"]["applied_through_seq"] == replayed[-1]["seq"]


def test_the_tree_is_read_over_a_websocket(socket):
    socket.send_command("subscription.subscribe", channels=["lifecycle"])
    socket.send_command("run.start", assistant_id="steps", input={"notes": []})
    socket.read_until_end()

    assert socket.send_command("agent.getTree")["result"]["tree"] == {
        "namespace": [], "status": "completed", "graph_name": "steps"
    }  # fmt: skip


def test_ending_a_subscription_twice_is_an_error(socket):
    response = socket.send_command("subscription.subscribe", channels=["values"])
    params = {"subscription_id": response["result"]["subscription_id"]}

    assert socket.send_command("subscription.unsubscribe", **params)["result"] == {}
    assert (
        socket.send_command("subscription.unsubscribe", **params)["error"] == "no_such_subscription"
    )


@pytest.mark.parametrize(
    ("text", "message_id"), [("{", None), ("[]", None), ('{"id":"x","method":"run.start"}', "x")]
)
def test_a_malformed_frame_gets_an_error_and_the_socket_stays_open(socket, text, message_id):
    socket.socket.send(text)
    response = socket.read_response()

    assert (response["type"], response["id"]) == ("error", message_id)
    assert socket.send_command("agent.getTree")["error"] == "no_such_run"


def test_an_unknown_channel_is_rejected(socket):
    assert (
        socket.send_command("subscription.subscribe", channels=["all"])["error"]
        == "invalid_argument"
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"x-api-key": "slip_wrong"}, 401)],
)
def test_a_socket_without_a_valid_key_is_rejected(agent_url, thread_path, headers, status):
    url = agent_url.replace("http", "ws", 1) + f"{thread_path}/stream/events"

    with pytest.raises(InvalidStatus) as caught, connect(url, additional_headers=headers):
        pass

    assert caught.value.response.status_code == status
