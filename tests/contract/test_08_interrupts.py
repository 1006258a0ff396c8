"""Section 8: interrupts, commands, breakpoints, forks."""

from __future__ import annotations

import httpx
import pytest

UNKNOWN_CHECKPOINT = "1ef4f797-8335-6428-8001-8a1503f9b875"


@pytest.fixture
def interrupted_thread(client, thread_id):
    """A thread with one interrupt."""
    client.runs.wait(thread_id, "human", input={"notes": []})
    return thread_id


@pytest.fixture
def twice_interrupted_thread(client, thread_id):
    """A thread with two interrupts, and their ids in order."""
    client.runs.wait(thread_id, "human", input={"notes": [], "ask": 2})
    return thread_id, [interrupt["id"] for interrupt in read_interrupts(client, thread_id)]


def read_interrupts(client, thread_id):
    interrupts = client.threads.get_state(thread_id)["interrupts"]
    return sorted(interrupts, key=lambda interrupt: interrupt["value"]["approve"])


def checkpoint_sources(client, thread_id):
    """Return source and step of each checkpoint, oldest first."""
    history = client.threads.get_history(thread_id, limit=100)
    return [(s["metadata"]["source"], s["metadata"]["step"]) for s in reversed(history)]


def checkpoint_before(client, thread_id, node):
    """Return the newest checkpoint whose next node is `node`."""
    history = client.threads.get_history(thread_id, limit=100)
    return next(state for state in history if state["next"] == [node])


# Interrupts


def test_wait_returns_the_interrupt(client, thread_id):
    result = client.runs.wait(thread_id, "human", input={"notes": []})

    [interrupt] = result["__interrupt__"]
    assert interrupt["value"] == {"approve": "send it? (0)"}
    assert (len(interrupt["id"]), interrupt["response_schema"]) == (32, None)
    assert result["notes"] == ["draft"]


def test_an_interrupted_run_is_a_success_and_its_thread_is_interrupted(client, thread_id):
    run = client.runs.create(thread_id, "human", input={"notes": []})
    client.runs.join(thread_id, run["run_id"])

    assert client.runs.get(thread_id, run["run_id"])["status"] == "success"
    assert client.threads.get(thread_id)["status"] == "interrupted"


def test_the_thread_lists_the_interrupt_under_its_task(client, interrupted_thread):
    [task] = client.threads.get_state(interrupted_thread)["tasks"]

    thread = client.threads.get(interrupted_thread)

    [interrupt] = task["interrupts"]
    assert thread["interrupts"] == {task["id"]: [interrupt]}
    assert sorted(interrupt) == ["id", "value"]
    assert "__interrupt__" not in thread["values"]


def test_the_state_contains_the_interrupt(client, interrupted_thread):
    state = client.threads.get_state(interrupted_thread)

    assert state["next"] == ["approve"]
    assert state["interrupts"] == state["tasks"][0]["interrupts"]
    assert "__interrupt__" not in state["values"]


def test_the_stream_contains_the_interrupt(client, thread_id):
    events = list(
        client.runs.stream(
            thread_id, "human", input={"notes": []}, stream_mode=["updates", "values", "tasks"]
        )
    )

    updates = [e.data for e in events if e.event == "updates" and "__interrupt__" in e.data]
    values = [e.data for e in events if e.event == "values"]
    tasks = [e.data for e in events if e.event == "tasks" and e.data.get("interrupts")]
    [interrupt] = read_interrupts(client, thread_id)
    assert updates == [{"__interrupt__": [{**interrupt, "response_schema": None}]}]
    assert values[-1]["__interrupt__"] == updates[0]["__interrupt__"]
    assert [question["id"] for question in tasks[0]["interrupts"]] == [interrupt["id"]]


def test_joining_an_interrupted_run_returns_the_interrupt(client, interrupted_thread):
    [run] = client.runs.list(interrupted_thread)

    result = client.runs.join(interrupted_thread, run["run_id"])

    assert result["__interrupt__"] == read_interrupts(client, interrupted_thread)


# Resuming


@pytest.mark.parametrize(
    "value", ["yes", {"decisions": [{"type": "approve"}]}, ["a", 1], 7, False, 0, ""]
)
def test_an_interrupt_is_resumed_with_any_json(client, interrupted_thread, value):
    result = client.runs.wait(interrupted_thread, "human", command={"resume": value})

    assert result["notes"] == ["draft", f"answer 0: {value}", "sent"]
    thread = client.threads.get(interrupted_thread)
    assert (thread["status"], thread["interrupts"]) == ("idle", {})


def test_an_interrupt_is_resumed_by_its_id(client, interrupted_thread):
    [interrupt] = read_interrupts(client, interrupted_thread)

    result = client.runs.wait(
        interrupted_thread, "human", command={"resume": {interrupt["id"]: "by id"}}
    )

    assert result["notes"] == ["draft", "answer 0: by id", "sent"]


