"""Section 10: the thread-centric protocol, over HTTP and as a WebSocket."""

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

from tests.contract.sse import Raw, live_frames

EVERY_CHANNEL = [
    "values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"
]  # fmt: skip
CALL = {"messages": [{"role": "user", "content": 'call multiply {"a": 6, "b": 7}'}]}
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
SECONDS = 60


@pytest.fixture(scope="module")
def raw(live, agent_url):
    raw = Raw(agent_url, live.api_key)
    yield raw
    raw.close()


@pytest.fixture
async def aclient(live, agent_url) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=agent_url, api_key=live.api_key, timeout=60) as client:
        yield client


@pytest.fixture
def place() -> str:
    """A thread that is not there yet."""
    return f"/threads/{uuid4()}"


def command(raw, place, method, **params):
    return raw("POST", f"{place}/commands", {"id": 7, "method": method, "params": params}).json()


def start(raw, place, assistant_id="steps", **params):
    params = {"assistant_id": assistant_id, "input": {"notes": ["asked"]}, **params}
    answer = command(raw, place, "run.start", **params)
    assert answer["type"] == "success", answer
    return answer["result"]["run_id"]


def is_over(event, *ends):
    data = event["params"]["data"]
    return (
        event["method"] == "lifecycle"
        and not event["params"]["namespace"]
        and data["event"] in (ends or ("completed", "failed", "interrupted"))
    )


def heard(raw, place, *channels, runs=1, **asked):
    """The events of some channels, and of lifecycle, to the end of so many runs."""
    body = {"channels": [*channels, "lifecycle"], **asked}
    found = []
    with raw.open("POST", f"{place}/stream/events", body) as answer:
        assert answer.status_code == 200
        for frame in live_frames(answer):
            found.append(frame.data)
            assert (frame.name, frame.id) == (frame.data["method"], str(frame.data["seq"]))
            if is_over(frame.data):
                runs -= 1
                if not runs:
                    break
    return found


def of(events, method):
    return [event["params"]["data"] for event in events if event["method"] == method]


# 10.1 Commands


def test_a_run_starts_on_a_thread_that_it_makes(raw, client, place):
    answer = command(raw, place, "run.start", assistant_id="steps", input={"notes": []})
    run_id = answer["result"]["run_id"]
    thread_id = place.rpartition("/")[2]
    client.runs.join(thread_id, run_id)

    assert answer == {
        "type": "success", "id": 7, "result": {"run_id": run_id},
        "meta": {"applied_through_seq": 0},
    }  # fmt: skip
    assert client.threads.get_state(thread_id)["values"]["notes"] == ["plan", "write", "review"]


def test_a_started_run_is_resumable_and_tells_classic_readers_too(raw, client, place):
    run_id = start(raw, place)
    thread_id = place.rpartition("/")[2]
    client.runs.join(thread_id, run_id)
    kwargs = client.runs.get(thread_id, run_id)["kwargs"]
    path = f"{place}/runs/{run_id}/stream?stream_mode=values"
    values = raw.frames("GET", path, **{"Last-Event-ID": "-1"})

    assert (kwargs["resumable"], kwargs["subgraphs"]) == (True, True)
    assert [frame.name for frame in values] == [*["values"] * 4, "end"]


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        ({"method": "run.start"}, None),
        ({"id": -1, "method": "run.start"}, -1),
        ({"id": "x", "method": "run.start"}, "x"),
        ({"id": 1}, 1),
        ([], None),
    ],
)
def test_what_is_no_command_is_refused_with_an_envelope(raw, place, sent, given):
    answer = raw("POST", f"{place}/commands", sent)

    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert (answer.json()["id"], answer.json()["error"]) == (given, "invalid_argument")


