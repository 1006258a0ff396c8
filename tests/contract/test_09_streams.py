"""Section 9: streams of runs and of threads."""

from __future__ import annotations

import threading
from itertools import pairwise
from uuid import uuid4

import pytest
from langgraph_sdk import get_sync_client

from tests.contract.sse import Raw, live_frames, until
from tests.response_deadline import with_deadline

NOTED = {"notes": ["asked"]}
STEPS = ["plan", "write", "review"]
SAY = {"messages": [{"role": "user", "content": "words 4"}]}
CALL = {"messages": [{"role": "user", "content": 'call multiply {"a": 6, "b": 7}'}]}


@pytest.fixture(scope="module")
def raw(live, agent_url):
    raw = Raw(agent_url, live.api_key)
    yield raw
    raw.close()


@pytest.fixture
def thread(client) -> str:
    return client.threads.create()["thread_id"]


def stream(client, graph, **asked):
    return [(part.event, part.data) for part in client.runs.stream(None, graph, **asked)]


def of(events, name):
    return [data for event, data in events if event == name]


def ids_of(frames):
    return [tuple(map(int, frame.id.split("-"))) for frame in frames]


@pytest.fixture
def resumable(client, thread):
    """A resumable run that has ended."""
    run = client.runs.create(
        thread, "steps", input=NOTED, stream_mode=["values", "updates"], stream_resumable=True
    )
    client.runs.join(thread, run["run_id"])
    return run["run_id"]


# 9.1 Frames


def test_frames_end_in_crlf_and_have_one_line_of_compact_json(raw, thread):
    answer = raw("POST", f"/threads/{thread}/runs/stream", {"assistant_id": "steps"} | IN)

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = answer.text.split("\r\n")
    assert "\n" not in "".join(lines)
    assert lines[0] == "event: metadata"
    assert lines[1].startswith('data: {"run_id":"')
    assert lines[2] == ""
    assert not [line for line in lines if line.startswith("id:")]


IN = {"input": NOTED}


@pytest.mark.parametrize("name", ["cache-control", "x-accel-buffering"])
def test_nobody_on_the_way_may_keep_a_stream(raw, name):
    answer = raw("POST", "/runs/stream", {"assistant_id": "steps", **IN})

    assert answer.headers[name] == {"cache-control": "no-store", "x-accel-buffering": "no"}[name]


def test_a_stream_says_where_its_run_is_and_where_to_come_back(raw, thread):
    answer = raw("POST", f"/threads/{thread}/runs/stream", {"assistant_id": "steps", **IN})
    run_id = answer.text.split('"run_id":"')[1].split('"')[0]

    assert answer.headers["content-location"] == f"/threads/{thread}/runs/{run_id}"
    assert answer.headers["location"] == f"/threads/{thread}/runs/{run_id}/stream"


def test_a_stateless_stream_can_be_come_back_to(raw):
    body = {"assistant_id": "steps", "stream_resumable": True, **IN}
    answer = raw("POST", "/runs/stream", body)
    place = answer.headers["location"]

    assert answer.headers["content-location"] == place.removesuffix("/stream")
    again = raw.frames("GET", place, **{"Last-Event-ID": "-1"})
    assert [frame.name for frame in again][:2] == ["metadata", "values"]


def test_heartbeats_come_every_five_seconds(raw):
    body = {"assistant_id": "slow", "input": {"seconds": 11}}
    with raw.open("POST", "/runs/stream", body) as answer:
        text = "".join(answer.iter_text())

    assert text.count(": heartbeat\r\n\r\n") == 2


# 9.2 Order


def test_metadata_is_first_and_the_end_last(client):
    events = stream(client, "steps", input=NOTED)

    assert events[0][0] == "metadata"
    assert set(events[0][1]) == {"run_id", "attempt"}
    assert events[0][1]["attempt"] == 1
    assert events[-1] == ("end", {"status": "success"})


def test_a_failure_is_the_last_event_of_a_stream_of_status_200(raw):
    failing = {"assistant_id": "steps", "input": {**NOTED, "fail": "write"}}
    answer = raw("POST", "/runs/stream", failing)

    assert answer.status_code == 200
    assert answer.text.endswith(
        'event: error\r\ndata: {"error":"ValueError","message":"no such city"}\r\n\r\n'
    )


def test_things_come_in_the_order_in_which_they_happen(client):
    modes = ["custom", "updates", "values"]
    events = stream(client, "steps", input=NOTED, stream_mode=modes)
    names = [name for name, _ in events[1:-1]]

    assert names == ["values", *["custom", "updates", "values"] * 3]