def test_a_command_overrides_the_input(client, interrupted_thread):
    result = client.runs.wait(interrupted_thread, "human", input={}, command={"resume": "yes"})

    assert result["notes"] == ["draft", "answer 0: yes", "sent"]


def test_a_command_with_the_current_checkpoint_creates_no_fork(client, interrupted_thread):
    head = client.threads.get_state(interrupted_thread)["checkpoint"]

    result = client.runs.wait(
        interrupted_thread, "human", command={"resume": False}, checkpoint=head
    )

    assert result["notes"] == ["draft", "answer 0: False", "sent"]
    assert "fork" not in [source for source, _ in checkpoint_sources(client, interrupted_thread)]


def test_several_interrupts_are_resumed_by_a_map(client, twice_interrupted_thread):
    thread_id, [first, second] = twice_interrupted_thread

    result = client.runs.wait(thread_id, "human", command={"resume": {first: "a", second: "b"}})

    assert result["notes"] == ["draft", "answer 0: a", "answer 1: b", "sent"]


def test_a_map_resumes_some_of_the_interrupts(client, twice_interrupted_thread):
    thread_id, [first, second] = twice_interrupted_thread

    result = client.runs.wait(thread_id, "human", command={"resume": {first: "a"}})

    assert [interrupt["id"] for interrupt in result["__interrupt__"]] == [second]
    assert client.threads.get(thread_id)["status"] == "interrupted"
    result = client.runs.wait(thread_id, "human", command={"resume": {second: "b"}})
    assert result["notes"] == ["draft", "answer 0: a", "answer 1: b", "sent"]


def test_several_interrupts_without_ids_are_an_error(client, twice_interrupted_thread):
    thread_id, _ = twice_interrupted_thread

    result = client.runs.wait(thread_id, "human", command={"resume": "which?"}, raise_error=False)

    assert result["__error__"]["error"] == "RuntimeError"
    assert len(read_interrupts(client, thread_id)) == 2


def test_resuming_a_finished_thread_changes_nothing(client, interrupted_thread):
    finished = client.runs.wait(interrupted_thread, "human", command={"resume": "yes"})
    before = client.threads.get_state(interrupted_thread)["checkpoint_id"]

    second = client.runs.wait(interrupted_thread, "human", command={"resume": "more"})

    assert second == finished
    assert client.threads.get_state(interrupted_thread)["checkpoint_id"] == before


def test_resuming_a_new_thread_fails(client, thread_id):
    result = client.runs.wait(thread_id, "human", command={"resume": "yes"}, raise_error=False)

    assert set(result) == {"__error__"}
    assert client.threads.get(thread_id)["status"] == "error"


def test_an_interrupt_of_a_nested_subgraph_is_resumed(client, thread_id):
    client.runs.wait(thread_id, "nested", input={"topic": "tea", "ask": True})

    result = client.runs.wait(thread_id, "nested", command={"resume": "no"})

    assert result["report"] == "tea 2 (no) & tea 1 (no)"
    assert client.threads.get(thread_id)["status"] == "idle"


def test_a_functional_graph_is_interrupted_and_resumed(client, thread_id):
    interrupted = client.runs.wait(thread_id, "functional", input={"numbers": [1, 2], "ask": True})

    result = client.runs.wait(thread_id, "functional", command={"resume": 10})

    assert [question["value"] for question in interrupted["__interrupt__"]] == [{"total": 5}]
    assert result == {"total": 15, "before": 0}


# Other commands


def test_an_empty_command_continues_the_run(client, thread_id):
    client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["write"])

    result = client.runs.wait(thread_id, "steps", command={})

    assert result["notes"] == ["plan", "write", "review"]


@pytest.mark.parametrize("update", [{"notes": ["mine"]}, [["notes", ["mine"]]]])
def test_the_update_of_a_command_is_an_object_or_pairs(client, interrupted_thread, update):
    result = client.runs.wait(
        interrupted_thread, "human", command={"resume": "yes", "update": update}
    )

    assert "mine" in result["notes"]
    assert result["notes"][-1] == "sent"


@pytest.mark.parametrize("goto", ["review", ["review"]])
def test_goto_runs_a_node(client, finished_thread, goto):
    result = client.runs.wait(
        finished_thread, "steps", command={"goto": goto, "update": {"notes": ["again"]}}
    )

    assert result["notes"] == ["in", "plan", "write", "review", "again", "review"]


def test_goto_runs_several_nodes(client, thread_id):
    client.runs.wait(thread_id, "twins", input={"names": []})

    result = client.runs.wait(thread_id, "twins", command={"goto": ["left", "right"]})

    assert sorted(result["names"][3:5]) == ["left", "right"]
    assert result["total"] == 22