def test_what_is_not_json_is_refused(raw, place):
    answer = raw._client.post(f"{place}/commands", content=b"{")

    assert answer.status_code == 400
    assert "detail" in answer.json()


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("run.stop", {}, "unknown_command"),
        ("run.start", {}, "invalid_argument"),
        ("run.start", {"assistant_id": "nobody"}, "unknown_error"),
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
def test_what_cannot_be_done_is_an_error_in_an_answer_of_200(raw, place, method, params, code):
    answer = raw("POST", f"{place}/commands", {"id": 0, "method": method, "params": params})

    assert answer.status_code == 200
    assert (answer.json()["type"], answer.json()["id"]) == ("error", 0)
    assert answer.json()["error"] == code
    assert answer.json()["message"]


def test_a_question_nobody_asked_cannot_be_answered(raw, client, place):
    start(raw, place)
    heard(raw, place)
    answer = command(raw, place, "input.respond", interrupt_id="x", namespace=[], response=1)

    assert answer["error"] == "no_such_interrupt"


@pytest.fixture
def asked(raw, place):
    """The questions of a thread that has stopped to ask two."""
    start(raw, place, "human", input={"notes": [], "ask": 2})
    return heard(raw, place, "input", "values")


def test_questions_come_after_the_values_and_before_the_pause(asked):
    methods = [event["method"] for event in asked]
    questions = of(asked, "input.requested")

    assert methods[-3:] == ["input.requested", "input.requested", "lifecycle"]
    assert [q["payload"] for q in questions] == [q["value"] for q in questions]
    assert questions[0]["payload"] == {"approve": "send it? (0)"}
    assert asked[-1]["params"]["data"]["event"] == "interrupted"
    assert "__interrupt__" not in json.dumps(of(asked, "values"))


def test_one_answer_of_two_leaves_the_other_question(raw, place, asked):
    first, second = of(asked, "input.requested")
    one = {"namespace": [], "interrupt_id": first["interrupt_id"], "response": "yes"}

    assert command(raw, place, "input.respond", **one)["result"] == {}
    again = heard(raw, place, "input", runs=2)[-2:]
    assert of(again, "input.requested") == [second]


def test_all_answers_at_once_finish_the_run(raw, client, place, asked):
    responses = [
        {"namespace": [], "interrupt_id": q["interrupt_id"], "response": q["value"]["approve"]}
        for q in of(asked, "input.requested")
    ]
    command(raw, place, "input.respond", responses=responses)
    heard(raw, place, runs=2)
    state = client.threads.get_state(place.rpartition("/")[2])

    assert state["values"]["notes"] == [
        "draft", "answer 0: send it? (0)", "answer 1: send it? (1)", "sent"
    ]  # fmt: skip


def test_an_answer_may_bring_an_update(raw, client, place):
    start(raw, place, "human", input={"notes": []})
    [question] = of(heard(raw, place, "input"), "input.requested")
    command(
        raw, place, "input.respond", namespace=[], interrupt_id=question["interrupt_id"],
        response="yes", update={"notes": ["by the way"]},
    )  # fmt: skip
    heard(raw, place, runs=2)

    notes = client.threads.get_state(place.rpartition("/")[2])["values"]["notes"]
    assert set(notes) == {"draft", "by the way", "answer 0: yes", "sent"}


def test_on_a_thread_that_asks_input_is_the_answer(raw, client, place):
    start(raw, place, "human", input={"notes": []})
    heard(raw, place)
    start(raw, place, "human", input="go ahead")
    heard(raw, place, runs=2)

    notes = client.threads.get_state(place.rpartition("/")[2])["values"]["notes"]
    assert notes == ["draft", "answer 0: go ahead", "sent"]


@pytest.mark.parametrize("spelling", ["multitaskStrategy", "multitask_strategy"])
def test_the_strategy_is_honoured_on_a_busy_thread(raw, place, spelling):
    start(raw, place, "slow", input={"seconds": 5})
    params = {"assistant_id": "slow", "input": {"seconds": 0}, spelling: "reject"}
    answer = command(raw, place, "run.start", **params)

    assert answer["error"] == "unknown_error"
    assert answer["message"].startswith("409: Thread is already running a task.")


