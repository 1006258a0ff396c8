"""Section 9: streams of runs and of threads."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from uuid import uuid4

import pytest
from langgraph_sdk import get_sync_client

from tests.contract.sse import iterate_frames, read_until

NOTES_INPUT = {"notes": ["start"]}
STEPS = ["plan", "write", "review"]
MESSAGE_INPUT = {"messages": [{"role": "user", "content": "words 4"}]}
TOOL_CALL_INPUT = {"messages": [{"role": "user", "content": 'call multiply {"a": 6, "b": 7}'}]}


def collect_events(client, graph, **options):
    return [(part.event, part.data) for part in client.runs.stream(None, graph, **options)]


def data_of(events, name):
    return [data for event, data in events if event == name]


def frame_ids(frames):
    return [tuple(map(int, frame.id.split("-"))) for frame in frames]


@pytest.fixture
def resumable(client, thread_id):
    """The id of a finished resumable run."""
    run = client.runs.create(
        thread_id,
        "steps",
        input=NOTES_INPUT,
        stream_mode=["values", "updates"],
        stream_resumable=True,
    )
    client.runs.join(thread_id, run["run_id"])
    return run["run_id"]


# 9.1 Frames


def test_frames_end_in_crlf_and_have_one_line_of_json(raw_client, thread_id):
    response = raw_client(
        "POST", f"/threads/{thread_id}/runs/stream", {"assistant_id": "steps"} | INPUT_FIELD
    )

    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = response.text.split("\r\n")
    assert "\n" not in "".join(lines)
    assert lines[0] == "event: metadata"
    assert lines[1].startswith('data: {"run_id":"')
    assert lines[2] == ""
    assert not [line for line in lines if line.startswith("id:")]


INPUT_FIELD = {"input": NOTES_INPUT}


@pytest.mark.parametrize("name", ["cache-control", "x-accel-buffering"])
def test_a_stream_has_headers_that_prevent_caching_and_buffering(raw_client, name):
    response = raw_client("POST", "/runs/stream", {"assistant_id": "steps", **INPUT_FIELD})

    assert response.headers[name] == {"cache-control": "no-store", "x-accel-buffering": "no"}[name]


def test_a_stream_names_the_locations_of_its_run_and_its_stream(raw_client, thread_id):
    response = raw_client(
        "POST", f"/threads/{thread_id}/runs/stream", {"assistant_id": "steps", **INPUT_FIELD}
    )
    run_id = response.text.split('"run_id":"')[1].split('"')[0]

    assert response.headers["content-location"] == f"/threads/{thread_id}/runs/{run_id}"
    assert response.headers["location"] == f"/threads/{thread_id}/runs/{run_id}/stream"


def test_a_stateless_stream_is_resumed_at_its_location(raw_client):
    body = {"assistant_id": "steps", "stream_resumable": True, **INPUT_FIELD}
    response = raw_client("POST", "/runs/stream", body)
    location = response.headers["location"]

    assert response.headers["content-location"] == location.removesuffix("/stream")
    replayed = raw_client.request_frames("GET", location, **{"Last-Event-ID": "-1"})
    assert [frame.name for frame in replayed][:2] == ["metadata", "values"]


def test_a_heartbeat_is_sent_every_five_seconds(raw_client):
    body = {"assistant_id": "slow", "input": {"seconds": 60}, "on_disconnect": "cancel"}
    text = ""
    opened_at = time.monotonic()
    with raw_client.open("POST", "/runs/stream", body) as response:
        for piece in response.iter_text():
            text += piece
            if text.count(": heartbeat\r\n\r\n") == 2:
                break

    assert text.count(": heartbeat\r\n\r\n") == 2
    assert time.monotonic() - opened_at > 9.9
    assert "event: end" not in text


# 9.2 Order


def test_the_first_event_is_metadata_and_the_last_is_end(client):
    events = collect_events(client, "steps", input=NOTES_INPUT)

    assert events[0][0] == "metadata"
    assert set(events[0][1]) == {"run_id", "attempt"}
    assert events[0][1]["attempt"] == 1
    assert events[-1] == ("end", {"status": "success"})


def test_an_error_is_the_last_event_of_a_stream_with_status_200(raw_client):
    failing = {"assistant_id": "steps", "input": {**NOTES_INPUT, "fail": "write"}}
    response = raw_client("POST", "/runs/stream", failing)

    assert response.status_code == 200
    assert response.text.endswith(
        'event: error\r\ndata: {"error":"ValueError","message":"no such city"}\r\n\r\n'
    )


def test_events_are_streamed_in_order(client):
    modes = ["custom", "updates", "values"]
    events = collect_events(client, "steps", input=NOTES_INPUT, stream_mode=modes)
    names = [name for name, _ in events[1:-1]]

    assert names == ["values", *["custom", "updates", "values"] * 3]


# 9.3 Modes


def test_values_are_the_state_after_the_input_and_each_step(client):
    values = data_of(
        collect_events(client, "steps", input=NOTES_INPUT, stream_mode="values"), "values"
    )

    assert [value["notes"] for value in values] == [
        ["start"], ["start", "plan"], ["start", "plan", "write"], ["start", *STEPS]
    ]  # fmt: skip


def test_an_empty_input_streams_no_values(client):
    values = data_of(collect_events(client, "steps", input={}, stream_mode="values"), "values")

    assert [value["notes"] for value in values] == [["plan"], ["plan", "write"], STEPS]


def test_updates_are_streamed_by_node(client):
    updates = data_of(
        collect_events(client, "steps", input=NOTES_INPUT, stream_mode="updates"), "updates"
    )

    assert [list(update) for update in updates] == [["plan"], ["write"], ["review"]]
    assert updates[0]["plan"]["notes"] == ["plan"]


def test_custom_events_contain_the_data_of_the_stream_writer(client):
    custom = data_of(
        collect_events(client, "steps", input=NOTES_INPUT, stream_mode="custom"), "custom"
    )

    assert custom == [{"at": "plan"}, {"at": "write"}, {"at": "review"}]


def test_tasks_are_streamed_at_start_and_end(client):
    tasks = data_of(
        collect_events(client, "steps", input=NOTES_INPUT, stream_mode="tasks"), "tasks"
    )
    first, finished = tasks[:2]

    assert [task["name"] for task in tasks] == [name for name in STEPS for _ in range(2)]
    assert {"id", "name", "input", "triggers"} <= set(first)
    assert {"id", "name", "error", "result", "interrupts"} <= set(finished)
    assert first["id"] == finished["id"]


def test_checkpoints_name_their_config_and_next_nodes(client, thread_id):
    parts = client.runs.stream(thread_id, "steps", input=NOTES_INPUT, stream_mode="checkpoints")
    checkpoints = [part.data for part in parts if part.event == "checkpoints"]

    assert [checkpoint["metadata"]["step"] for checkpoint in checkpoints] == [-1, 0, 1, 2, 3]
    assert [checkpoint["next"] for checkpoint in checkpoints[1:]] == [
        ["plan"],
        ["write"],
        ["review"],
        [],
    ]
    assert {checkpoint["config"]["configurable"]["thread_id"] for checkpoint in checkpoints} == {
        thread_id
    }
    assert checkpoints[-1]["values"]["notes"] == ["start", *STEPS]
    before = checkpoints[-2]["config"]["configurable"]["checkpoint_id"]
    assert checkpoints[-1]["parent_config"]["configurable"]["checkpoint_id"] == before


def test_debug_wraps_tasks_and_checkpoints(client, thread_id):
    parts = client.runs.stream(thread_id, "steps", input=NOTES_INPUT, stream_mode="debug")
    events = [part.data for part in parts if part.event == "debug"]
    checkpoints = [event["payload"] for event in events if event["type"] == "checkpoint"]

    assert {event["type"] for event in events} == {"checkpoint", "task", "task_result"}
    assert set(events[0]) == {"step", "timestamp", "type", "payload"}
    assert checkpoints[-1]["checkpoint"]["thread_id"] == thread_id
    assert checkpoints[-1]["parent_checkpoint"] == checkpoints[-2]["checkpoint"]


def test_langchain_events_have_the_run_as_root(client):
    events = collect_events(client, "steps", input=NOTES_INPUT, stream_mode="events")
    run_id = data_of(events, "metadata")[0]["run_id"]
    langchain_events = data_of(events, "events")

    assert langchain_events[0]["event"] == "on_chain_start"
    assert langchain_events[0]["run_id"] == langchain_events[-1]["run_id"] == run_id
    assert {"event", "name", "run_id", "tags", "metadata", "data", "parent_ids"} <= set(
        langchain_events[0]
    )


def test_all_requested_modes_are_streamed(client):
    modes = ["values", "updates", "custom", "tasks", "checkpoints", "debug"]
    names = {
        name for name, _ in collect_events(client, "steps", input=NOTES_INPUT, stream_mode=modes)
    }

    assert names == {*modes, "metadata", "end"} - ({"checkpoints"} - names)


@pytest.mark.parametrize("mode", ["tools", "lifecycle", "everything"])
def test_an_unknown_mode_is_rejected(raw_client, mode):
    response = raw_client(
        "POST", "/runs/stream", {"assistant_id": "steps", "stream_mode": mode, **INPUT_FIELD}
    )

    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)


# 9.4 Messages


def test_partial_messages_grow(client):
    events = collect_events(client, "chat", input=MESSAGE_INPUT, stream_mode="messages")
    names = [name for name, _ in events[1:-1]]
    [(message_id, message_metadata)] = data_of(events, "messages/metadata")[0].items()
    partial = [data[0] for data in data_of(events, "messages/partial")]

    assert names[0] == "messages/metadata"
    assert message_metadata["metadata"]["langgraph_node"] == "agent"
    assert [m["content"] for m in partial][:2] == ["word0", "word0 word1"]
    assert partial[-1]["content"] == "word0 word1 word2 word3"
    assert {(m["type"], m["id"]) for m in partial} == {("ai", message_id)}


def test_a_message_that_is_not_streamed_by_a_model_is_complete(client):
    events = collect_events(client, "chat", input=TOOL_CALL_INPUT, stream_mode="messages")
    [[tool]] = data_of(events, "messages/complete")

    assert (tool["type"], tool["content"], tool["tool_call_id"]) == (
        "tool",
        "42",
        "call_0_multiply",
    )


def test_message_tuples_are_deltas_with_one_id(client):
    tuples = data_of(
        collect_events(client, "chat", input=MESSAGE_INPUT, stream_mode="messages-tuple"),
        "messages",
    )
    chunks = [message for message, _ in tuples]

    assert {message["type"] for message in chunks} == {"AIMessageChunk"}
    assert "".join(message["content"] for message in chunks) == "word0 word1 word2 word3"
    assert len({message["id"] for message in chunks}) == 1
    assert chunks[0]["id"].startswith("lc_run--")
    assert {metadata["langgraph_node"] for _, metadata in tuples} == {"agent"}
    assert "chunk_position" in chunks[0]


def test_the_final_message_has_the_id_of_its_chunks(client, thread_id):
    parts = client.runs.stream(
        thread_id, "chat", input=MESSAGE_INPUT, stream_mode=["messages-tuple", "values"]
    )
    events = [(part.event, part.data) for part in parts]
    chunk_id = data_of(events, "messages")[0][0]["id"]

    assert data_of(events, "values")[-1]["messages"][-1]["id"] == chunk_id


def test_tuples_replace_partial_messages_when_both_are_requested(client):
    modes = ["messages", "messages-tuple"]
    names = {
        name for name, _ in collect_events(client, "chat", input=MESSAGE_INPUT, stream_mode=modes)
    }

    assert names == {"metadata", "messages", "end"}


def test_tool_messages_are_streamed_as_tuples(client):
    tuples = data_of(
        collect_events(client, "chat", input=TOOL_CALL_INPUT, stream_mode="messages-tuple"),
        "messages",
    )

    assert [message["type"] for message, _ in tuples].count("tool") == 1
    tool_call = tuples[0][0]
    assert tool_call["tool_call_chunks"][0]["name"] == "multiply"


# 9.5 Interrupts


@pytest.fixture
def interrupted_events(client, thread_id):
    parts = client.runs.stream(thread_id, "human", input={"notes": []}, stream_mode=[
        "updates", "values", "tasks"
    ])  # fmt: skip
    return [(part.event, part.data) for part in parts]


@pytest.mark.parametrize("mode", ["updates", "values"])
def test_an_interrupt_is_in_the_stream(interrupted_events, mode):
    [question] = data_of(interrupted_events, mode)[-1]["__interrupt__"]

    assert question["value"] == {"approve": "send it? (0)"}
    assert len(question["id"]) == 32
    assert question["response_schema"] is None


def test_an_interrupt_is_in_the_result_of_its_task(interrupted_events):
    [question] = data_of(interrupted_events, "tasks")[-1]["interrupts"]

    assert question["value"] == {"approve": "send it? (0)"}


def test_a_breakpoint_is_streamed_as_an_empty_list(client, thread_id):
    parts = client.runs.stream(
        thread_id,
        "steps",
        input=NOTES_INPUT,
        interrupt_before=["write"],
        stream_mode=["updates", "values"],
    )
    events = [(part.event, part.data) for part in parts]

    assert data_of(events, "updates")[-1] == {"__interrupt__": []}
    assert client.threads.get_state(thread_id)["next"] == ["write"]


# 9.6 Subgraphs


@pytest.mark.parametrize("mode", ["values", "updates", "custom", "tasks", "checkpoints", "debug"])
def test_events_of_subgraphs_have_their_namespace(client, thread_id, mode):
    parts = client.runs.stream(
        thread_id, "nested", input={"topic": "keels"}, stream_mode=mode, stream_subgraphs=True
    )
    depths = {part.event.count("|") for part in parts if part.event.startswith(mode)}
    expected = {1, 2} if mode == "custom" else {0, 1, 2}

    assert depths == expected


def test_a_namespace_is_built_from_node_and_task(client):
    events = collect_events(
        client, "nested", input={"topic": "keels"}, stream_mode="updates", stream_subgraphs=True
    )
    deepest = max((name for name, _ in events), key=lambda name: name.count("|"))
    _, research, search = deepest.split("|")

    assert research.split(":")[0] == "research"
    assert search.split(":")[0] == "search"


def test_without_subgraphs_only_the_root_graph_is_streamed(client):
    events = collect_events(client, "nested", input={"topic": "keels"}, stream_mode="updates")

    assert {name for name, _ in events} == {"metadata", "updates", "end"}


# 9.7 Resuming


def test_ids_of_resumable_runs_are_unique_and_grow(raw_client, thread_id):
    body = {"assistant_id": "steps", "stream_resumable": True, "stream_mode": ["values", "tasks"]}
    frames = raw_client.request_frames(
        "POST", f"/threads/{thread_id}/runs/stream", {**body, **INPUT_FIELD}
    )
    ids = frame_ids(frames)

    assert len(frames) > 8
    assert all(first < second for first, second in pairwise(ids))


@pytest.mark.parametrize("last_event_id", ["-1", "0", "0-0"])
def test_a_resumable_stream_is_replayed_from_the_start(
    raw_client, thread_id, resumable, last_event_id
):
    path = f"/threads/{thread_id}/runs/{resumable}/stream"
    frames = raw_client.request_frames("GET", path, **{"Last-Event-ID": last_event_id})

    assert [frame.name for frame in frames][:2] == ["metadata", "values"]
    assert frames[-1].name == "end"


def test_a_resumed_stream_continues_after_the_given_event(raw_client, thread_id, resumable):
    path = f"/threads/{thread_id}/runs/{resumable}/stream"
    all_frames = raw_client.request_frames("GET", path, **{"Last-Event-ID": "-1"})
    for index in (0, 2, len(all_frames) - 2):
        rest = raw_client.request_frames("GET", path, **{"Last-Event-ID": all_frames[index].id})
        assert rest == all_frames[index + 1 :]


@pytest.mark.parametrize("header", [{}, {"Last-Event-ID": "yesterday"}])
def test_joining_the_stream_of_a_finished_run_is_empty(raw_client, thread_id, resumable, header):
    response = raw_client("GET", f"/threads/{thread_id}/runs/{resumable}/stream", **header)

    assert (response.status_code, response.content) == (200, b"")


def test_a_run_that_is_not_resumable_is_not_replayed(raw_client, client, thread_id):
    run = client.runs.create(thread_id, "steps", input=NOTES_INPUT)
    client.runs.join(thread_id, run["run_id"])
    path = f"/threads/{thread_id}/runs/{run['run_id']}/stream"

    assert raw_client("GET", path, **{"Last-Event-ID": "-1"}).content == b""


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("stream_mode=updates", ["updates"]),
        ("stream_mode=values&stream_mode=updates", ["values", "updates"]),
        ('stream_mode=["updates"]', ["updates"]),
        ("stream_mode=custom", []),
    ],
)
def test_a_join_with_modes_streams_only_these(raw_client, thread_id, resumable, query, names):
    path = f"/threads/{thread_id}/runs/{resumable}/stream?{query}"
    frames = raw_client.request_frames("GET", path, **{"Last-Event-ID": "-1"})

    assert {frame.name for frame in frames} - {"end"} == set(names)


def test_joining_an_unknown_run_streams_an_error(raw_client, thread_id):
    frames = raw_client.request_frames("GET", f"/threads/{thread_id}/runs/{uuid4()}/stream")

    assert [(frame.name, frame.data) for frame in frames] == [
        ("error", {"error": "HTTPException", "message": "404: Run not found"})
    ]


def test_joining_a_running_run_streams_the_following_events(client, thread_id):
    run = client.runs.create(thread_id, "slow", input={"seconds": 0.5, "steps": 2}, stream_mode=[
        "custom", "values"
    ])  # fmt: skip
    names = [part.event for part in client.runs.join_stream(thread_id, run["run_id"])]

    assert "metadata" not in names or names[0] == "metadata"
    assert names[-1] == "end"
    assert "values" in names


def test_the_client_resumes_a_stream_without_losing_events(client, thread_id):
    received, last_id = [], None
    parts = client.runs.stream(
        thread_id, "slow", input={"seconds": 0.1, "steps": 4}, stream_mode="custom",
        stream_resumable=True,
    )  # fmt: skip
    for part in parts:
        received.append((part.event, part.data))
        last_id = part.id
        if len(received) == 3:
            break
    run_id = received[0][1]["run_id"]
    rest = [
        (part.event, part.data)
        for part in client.runs.join_stream(thread_id, run_id, last_event_id=last_id)
    ]
    marks = [mark for event, data in received + rest if event == "custom" for mark in data.values()]

    assert len(marks) == 8
    assert marks[0::2] == marks[1::2]
    assert len(set(marks)) == 4


@pytest.mark.parametrize(
    ("on_disconnect", "seconds", "status"),
    [("cancel", 100, "interrupted"), ("continue", 1, "success")],
)
def test_closing_a_stream_applies_on_disconnect(client, thread_id, on_disconnect, seconds, status):
    parts = client.runs.stream(
        thread_id, "slow", input={"seconds": seconds}, on_disconnect=on_disconnect
    )
    run_id = next(iter(parts)).data["run_id"]
    parts.close()
    client.runs.join(thread_id, run_id)

    assert client.runs.get(thread_id, run_id)["status"] == status


def test_closing_a_joined_stream_cancels_the_run_on_request(raw_client, client, thread_id):
    run = client.runs.create(thread_id, "slow", input={"seconds": 100})
    path = f"/threads/{thread_id}/runs/{run['run_id']}/stream?cancel_on_disconnect=1"
    with raw_client.open("GET", path) as response:
        assert response.status_code == 200
    client.runs.join(thread_id, run["run_id"])

    assert client.runs.get(thread_id, run["run_id"])["status"] == "interrupted"


def test_a_cancelled_run_ends_without_an_error_event(raw_client, client, thread_id):
    body = {"assistant_id": "slow", "input": {"seconds": 100}}
    with raw_client.open("POST", f"/threads/{thread_id}/runs/stream", body) as response:
        frames = iterate_frames(response)
        run_id = next(frames).data["run_id"]
        client.runs.cancel(thread_id, run_id)
        names = [frame.name for frame in frames]

    assert "error" not in names
    assert names[-1] == "end"


# 9.8 Streams of threads


def start_run_in_thread(client, thread_id, graph="steps", **options):
    """Start a run in another thread, while the test reads a stream."""
    runner = threading.Thread(
        target=client.runs.wait, args=(thread_id, graph), kwargs={"input": NOTES_INPUT, **options}
    )
    runner.start()
    return runner


@pytest.mark.parametrize("parameter", ["stream_mode", "stream_modes"])
def test_lifecycle_has_two_events_for_each_run(raw_client, client, thread_id, parameter):
    with raw_client.open("GET", f"/threads/{thread_id}/stream?{parameter}=lifecycle") as response:
        runner = start_run_in_thread(client, thread_id)
        frames = read_until(response, "metadata", status="run_done")
        runner.join()

    assert [frame.name for frame in frames] == ["metadata", "metadata"]
    assert frames[0].data["attempt"] == 1
    assert frames[1].data == {"status": "run_done", "run_id": frames[0].data["run_id"]}


def test_a_thread_stream_has_the_events_of_all_runs_with_ids(raw_client, client, thread_id):
    with raw_client.open("GET", f"/threads/{thread_id}/stream") as response:
        runners = [start_run_in_thread(client, thread_id), start_run_in_thread(client, thread_id)]
        frames = iterate_frames(response)
        received = []
        while sum(frame.name == "metadata" for frame in received) < 4:
            received.append(next(frames))
        for runner in runners:
            runner.join()

    names = [frame.name for frame in received]
    assert names == ["metadata", *["values"] * 4, "metadata"] * 2
    ids = frame_ids(received)
    assert all(first < second for first, second in pairwise(ids))


def test_the_client_joins_the_stream_of_a_thread(live, agent_url, client, thread_id):
    opened = threading.Event()

    def start_run():
        assert opened.wait(60)
        client.runs.wait(thread_id, "steps", input=NOTES_INPUT)

    runner = threading.Thread(target=start_run, daemon=True)
    runner.start()
    with get_sync_client(url=agent_url, api_key=live.api_key, timeout=60) as joining:
        joining.http.client.event_hooks = {"response": [lambda _: opened.set()]}
        parts = joining.threads.join_stream(thread_id, stream_mode="lifecycle")
        events = [next(parts), next(parts)]
        parts.close()
    runner.join(60)

    assert events[1].data["status"] == "run_done"


def test_stored_events_of_a_thread_are_replayed_across_runs(raw_client, client, thread_id):
    for _ in range(2):
        list(client.runs.stream(thread_id, "steps", input=NOTES_INPUT, stream_resumable=True))
    path = f"/threads/{thread_id}/stream"
    with raw_client.open("GET", path, **{"Last-Event-ID": "0"}) as response:
        first = read_until(response, "metadata", status="run_done")
    with raw_client.open("GET", path, **{"Last-Event-ID": first[-1].id}) as response:
        second = read_until(response, "metadata", status="run_done")
    with raw_client.open("GET", path, **{"Last-Event-ID": first[2].id}) as response:
        rest = read_until(response, "metadata", status="run_done")

    assert [frame.name for frame in first] == ["metadata", *["values"] * 4, "metadata"]
    assert first[0].data["run_id"] != second[0].data["run_id"]
    assert rest == first[3:]


@pytest.mark.parametrize(
    ("query", "header"),
    [
        ("?stream_mode=everything", {}),
        ("", {"Last-Event-ID": "-1"}),
        ("", {"Last-Event-ID": "yesterday"}),
    ],
)
def test_an_invalid_thread_stream_request_is_rejected(raw_client, thread_id, query, header):
    response = raw_client("GET", f"/threads/{thread_id}/stream{query}", **header)

    assert response.status_code == 422


def test_the_stream_of_an_unknown_thread_is_not_found(raw_client):
    assert raw_client("GET", f"/threads/{uuid4()}/stream").status_code == 404


def test_a_state_update_is_streamed_on_request(raw_client, client, thread_id):
    client.runs.wait(thread_id, "steps", input=NOTES_INPUT)
    with raw_client.open(
        "GET", f"/threads/{thread_id}/stream?stream_mode=state_update"
    ) as response:
        runner = threading.Timer(
            0.3,
            client.threads.update_state,
            (thread_id, {"notes": ["mine"]}),
            {"as_node": "review"},
        )
        runner.start()
        [update] = read_until(response, "state_update")
        runner.join()

    assert update.data["state"]["values"]["notes"] == ["start", *STEPS, "mine"]


def test_the_stream_of_a_deleted_thread_ends(raw_client, client, thread_id):
    with raw_client.open("GET", f"/threads/{thread_id}/stream") as response:
        threading.Timer(0.3, client.threads.delete, (thread_id,)).start()
        assert list(iterate_frames(response)) == []