# 9.3 Modes


def test_values_are_the_state_after_the_input_and_each_step(client):
    values = of(stream(client, "steps", input=NOTED, stream_mode="values"), "values")

    assert [value["notes"] for value in values] == [
        ["asked"], ["asked", "plan"], ["asked", "plan", "write"], ["asked", *STEPS]
    ]  # fmt: skip


def test_values_of_an_input_that_writes_nothing_are_left_out(client):
    values = of(stream(client, "steps", input={}, stream_mode="values"), "values")

    assert [value["notes"] for value in values] == [["plan"], ["plan", "write"], STEPS]


def test_updates_are_by_node(client):
    updates = of(stream(client, "steps", input=NOTED, stream_mode="updates"), "updates")

    assert [list(update) for update in updates] == [["plan"], ["write"], ["review"]]
    assert updates[0]["plan"]["notes"] == ["plan"]


def test_custom_is_what_the_writer_wrote(client):
    custom = of(stream(client, "steps", input=NOTED, stream_mode="custom"), "custom")

    assert custom == [{"at": "plan"}, {"at": "write"}, {"at": "review"}]


def test_tasks_start_and_end(client):
    tasks = of(stream(client, "steps", input=NOTED, stream_mode="tasks"), "tasks")
    first, done = tasks[:2]

    assert [task["name"] for task in tasks] == [name for name in STEPS for _ in range(2)]
    assert {"id", "name", "input", "triggers"} <= set(first)
    assert {"id", "name", "error", "result", "interrupts"} <= set(done)
    assert first["id"] == done["id"]


def test_checkpoints_have_their_place_and_what_is_next(client, thread):
    parts = client.runs.stream(thread, "steps", input=NOTED, stream_mode="checkpoints")
    found = [part.data for part in parts if part.event == "checkpoints"]

    assert [one["metadata"]["step"] for one in found] == [-1, 0, 1, 2, 3]
    assert [one["next"] for one in found[1:]] == [["plan"], ["write"], ["review"], []]
    assert {one["config"]["configurable"]["thread_id"] for one in found} == {thread}
    assert found[-1]["values"]["notes"] == ["asked", *STEPS]
    before = found[-2]["config"]["configurable"]["checkpoint_id"]
    assert found[-1]["parent_config"]["configurable"]["checkpoint_id"] == before


def test_debug_wraps_tasks_and_checkpoints(client, thread):
    parts = client.runs.stream(thread, "steps", input=NOTED, stream_mode="debug")
    found = [part.data for part in parts if part.event == "debug"]
    checkpoints = [one["payload"] for one in found if one["type"] == "checkpoint"]

    assert {one["type"] for one in found} == {"checkpoint", "task", "task_result"}
    assert set(found[0]) == {"step", "timestamp", "type", "payload"}
    assert checkpoints[-1]["checkpoint"]["thread_id"] == thread
    assert checkpoints[-1]["parent_checkpoint"] == checkpoints[-2]["checkpoint"]


def test_events_are_those_of_langchain_with_the_run_as_root(client):
    events = stream(client, "steps", input=NOTED, stream_mode="events")
    run_id = of(events, "metadata")[0]["run_id"]
    found = of(events, "events")

    assert found[0]["event"] == "on_chain_start"
    assert found[0]["run_id"] == found[-1]["run_id"] == run_id
    assert {"event", "name", "run_id", "tags", "metadata", "data", "parent_ids"} <= set(found[0])


def test_several_modes_at_once_are_all_there(client):
    modes = ["values", "updates", "custom", "tasks", "checkpoints", "debug"]
    names = {name for name, _ in stream(client, "steps", input=NOTED, stream_mode=modes)}

    assert names == {*modes, "metadata", "end"} - ({"checkpoints"} - names)


@pytest.mark.parametrize("mode", ["tools", "lifecycle", "everything"])
def test_an_unknown_mode_is_refused(raw, mode):
    answer = raw("POST", "/runs/stream", {"assistant_id": "steps", "stream_mode": mode, **IN})

    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)


# 9.4 Messages


def test_messages_grow(client):
    events = stream(client, "chat", input=SAY, stream_mode="messages")
    names = [name for name, _ in events[1:-1]]
    [(message_id, told)] = of(events, "messages/metadata")[0].items()
    partial = [data[0] for data in of(events, "messages/partial")]

    assert names[0] == "messages/metadata"
    assert told["metadata"]["langgraph_node"] == "agent"
    assert [m["content"] for m in partial][:2] == ["word0", "word0 word1"]
    assert partial[-1]["content"] == "word0 word1 word2 word3"
    assert {(m["type"], m["id"]) for m in partial} == {("ai", message_id)}