def test_a_rollback_replaces_the_run_under_way(raw, client, place):
    old = start(raw, place, "slow", input={"seconds": 20})
    new = start(raw, place, "slow", input={"seconds": 0}, multitaskStrategy="rollback")
    thread_id = place.rpartition("/")[2]
    client.runs.join(thread_id, new)

    assert [run["run_id"] for run in client.runs.list(thread_id)] == [new]
    assert old != new


def test_a_fork_goes_on_from_an_old_checkpoint(raw, client, place):
    start(raw, place)
    checkpoints = of(heard(raw, place, "checkpoints"), "checkpoints")
    config = {"configurable": {"checkpoint_id": checkpoints[2]["id"]}}
    start(raw, place, input={"notes": ["forked"]}, config=config)
    heard(raw, place, runs=2)

    notes = client.threads.get_state(place.rpartition("/")[2])["values"]["notes"]
    assert notes[:3] == ["asked", "plan", "forked"]


def test_the_tree_of_the_latest_run(raw, place):
    start(raw, place, "nested", input={"topic": "keels"})
    heard(raw, place)
    tree = command(raw, place, "agent.getTree")["result"]["tree"]
    [research] = tree["children"]
    [search] = research["children"]

    assert (tree["namespace"], tree["status"], tree["graph_name"]) == ([], "completed", "nested")
    assert (research["graph_name"], research["status"]) == ("research", "completed")
    assert search["namespace"][:1] == research["namespace"]


def test_the_state_can_be_asked_for_in_part(raw, place):
    start(raw, place)
    heard(raw, place)
    whole = command(raw, place, "state.get", namespace=[])["result"]
    part = command(raw, place, "state.get", namespace=[], keys=["count"])["result"]

    assert whole["values"]["notes"] == ["asked", "plan", "write", "review"]
    assert part == {"values": {"count": 3}, "checkpoint": whole["checkpoint"]}
    assert set(whole["checkpoint"]) == {"id", "ns"}


def test_checkpoints_are_listed_newest_first_and_by_pages(raw, place):
    start(raw, place)
    heard(raw, place)
    found = command(raw, place, "state.listCheckpoints")["result"]["checkpoints"]
    page = command(raw, place, "state.listCheckpoints", limit=2, before=found[1]["id"])

    assert [one["step"] for one in found] == [3, 2, 1, 0, -1]
    assert {"id", "timestamp", "step"} <= set(found[0])
    assert page["result"]["checkpoints"] == found[2:4]


def test_a_fork_by_command_names_its_run(raw, client, place):
    start(raw, place)
    heard(raw, place)
    found = command(raw, place, "state.listCheckpoints")["result"]["checkpoints"]
    answer = command(
        raw, place, "state.fork", checkpoint_id=found[2]["id"], input={"notes": ["forked"]}
    )["result"]
    client.runs.join(answer["thread_id"], answer["run_id"])

    assert answer["thread_id"] == place.rpartition("/")[2]
    assert "forked" in client.threads.get_state(answer["thread_id"])["values"]["notes"]


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
def test_what_is_no_request_for_events_is_refused(raw, client, body):
    thread_id = client.threads.create()["thread_id"]
    answer = raw("POST", f"/threads/{thread_id}/stream/events", body)

    assert answer.status_code == 400
    assert isinstance(answer.json()["detail"], str)


def test_a_thread_that_is_not_there_has_no_events(raw, place):
    answer = raw("POST", f"{place}/stream/events", {"channels": ["values"]})

    assert answer.status_code == 404


def test_an_events_shape(raw, place):
    start(raw, place)
    events = heard(raw, place, *EVERY_CHANNEL)
    first = events[0]

    assert set(first) == {"type", "event_id", "seq", "method", "params"}
    assert set(first["params"]) == {"namespace", "timestamp", "data"}
    assert first["params"]["data"] == {"event": "running", "graph_name": "steps"}
    assert events[-1]["params"]["data"] == {"event": "completed", "graph_name": "steps"}
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] < 2**53