@pytest.mark.parametrize("wrap", [lambda send: send, lambda send: [send, send]])
def test_goto_sends_an_input_to_a_node(client, thread_id, wrap):
    client.runs.wait(thread_id, "mapper", input={"subjects": []}, raise_error=False)

    sends = wrap({"node": "write_joke", "input": {"subject": "cat"}})
    result = client.runs.wait(thread_id, "mapper", command={"goto": sends})

    assert result["jokes"] == ["a cat walks into a bar"] * (2 if isinstance(sends, list) else 1)


def test_goto_an_unknown_node_is_ignored(client, interrupted_thread):
    client.runs.wait(interrupted_thread, "human", command={"goto": "nowhere"})

    assert client.threads.get(interrupted_thread)["status"] == "interrupted"


def test_goto_the_end_clears_the_interrupt(client, interrupted_thread):
    result = client.runs.wait(
        interrupted_thread, "human", input={}, command={"goto": "__end__", "update": None}
    )

    thread = client.threads.get(interrupted_thread)
    assert result["notes"] == ["draft"]
    assert (thread["status"], thread["interrupts"]) == ("idle", {})
    assert client.threads.get_state(interrupted_thread)["next"] == []


def test_new_input_on_an_interrupted_thread_starts_over(client, interrupted_thread):
    [old] = read_interrupts(client, interrupted_thread)

    result = client.runs.wait(interrupted_thread, "human", input={"notes": ["new"]})

    [new] = result["__interrupt__"]
    assert new["id"] != old["id"]
    assert result["notes"] == ["draft", "new", "draft"]


@pytest.mark.parametrize(
    "command",
    ["yes", {"goto": 5}, {"goto": [{"input": {}}]}, {"goto": {"input": {}}}, {"update": "text"}],
)
def test_an_invalid_command_is_rejected(client, interrupted_thread, command):
    body = {"assistant_id": "human", "command": command}
    response = client.http.client.post(f"/threads/{interrupted_thread}/runs/wait", json=body)

    assert (response.status_code, type(response.json()["detail"])) == (422, str)
    assert len(client.runs.list(interrupted_thread)) == 1


# Breakpoints


def test_a_breakpoint_stops_before_a_node(client, thread_id):
    result = client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["write"])

    thread = client.threads.get(thread_id)
    assert result["notes"] == ["plan"]
    assert "__interrupt__" not in result
    assert (thread["status"], thread["interrupts"]) == ("interrupted", {})
    assert client.threads.get_state(thread_id)["next"] == ["write"]


def test_a_breakpoint_stops_after_a_node(client, thread_id):
    result = client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_after=["write"])

    assert result["notes"] == ["plan", "write"]
    assert client.threads.get_state(thread_id)["next"] == ["review"]


def test_breakpoints_stop_before_every_node(client, thread_id):
    options = {"interrupt_before": "*"}
    first = client.runs.wait(thread_id, "steps", input={"notes": []}, **options)
    note_counts = [len(client.runs.wait(thread_id, "steps", input=None, **options)["notes"])]
    note_counts += [len(client.runs.wait(thread_id, "steps", input=None, **options)["notes"])]
    last = client.runs.wait(thread_id, "steps", input=None, **options)

    assert (first["notes"], note_counts) == ([], [1, 2])
    assert last["notes"] == ["plan", "write", "review"]
    assert client.threads.get(thread_id)["status"] == "idle"


def test_a_run_continues_past_the_same_breakpoint(client, thread_id):
    options = {"interrupt_before": ["write"]}
    client.runs.wait(thread_id, "steps", input={"notes": []}, **options)

    result = client.runs.wait(thread_id, "steps", input=None, **options)

    assert result["notes"] == ["plan", "write", "review"]


def test_a_run_from_the_current_checkpoint_continues_past_the_same_breakpoint(client, thread_id):
    options = {"interrupt_before": ["write"]}
    client.runs.wait(thread_id, "steps", input={"notes": []}, **options)
    head = client.threads.get_state(thread_id)["checkpoint"]

    result = client.runs.wait(thread_id, "steps", input=None, checkpoint=head, **options)

    assert result["notes"] == ["plan", "write", "review"]


def test_a_breakpoint_is_streamed_as_an_empty_list(client, thread_id):
    events = client.runs.stream(
        thread_id,
        "steps",
        input={"notes": []},
        stream_mode=["updates"],
        interrupt_before=["write"],
    )

    updates = [event.data for event in events if event.event == "updates"]
    assert [list(update) for update in updates] == [["plan"], ["__interrupt__"]]
    assert updates[-1] == {"__interrupt__": []}


def test_unknown_breakpoints_are_ignored(client, thread_id):
    result = client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["nowhere"])

    assert result["notes"] == ["plan", "write", "review"]