def test_a_message_that_no_model_streamed_is_complete_at_once(client):
    events = stream(client, "chat", input=CALL, stream_mode="messages")
    [[tool]] = of(events, "messages/complete")

    assert (tool["type"], tool["content"], tool["tool_call_id"]) == (
        "tool",
        "42",
        "call_0_multiply",
    )


def test_tuples_are_deltas_under_one_id(client):
    found = of(stream(client, "chat", input=SAY, stream_mode="messages-tuple"), "messages")
    chunks = [message for message, _ in found]

    assert {message["type"] for message in chunks} == {"AIMessageChunk"}
    assert "".join(message["content"] for message in chunks) == "word0 word1 word2 word3"
    assert len({message["id"] for message in chunks}) == 1
    assert chunks[0]["id"].startswith("lc_run--")
    assert {told["langgraph_node"] for _, told in found} == {"agent"}
    assert "chunk_position" in chunks[0]


def test_the_final_message_has_the_id_of_its_chunks(client, thread):
    parts = client.runs.stream(thread, "chat", input=SAY, stream_mode=["messages-tuple", "values"])
    events = [(part.event, part.data) for part in parts]
    chunk_id = of(events, "messages")[0][0]["id"]

    assert of(events, "values")[-1]["messages"][-1]["id"] == chunk_id


def test_tuples_win_over_partial_messages(client):
    modes = ["messages", "messages-tuple"]
    names = {name for name, _ in stream(client, "chat", input=SAY, stream_mode=modes)}

    assert names == {"metadata", "messages", "end"}


def test_tool_messages_come_as_tuples_with_their_own_type(client):
    found = of(stream(client, "chat", input=CALL, stream_mode="messages-tuple"), "messages")

    assert [message["type"] for message, _ in found].count("tool") == 1
    called = found[0][0]
    assert called["tool_call_chunks"][0]["name"] == "multiply"


# 9.5 Interrupts


@pytest.fixture
def asking(client, thread):
    parts = client.runs.stream(thread, "human", input={"notes": []}, stream_mode=[
        "updates", "values", "tasks"
    ])  # fmt: skip
    return [(part.event, part.data) for part in parts]


@pytest.mark.parametrize("mode", ["updates", "values"])
def test_a_question_is_in_the_stream(asking, mode):
    [question] = of(asking, mode)[-1]["__interrupt__"]

    assert question["value"] == {"approve": "send it? (0)"}
    assert len(question["id"]) == 32
    assert question["response_schema"] is None


def test_a_question_is_in_the_result_of_its_task(asking):
    [question] = of(asking, "tasks")[-1]["interrupts"]

    assert question["value"] == {"approve": "send it? (0)"}


def test_a_breakpoint_is_an_empty_list(client, thread):
    parts = client.runs.stream(
        thread, "steps", input=NOTED, interrupt_before=["write"], stream_mode=["updates", "values"]
    )
    events = [(part.event, part.data) for part in parts]

    assert of(events, "updates")[-1] == {"__interrupt__": []}
    assert client.threads.get_state(thread)["next"] == ["write"]


# 9.6 Subgraphs


@pytest.mark.parametrize("mode", ["values", "updates", "custom", "tasks", "checkpoints", "debug"])
def test_nested_graphs_speak_under_their_namespace(client, thread, mode):
    parts = client.runs.stream(
        thread, "nested", input={"topic": "keels"}, stream_mode=mode, stream_subgraphs=True
    )
    depths = {part.event.count("|") for part in parts if part.event.startswith(mode)}
    expected = {1, 2} if mode == "custom" else {0, 1, 2}

    assert depths == expected


def test_a_namespace_is_node_and_task(client):
    events = stream(
        client, "nested", input={"topic": "keels"}, stream_mode="updates", stream_subgraphs=True
    )
    deepest = max((name for name, _ in events), key=lambda name: name.count("|"))
    _, research, search = deepest.split("|")

    assert research.split(":")[0] == "research"
    assert search.split(":")[0] == "search"


def test_without_subgraphs_only_the_root_speaks(client):
    events = stream(client, "nested", input={"topic": "keels"}, stream_mode="updates")

    assert {name for name, _ in events} == {"metadata", "updates", "end"}


# 9.7 Coming back


def test_ids_of_resumable_runs_are_unique_and_grow(raw, thread):
    body = {"assistant_id": "steps", "stream_resumable": True, "stream_mode": ["values", "tasks"]}
    found = raw.frames("POST", f"/threads/{thread}/runs/stream", {**body, **IN})
    ids = ids_of(found)

    assert len(found) > 8
    assert all(one < next_one for one, next_one in pairwise(ids))