def test_every_reader_at_any_time_sees_the_same_ids_and_numbers(raw, place):
    start(raw, place)
    first = heard(raw, place, *EVERY_CHANNEL)
    again = heard(raw, place, *EVERY_CHANNEL)
    some = heard(raw, place, "values")

    assert first == again
    assert len({event["event_id"] for event in first}) == len(first)
    assert some == [event for event in first if event["method"] in ("values", "lifecycle")]


def test_a_reader_may_go_on_where_it_was(raw, place):
    start(raw, place)
    everything = heard(raw, place, *EVERY_CHANNEL)
    rest = heard(raw, place, *EVERY_CHANNEL, since=everything[5]["seq"])

    assert rest == everything[6:]


def test_earlier_runs_come_first(raw, place):
    start(raw, place)
    one = heard(raw, place, "values")
    start(raw, place)
    both = heard(raw, place, "values", runs=2)

    assert both[: len(one)] == one
    assert [data["event"] for data in of(both, "lifecycle")] == ["running", "completed"] * 2


@pytest.mark.parametrize("channel", ["updates", "tasks", "custom", "checkpoints", "values"])
def test_a_channel_speaks_of_its_own_and_of_lifecycle(raw, place, channel):
    start(raw, place)
    methods = {event["method"] for event in heard(raw, place, channel)}

    assert methods == {channel, "lifecycle"}


def test_tools_speak_of_calls(raw, place):
    start(raw, place, "chat", input=CALL)
    started, finished = of(heard(raw, place, "tools"), "tools")

    assert started == {
        "event": "tool-started", "tool_call_id": "call_0_multiply", "tool_name": "multiply",
        "input": {"a": 6, "b": 7},
    }  # fmt: skip
    assert (finished["event"], finished["output"]["content"]) == ("tool-finished", "42")


def test_messages_are_made_of_blocks(raw, place):
    start(raw, place, "chat", input=HELLO)
    events = heard(raw, place, "messages")
    said = of(events, "messages")

    assert [data["event"] for data in said] == [
        "message-start", "content-block-start", *["content-block-delta"] * 3,
        "content-block-finish", "message-finish",
    ]  # fmt: skip
    assert said[0]["role"] == "ai"
    assert said[2]["delta"] == {"type": "text-delta", "text": "You"}
    assert said[-2]["content"]["text"] == "You said: hello"
    assert {event["params"].get("node") for event in events[1:-1]} == {"agent"}


def test_messages_are_stored_as_blocks(raw, client, place):
    start(raw, place, "chat", input=HELLO)
    heard(raw, place)
    message = client.threads.get_state(place.rpartition("/")[2])["values"]["messages"][-1]

    assert message["content"][0]["text"] == "You said: hello"
    assert message["response_metadata"]["output_version"] == "v1"


@pytest.mark.parametrize(
    ("asked", "depths"),
    [
        ({}, {0, 1, 2}),
        ({"namespaces": [[]]}, {0, 1, 2}),
        ({"namespaces": [[]], "depth": 0}, {0}),
        ({"namespaces": [[]], "depth": 1}, {0, 1}),
        ({"namespaces": [[], ["research"]], "depth": 1}, {0, 1, 2}),
    ],
)
def test_namespaces_and_depth_choose(raw, place, asked, depths):
    start(raw, place, "nested", input={"topic": "keels"})
    events = heard(raw, place, "values", **asked)

    assert {len(e["params"]["namespace"]) for e in events if e["method"] == "values"} == depths


def test_children_tell_of_themselves(raw, place):
    start(raw, place, "nested", input={"topic": "keels"})
    told = [
        (len(event["params"]["namespace"]), event["params"]["data"]["event"])
        for event in heard(raw, place)
    ]

    assert told == [
        (0, "running"), (1, "started"), (2, "started"), (2, "completed"), (1, "completed"),
        (0, "completed"),
    ]  # fmt: skip