def test_a_state_is_updated_at_a_breakpoint(client, thread_id):
    client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["write"])

    client.threads.update_state(thread_id, {"notes": ["edited"]})
    result = client.runs.wait(thread_id, "steps", input=None)

    assert result["notes"] == ["plan", "edited", "write", "review"]


# Forks


@pytest.fixture
def finished_thread(client, thread_id):
    client.runs.wait(thread_id, "steps", input={"notes": ["in"]})
    return thread_id


def test_a_checkpoint_without_input_replays_from_there(client, finished_thread):
    planned = checkpoint_before(client, finished_thread, "write")

    result = client.runs.wait(
        finished_thread, "steps", input=None, checkpoint_id=planned["checkpoint_id"]
    )

    assert result["notes"] == ["in", "plan", "write", "review"]
    assert [source for source, _ in checkpoint_sources(client, finished_thread)[5:]] == [
        "fork",
        "loop",
        "loop",
    ]


def test_a_replay_becomes_the_current_state(client, finished_thread):
    planned = checkpoint_before(client, finished_thread, "write")
    before = client.threads.get_state(finished_thread)["checkpoint_id"]

    client.runs.wait(finished_thread, "steps", input=None, checkpoint=planned["checkpoint"])

    state = client.threads.get_state(finished_thread)
    assert state["checkpoint_id"] > before
    assert client.threads.get(finished_thread)["values"] == state["values"]


def test_a_checkpoint_with_input_continues_from_there(client, finished_thread):
    planned = checkpoint_before(client, finished_thread, "write")

    result = client.runs.wait(
        finished_thread, "steps", input={"notes": ["other"]}, checkpoint_id=planned["checkpoint_id"]
    )

    assert result["notes"] == ["in", "plan", "other", "plan", "write", "review"]


def test_older_branches_are_kept_in_the_history(client, finished_thread):
    before = {state["checkpoint_id"] for state in client.threads.get_history(finished_thread)}
    planned = checkpoint_before(client, finished_thread, "write")

    client.runs.wait(
        finished_thread, "steps", input={"notes": []}, checkpoint=planned["checkpoint"]
    )

    after = {
        state["checkpoint_id"] for state in client.threads.get_history(finished_thread, limit=100)
    }
    assert before < after


def test_a_branch_has_its_source_checkpoint_as_parent(client, finished_thread):
    planned = checkpoint_before(client, finished_thread, "write")

    client.runs.wait(
        finished_thread, "steps", input={"notes": []}, checkpoint=planned["checkpoint"]
    )

    history = client.threads.get_history(finished_thread, limit=100)
    branch = [s for s in history if s["parent_checkpoint_id"] == planned["checkpoint_id"]]
    assert len(branch) == 2


def test_input_with_the_current_checkpoint_creates_no_fork(client, finished_thread):
    head = client.threads.get_state(finished_thread)["checkpoint"]
    head = {name: value for name, value in head.items() if name != "thread_id"}

    result = client.runs.wait(finished_thread, "steps", input={"notes": ["more"]}, checkpoint=head)

    assert result["notes"][4:] == ["more", "plan", "write", "review"]
    assert [source for source, _ in checkpoint_sources(client, finished_thread)] == [
        "input",
        *["loop"] * 4,
    ] * 2


def test_a_fork_before_an_interrupt_is_interrupted_again(client, interrupted_thread):
    client.runs.wait(interrupted_thread, "human", command={"resume": "yes"})
    drafted = checkpoint_before(client, interrupted_thread, "approve")

    second = client.runs.wait(
        interrupted_thread, "human", input=None, checkpoint_id=drafted["checkpoint_id"]
    )
    result = client.runs.wait(interrupted_thread, "human", command={"resume": "no"})

    assert [interrupt["value"] for interrupt in second["__interrupt__"]] == [
        {"approve": "send it? (0)"}
    ]
    assert result["notes"] == ["draft", "answer 0: no", "sent"]


def test_a_run_from_an_unknown_checkpoint_is_not_found(client, finished_thread):
    state = client.threads.get_state(finished_thread)

    for graph_input in (None, {"notes": ["new"]}):
        with pytest.raises(httpx.HTTPStatusError) as caught:
            client.runs.wait(
                finished_thread, "steps", input=graph_input, checkpoint_id=UNKNOWN_CHECKPOINT
            )
        refusal = caught.value.response
        assert (refusal.status_code, refusal.json()["code"]) == (404, "checkpoint_not_found")

    assert client.threads.get_state(finished_thread) == state


@pytest.mark.parametrize("field", ["checkpoint_id", "checkpoint"])
def test_a_malformed_checkpoint_is_422(client, finished_thread, field):
    value = "latest" if field == "checkpoint_id" else {"checkpoint_id": "latest"}
    body = {"assistant_id": "steps", "input": None, field: value}

    response = client.http.client.post(f"/threads/{finished_thread}/runs/wait", json=body)

    assert response.status_code == 422