@pytest.mark.parametrize("everything", ["-1", "0", "0-0"])
def test_everything_can_be_had_again(raw, thread, resumable, everything):
    path = f"/threads/{thread}/runs/{resumable}/stream"
    found = raw.frames("GET", path, **{"Last-Event-ID": everything})

    assert [frame.name for frame in found][:2] == ["metadata", "values"]
    assert found[-1].name == "end"


def test_coming_back_goes_on_after_each_event(raw, thread, resumable):
    path = f"/threads/{thread}/runs/{resumable}/stream"
    everything = raw.frames("GET", path, **{"Last-Event-ID": "-1"})
    for index in (0, 2, len(everything) - 2):
        rest = raw.frames("GET", path, **{"Last-Event-ID": everything[index].id})
        assert rest == everything[index + 1 :]


@pytest.mark.parametrize("header", [{}, {"Last-Event-ID": "yesterday"}])
def test_a_run_that_is_over_has_nothing_more_to_say(raw, thread, resumable, header):
    answer = raw("GET", f"/threads/{thread}/runs/{resumable}/stream", **header)

    assert (answer.status_code, answer.content) == (200, b"")


def test_a_run_that_is_not_resumable_is_not_replayed(raw, client, thread):
    run = client.runs.create(thread, "steps", input=NOTED)
    client.runs.join(thread, run["run_id"])
    path = f"/threads/{thread}/runs/{run['run_id']}/stream"

    assert raw("GET", path, **{"Last-Event-ID": "-1"}).content == b""


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("stream_mode=updates", ["updates"]),
        ("stream_mode=values&stream_mode=updates", ["values", "updates"]),
        ('stream_mode=["updates"]', ["updates"]),
        ("stream_mode=custom", []),
    ],
)
def test_a_join_can_choose_modes_and_then_has_no_metadata(raw, thread, resumable, query, names):
    path = f"/threads/{thread}/runs/{resumable}/stream?{query}"
    found = raw.frames("GET", path, **{"Last-Event-ID": "-1"})

    assert {frame.name for frame in found} - {"end"} == set(names)


def test_an_unknown_run_is_an_error_event(raw, thread):
    answer = raw.frames("GET", f"/threads/{thread}/runs/{uuid4()}/stream")

    assert [(frame.name, frame.data) for frame in answer] == [
        ("error", {"error": "HTTPException", "message": "404: Run not found"})
    ]


def test_joining_a_run_under_way_gives_what_comes_from_now_on(client, thread):
    run = client.runs.create(thread, "slow", input={"seconds": 0.5, "steps": 2}, stream_mode=[
        "custom", "values"
    ])  # fmt: skip
    names = [part.event for part in client.runs.join_stream(thread, run["run_id"])]

    assert "metadata" not in names or names[0] == "metadata"
    assert names[-1] == "end"
    assert "values" in names


def test_the_client_comes_back_by_itself_and_misses_nothing(client, thread):
    seen, last = [], None
    parts = client.runs.stream(
        thread, "slow", input={"seconds": 0.1, "steps": 4}, stream_mode="custom",
        stream_resumable=True,
    )  # fmt: skip
    for part in parts:
        seen.append((part.event, part.data))
        last = part.id
        if len(seen) == 3:
            break
    run_id = seen[0][1]["run_id"]
    rest = [
        (part.event, part.data)
        for part in client.runs.join_stream(thread, run_id, last_event_id=last)
    ]
    marks = [mark for event, data in seen + rest if event == "custom" for mark in data.values()]

    assert len(marks) == 8
    assert marks[0::2] == marks[1::2]
    assert len(set(marks)) == 4


@pytest.mark.parametrize(("wish", "status"), [("cancel", "interrupted"), ("continue", "success")])
def test_a_client_who_leaves_takes_the_run_along_if_it_said_so(client, thread, wish, status):
    parts = client.runs.stream(
        thread,
        "slow",
        # A run that is to be cancelled lasts longer than the news of it may take.
        input={"seconds": 5 if wish == "cancel" else 0.3, "steps": 3},
        on_disconnect=wish,
    )
    run_id = next(iter(parts)).data["run_id"]
    parts.close()
    client.runs.join(thread, run_id)

    assert client.runs.get(thread, run_id)["status"] == status