def test_a_failure_says_why(raw, place):
    start(raw, place, "faults", input={"kind": "value"})
    last = heard(raw, place)[-1]["params"]["data"]

    assert (last["event"], last["error"]) == ("failed", "ValueError: no such city")


def test_the_root_subscription_of_the_javascript_client_is_accepted(raw, place):
    start(raw, place)
    channels = ["values", "checkpoints", "lifecycle", "input", "messages", "tools"]
    events = heard(raw, place, *channels, namespaces=[[]], depth=1)

    assert {"values", "checkpoints"} <= {event["method"] for event in events}


def test_runs_that_were_started_another_way_are_seen_as_well(raw, client):
    thread_id = client.threads.create()["thread_id"]
    body = {"channels": ["lifecycle", "values"]}
    with raw.open("POST", f"/threads/{thread_id}/stream/events", body) as answer:
        threading.Timer(
            0.3, client.runs.wait, (thread_id, "steps"), {"input": {"notes": []}}
        ).start()
        found = []
        for frame in live_frames(answer):
            found.append(frame.data)
            if is_over(frame.data):
                break

    assert found[0]["params"]["data"]["event"] == "running"
    assert found[-2]["params"]["data"]["notes"] == ["plan", "write", "review"]


# The public Python client


async def test_the_client_follows_a_chat(aclient):
    async with asyncio.timeout(SECONDS), aclient.threads.stream(assistant_id="chat") as thread:
        await thread.run.start(input=CALL)
        messages = [message async for message in thread.messages]
        output = await thread.output
        texts = [await message.text for message in messages]

    assert output["messages"][-1]["content"][0]["text"] == "The tools said: 42"
    assert texts[-1] == "The tools said: 42"


async def test_the_client_follows_tool_calls(aclient):
    async with asyncio.timeout(SECONDS), aclient.threads.stream(assistant_id="chat") as thread:
        await thread.run.start(input=CALL)
        calls = [call async for call in thread.tool_calls]

    assert [(call.name, call.input) for call in calls] == [("multiply", {"a": 6, "b": 7})]


async def test_the_client_answers_a_question(aclient):
    async with asyncio.timeout(SECONDS), aclient.threads.stream(assistant_id="human") as thread:
        await thread.run.start(input={"notes": []})
        async for _ in thread.values:
            pass
        interrupted, questions = thread.interrupted, list(thread.interrupts)
        await thread.run.respond("yes")
        output = await thread.output

    assert interrupted
    assert [question["value"] for question in questions] == [{"approve": "send it? (0)"}]
    assert output["notes"] == ["draft", "answer 0: yes", "sent"]


async def test_the_client_finds_subgraphs(aclient):
    async with asyncio.timeout(SECONDS), aclient.threads.stream(assistant_id="nested") as thread:
        await thread.run.start(input={"topic": "keels"})
        found = [child async for child in thread.subgraphs]

    assert [(child.graph_name, child.status) for child in found] == [("research", "completed")]


async def test_the_client_raises_what_went_wrong(aclient):
    async with asyncio.timeout(SECONDS), aclient.threads.stream(assistant_id="faults") as thread:
        await thread.run.start(input={"kind": "value"})
        with pytest.raises(RuntimeError, match="ValueError: no such city"):
            await thread.output


async def test_the_client_interleaves_channels(aclient):
    async with asyncio.timeout(SECONDS), aclient.threads.stream(assistant_id="steps") as thread:
        await thread.run.start(input={"notes": []})
        found = [name async for name, _ in thread.interleave_projections(["updates", "values"])]

    assert found.count("updates") == 3
    assert found.count("values") == 4


async def test_the_client_speaks_over_a_websocket(aclient, live):
    headers = {"x-api-key": live.api_key}
    stream = aclient.threads.stream(assistant_id="human", transport="websocket", headers=headers)
    async with asyncio.timeout(SECONDS), stream as thread:
        await thread.run.start(input={"notes": []})
        async for _ in thread.values:
            pass
        await thread.run.respond("yes")
        output = await thread.output

    assert output["notes"] == ["draft", "answer 0: yes", "sent"]


# 10.3 The WebSocket


@pytest.fixture
def socket(live, agent_url, place):
    url = agent_url.replace("http", "ws", 1) + f"{place}/stream/events"
    with connect(url, additional_headers={"x-api-key": live.api_key}) as socket:
        yield Socket(socket)


class Socket:
    """Commands and what comes back."""

    def __init__(self, socket) -> None:
        self.socket = socket
        self.events: list[dict] = []

    def ask(self, method, number=1, **params):
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        return self.answer()

    def answer(self):
        while (said := json.loads(self.socket.recv(SECONDS))).get("type") == "event":
            self.events.append(said)
        return said

    def to_the_end(self):
        while not self.events or not is_over(self.events[-1]):
            self.events.append(json.loads(self.socket.recv(SECONDS)))
        return self.events


def test_commands_and_events_share_a_socket(socket):
    subscribed = socket.ask("subscription.subscribe", channels=["values", "lifecycle"])
    started = socket.ask("run.start", 2, assistant_id="steps", input={"notes": []})
    events = socket.to_the_end()

    assert subscribed["type"] == started["type"] == "success"
    assert subscribed["result"]["replayed_events"] == 0
    assert started["id"] == 2
    assert [event["method"] for event in events] == ["lifecycle", *["values"] * 4, "lifecycle"]


def test_a_late_subscription_is_told_how_much_it_missed_and_then_what(socket):
    socket.ask("subscription.subscribe", channels=["lifecycle"])
    socket.ask("run.start", assistant_id="steps", input={"notes": []})
    socket.to_the_end()
    socket.events.clear()
    answer = socket.ask("subscription.subscribe", channels=["updates", "lifecycle"])
    before = list(socket.events)
    replayed = socket.to_the_end()

    assert before == []
    assert answer["result"]["replayed_events"] == len(replayed) == 5
    assert answer["meta"]["applied_through_seq"] == replayed[-1]["seq"]


def test_the_tree_is_known_on_a_socket(socket):
    socket.ask("subscription.subscribe", channels=["lifecycle"])
    socket.ask("run.start", assistant_id="steps", input={"notes": []})
    socket.to_the_end()

    assert socket.ask("agent.getTree")["result"]["tree"] == {
        "namespace": [], "status": "completed", "graph_name": "steps"
    }  # fmt: skip


def test_a_subscription_can_be_ended_once(socket):
    answer = socket.ask("subscription.subscribe", channels=["values"])
    given = {"subscription_id": answer["result"]["subscription_id"]}

    assert socket.ask("subscription.unsubscribe", **given)["result"] == {}
    assert socket.ask("subscription.unsubscribe", **given)["error"] == "no_such_subscription"


@pytest.mark.parametrize(
    ("text", "given"), [("{", None), ("[]", None), ('{"id":"x","method":"run.start"}', "x")]
)
def test_a_bad_frame_gets_an_error_and_the_socket_lives(socket, text, given):
    socket.socket.send(text)
    answer = socket.answer()

    assert (answer["type"], answer["id"]) == ("error", given)
    assert socket.ask("agent.getTree")["error"] == "no_such_run"


def test_channels_of_a_subscription_are_checked(socket):
    assert socket.ask("subscription.subscribe", channels=["all"])["error"] == "invalid_argument"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"x-api-key": "slip_wrong"}, 401)],
)
def test_who_may_not_open_a_socket(agent_url, place, headers, status):
    url = agent_url.replace("http", "ws", 1) + f"{place}/stream/events"

    with pytest.raises(InvalidStatus) as refusal, connect(url, additional_headers=headers):
        pass

    assert refusal.value.response.status_code == status