def test_a_joiner_who_leaves_takes_the_run_along_if_it_said_so(raw, client, thread):
    run = client.runs.create(thread, "slow", input={"seconds": 5, "steps": 4})
    path = f"/threads/{thread}/runs/{run['run_id']}/stream?cancel_on_disconnect=1"
    with raw.open("GET", path) as answer:
        next(live_frames(answer))
    client.runs.join(thread, run["run_id"])

    assert client.runs.get(thread, run["run_id"])["status"] == "interrupted"


def test_a_cancelled_run_ends_without_an_error_event(raw, client, thread):
    body = {"assistant_id": "slow", "input": {"seconds": 30}}
    with raw.open("POST", f"/threads/{thread}/runs/stream", body) as answer:
        frames = live_frames(answer)
        run_id = next(frames).data["run_id"]
        client.runs.cancel(thread, run_id)
        names = [frame.name for frame in frames]

    assert "error" not in names
    assert names[-1] == "end"


# 9.8 Streams of threads


def run_beside(client, thread, graph="steps", **asked):
    """Start a run once somebody listens."""
    doing = threading.Thread(
        target=client.runs.wait,
        args=(thread, graph),
        kwargs={"input": NOTED, **asked},
        daemon=True,
    )
    doing.start()
    return doing


def join(doing):
    doing.join(60)
    assert not doing.is_alive()


@pytest.mark.parametrize("parameter", ["stream_mode", "stream_modes"])
def test_lifecycle_has_two_events_a_run(raw, client, thread, parameter):
    with raw.open("GET", f"/threads/{thread}/stream?{parameter}=lifecycle") as answer:
        doing = run_beside(client, thread)
        found = until(answer, "metadata", status="run_done")
        join(doing)

    assert [frame.name for frame in found] == ["metadata", "metadata"]
    assert found[0].data["attempt"] == 1
    assert found[1].data == {"status": "run_done", "run_id": found[0].data["run_id"]}


def test_a_thread_streams_run_after_run_and_every_event_has_an_id(raw, client, thread):
    with raw.open("GET", f"/threads/{thread}/stream") as answer:
        doing = [run_beside(client, thread), run_beside(client, thread)]
        frames = live_frames(answer)
        found = []
        while sum(frame.name == "metadata" for frame in found) < 4:
            found.append(next(frames))
        for one in doing:
            join(one)

    names = [frame.name for frame in found]
    assert names == ["metadata", *["values"] * 4, "metadata"] * 2
    ids = ids_of(found)
    assert all(one < next_one for one, next_one in pairwise(ids))


def test_the_client_joins_a_threads_stream(live, agent_url, client, thread):
    doing = []
    with with_deadline(get_sync_client(url=agent_url, api_key=live.api_key)) as listener:
        # The request leaves with the first `next`; the run starts once its stream is open.
        listener.http.client.event_hooks["response"].append(
            lambda _: doing.append(run_beside(client, thread))
        )
        parts = listener.threads.join_stream(thread, stream_mode="lifecycle")
        found = [next(parts), next(parts)]
        parts.close()
    join(*doing)

    assert found[1].data["status"] == "run_done"


def test_stored_events_of_a_thread_are_replayed_across_its_runs(raw, client, thread):
    for _ in range(2):
        list(client.runs.stream(thread, "steps", input=NOTED, stream_resumable=True))
    path = f"/threads/{thread}/stream"
    with raw.open("GET", path, **{"Last-Event-ID": "0"}) as answer:
        first = until(answer, "metadata", status="run_done")
    with raw.open("GET", path, **{"Last-Event-ID": first[-1].id}) as answer:
        second = until(answer, "metadata", status="run_done")
    with raw.open("GET", path, **{"Last-Event-ID": first[2].id}) as answer:
        rest = until(answer, "metadata", status="run_done")

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
def test_what_a_threads_stream_refuses(raw, thread, query, header):
    answer = raw("GET", f"/threads/{thread}/stream{query}", **header)

    assert answer.status_code == 422


def test_an_unknown_thread_is_not_there(raw):
    assert raw("GET", f"/threads/{uuid4()}/stream").status_code == 404


def test_a_change_of_state_is_told_to_who_asked_for_it(raw, client, thread):
    client.runs.wait(thread, "steps", input=NOTED)
    with raw.open("GET", f"/threads/{thread}/stream?stream_mode=state_update") as answer:
        client.threads.update_state(thread, {"notes": ["mine"]}, as_node="review")
        [told] = until(answer, "state_update")

    assert told.data["state"]["values"]["notes"] == ["asked", *STEPS, "mine"]


def test_the_stream_of_a_deleted_thread_ends(raw, client, thread):
    with raw.open("GET", f"/threads/{thread}/stream") as answer:
        client.threads.delete(thread)
        assert list(live_frames(answer)) == []
