"""Section 8: interrupts, commands, breakpoints, forks."""

from __future__ import annotations

import pytest

UNKNOWN_CHECKPOINT = "1ef4f797-8335-6428-8001-8a1503f9b875"


@pytest.fixture
def thread_id(client):
    return client.threads.create()["thread_id"]


@pytest.fixture
def asking(client, thread_id):
    """A thread with one question."""
    client.runs.wait(thread_id, "human", input={"notes": []})
    return thread_id


@pytest.fixture
def asking_twice(client, thread_id):
    """A thread with two questions, and their ids in order."""
    client.runs.wait(thread_id, "human", input={"notes": [], "ask": 2})
    return thread_id, [asked["id"] for asked in questions_of(client, thread_id)]


def questions_of(client, thread_id):
    found = client.threads.get_state(thread_id)["interrupts"]
    return sorted(found, key=lambda asked: asked["value"]["approve"])


def sources(client, thread_id):
    """Source and step of each checkpoint, oldest first."""
    history = client.threads.get_history(thread_id, limit=100)
    return [(s["metadata"]["source"], s["metadata"]["step"]) for s in reversed(history)]


def checkpoint_before(client, thread_id, node):
    """The newest checkpoint at which this node was next."""
    history = client.threads.get_history(thread_id, limit=100)
    return next(state for state in history if state["next"] == [node])


# Interrupts


def test_a_question_in_the_answer_of_wait(client, thread_id):
    answer = client.runs.wait(thread_id, "human", input={"notes": []})

    [asked] = answer["__interrupt__"]
    assert asked["value"] == {"approve": "send it? (0)"}
    assert (len(asked["id"]), asked["response_schema"]) == (32, None)
    assert answer["notes"] == ["draft"]


def test_a_run_that_asks_has_succeeded_and_its_thread_is_interrupted(client, thread_id):
    run = client.runs.create(thread_id, "human", input={"notes": []})
    client.runs.join(thread_id, run["run_id"])

    assert client.runs.get(thread_id, run["run_id"])["status"] == "success"
    assert client.threads.get(thread_id)["status"] == "interrupted"


def test_a_question_in_the_thread_is_under_its_task(client, asking):
    [task] = client.threads.get_state(asking)["tasks"]

    thread = client.threads.get(asking)

    [asked] = task["interrupts"]
    assert thread["interrupts"] == {task["id"]: [asked]}
    assert sorted(asked) == ["id", "value"]
    assert "__interrupt__" not in thread["values"]


def test_a_question_in_the_state(client, asking):
    state = client.threads.get_state(asking)

    assert state["next"] == ["approve"]
    assert state["interrupts"] == state["tasks"][0]["interrupts"]
    assert "__interrupt__" not in state["values"]


def test_a_question_in_the_stream(client, thread_id):
    events = list(
        client.runs.stream(
            thread_id, "human", input={"notes": []}, stream_mode=["updates", "values", "tasks"]
        )
    )

    updates = [e.data for e in events if e.event == "updates" and "__interrupt__" in e.data]
    values = [e.data for e in events if e.event == "values"]
    tasks = [e.data for e in events if e.event == "tasks" and e.data.get("interrupts")]
    [asked] = questions_of(client, thread_id)
    assert updates == [{"__interrupt__": [{**asked, "response_schema": None}]}]
    assert values[-1]["__interrupt__"] == updates[0]["__interrupt__"]
    assert [question["id"] for question in tasks[0]["interrupts"]] == [asked["id"]]


def test_join_of_a_run_that_asked(client, asking):
    [run] = client.runs.list(asking)

    answer = client.runs.join(asking, run["run_id"])

    assert answer["__interrupt__"] == questions_of(client, asking)


# Resuming


@pytest.mark.parametrize(
    "value", ["yes", {"decisions": [{"type": "approve"}]}, ["a", 1], 7, False, 0, ""]
)
def test_a_question_is_answered_with_any_json(client, asking, value):
    answer = client.runs.wait(asking, "human", command={"resume": value})

    assert answer["notes"] == ["draft", f"answer 0: {value}", "sent"]
    thread = client.threads.get(asking)
    assert (thread["status"], thread["interrupts"]) == ("idle", {})


def test_a_question_is_answered_by_its_id(client, asking):
    [asked] = questions_of(client, asking)

    answer = client.runs.wait(asking, "human", command={"resume": {asked["id"]: "by id"}})

    assert answer["notes"] == ["draft", "answer 0: by id", "sent"]


def test_a_command_wins_over_input(client, asking):
    answer = client.runs.wait(asking, "human", input={}, command={"resume": "yes"})

    assert answer["notes"] == ["draft", "answer 0: yes", "sent"]


def test_the_head_beside_a_command_is_no_fork(client, asking):
    head = client.threads.get_state(asking)["checkpoint"]

    answer = client.runs.wait(asking, "human", command={"resume": False}, checkpoint=head)

    assert answer["notes"] == ["draft", "answer 0: False", "sent"]
    assert "fork" not in [source for source, _ in sources(client, asking)]


def test_several_questions_are_answered_by_a_map(client, asking_twice):
    thread_id, [first, second] = asking_twice

    answer = client.runs.wait(thread_id, "human", command={"resume": {first: "a", second: "b"}})

    assert answer["notes"] == ["draft", "answer 0: a", "answer 1: b", "sent"]


def test_a_map_may_answer_some(client, asking_twice):
    thread_id, [first, second] = asking_twice

    answer = client.runs.wait(thread_id, "human", command={"resume": {first: "a"}})

    assert [asked["id"] for asked in answer["__interrupt__"]] == [second]
    assert client.threads.get(thread_id)["status"] == "interrupted"
    answer = client.runs.wait(thread_id, "human", command={"resume": {second: "b"}})
    assert answer["notes"] == ["draft", "answer 0: a", "answer 1: b", "sent"]


def test_several_questions_and_no_ids_are_an_error(client, asking_twice):
    thread_id, _ = asking_twice

    answer = client.runs.wait(thread_id, "human", command={"resume": "which?"}, raise_error=False)

    assert answer["__error__"]["error"] == "RuntimeError"
    assert len(questions_of(client, thread_id)) == 2


def test_resuming_a_finished_thread_changes_nothing(client, asking):
    done = client.runs.wait(asking, "human", command={"resume": "yes"})
    before = client.threads.get_state(asking)["checkpoint_id"]

    again = client.runs.wait(asking, "human", command={"resume": "more"})

    assert again == done
    assert client.threads.get_state(asking)["checkpoint_id"] == before


def test_resuming_a_fresh_thread_fails(client, thread_id):
    answer = client.runs.wait(thread_id, "human", command={"resume": "yes"}, raise_error=False)

    assert set(answer) == {"__error__"}
    assert client.threads.get(thread_id)["status"] == "error"


def test_a_question_inside_a_graph_inside_is_answered(client, thread_id):
    client.runs.wait(thread_id, "nested", input={"topic": "tea", "ask": True})

    answer = client.runs.wait(thread_id, "nested", command={"resume": "no"})

    assert answer["report"] == "tea 2 (no) & tea 1 (no)"
    assert client.threads.get(thread_id)["status"] == "idle"


def test_the_functional_interface_asks_too(client, thread_id):
    asked = client.runs.wait(thread_id, "functional", input={"numbers": [1, 2], "ask": True})

    answer = client.runs.wait(thread_id, "functional", command={"resume": 10})

    assert [question["value"] for question in asked["__interrupt__"]] == [{"total": 5}]
    assert answer == {"total": 15, "before": 0}


# Other commands


def test_an_empty_command_goes_on(client, thread_id):
    client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["write"])

    answer = client.runs.wait(thread_id, "steps", command={})

    assert answer["notes"] == ["plan", "write", "review"]


@pytest.mark.parametrize("update", [{"notes": ["mine"]}, [["notes", ["mine"]]]])
def test_an_update_is_an_object_or_pairs(client, asking, update):
    answer = client.runs.wait(asking, "human", command={"resume": "yes", "update": update})

    assert "mine" in answer["notes"]
    assert answer["notes"][-1] == "sent"


@pytest.mark.parametrize("goto", ["review", ["review"]])
def test_going_to_a_node(client, ran, goto):
    answer = client.runs.wait(ran, "steps", command={"goto": goto, "update": {"notes": ["again"]}})

    assert answer["notes"] == ["in", "plan", "write", "review", "again", "review"]


def test_going_to_several_nodes(client, thread_id):
    client.runs.wait(thread_id, "twins", input={"names": []})

    answer = client.runs.wait(thread_id, "twins", command={"goto": ["left", "right"]})

    assert sorted(answer["names"][3:5]) == ["left", "right"]
    assert answer["total"] == 22


@pytest.mark.parametrize("wrap", [lambda send: send, lambda send: [send, send]])
def test_sending_to_a_node(client, thread_id, wrap):
    client.runs.wait(thread_id, "mapper", input={"subjects": []}, raise_error=False)

    sends = wrap({"node": "tell", "input": {"subject": "cat"}})
    answer = client.runs.wait(thread_id, "mapper", command={"goto": sends})

    assert answer["jokes"] == ["a cat walks into a bar"] * (2 if isinstance(sends, list) else 1)


def test_an_unknown_node_is_ignored(client, asking):
    client.runs.wait(asking, "human", command={"goto": "nowhere"})

    assert client.threads.get(asking)["status"] == "interrupted"


def test_going_to_the_end_closes_the_thread(client, asking):
    answer = client.runs.wait(
        asking, "human", input={}, command={"goto": "__end__", "update": None}
    )

    thread = client.threads.get(asking)
    assert answer["notes"] == ["draft"]
    assert (thread["status"], thread["interrupts"]) == ("idle", {})
    assert client.threads.get_state(asking)["next"] == []


def test_new_input_on_a_thread_that_asks_starts_over(client, asking):
    [old] = questions_of(client, asking)

    answer = client.runs.wait(asking, "human", input={"notes": ["new"]})

    [new] = answer["__interrupt__"]
    assert new["id"] != old["id"]
    assert answer["notes"] == ["draft", "new", "draft"]


@pytest.mark.parametrize(
    "command",
    ["yes", {"goto": 5}, {"goto": [{"input": {}}]}, {"goto": {"input": {}}}, {"update": "text"}],
)
def test_a_command_that_is_none_is_refused(client, asking, command):
    body = {"assistant_id": "human", "command": command}
    answer = client.http.client.post(f"/threads/{asking}/runs/wait", json=body)

    assert (answer.status_code, type(answer.json()["detail"])) == (422, str)
    assert len(client.runs.list(asking)) == 1


# Breakpoints


def test_a_breakpoint_before_a_node(client, thread_id):
    answer = client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["write"])

    thread = client.threads.get(thread_id)
    assert answer["notes"] == ["plan"]
    assert "__interrupt__" not in answer
    assert (thread["status"], thread["interrupts"]) == ("interrupted", {})
    assert client.threads.get_state(thread_id)["next"] == ["write"]


def test_a_breakpoint_after_a_node(client, thread_id):
    answer = client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_after=["write"])

    assert answer["notes"] == ["plan", "write"]
    assert client.threads.get_state(thread_id)["next"] == ["review"]


def test_breakpoints_everywhere(client, thread_id):
    asked = {"interrupt_before": "*"}
    first = client.runs.wait(thread_id, "steps", input={"notes": []}, **asked)
    seen = [len(client.runs.wait(thread_id, "steps", input=None, **asked)["notes"])]
    seen += [len(client.runs.wait(thread_id, "steps", input=None, **asked)["notes"])]
    last = client.runs.wait(thread_id, "steps", input=None, **asked)

    assert (first["notes"], seen) == ([], [1, 2])
    assert last["notes"] == ["plan", "write", "review"]
    assert client.threads.get(thread_id)["status"] == "idle"


def test_passing_a_breakpoint_that_is_named_again(client, thread_id):
    asked = {"interrupt_before": ["write"]}
    client.runs.wait(thread_id, "steps", input={"notes": []}, **asked)

    answer = client.runs.wait(thread_id, "steps", input=None, **asked)

    assert answer["notes"] == ["plan", "write", "review"]


def test_passing_a_breakpoint_with_the_head_named(client, thread_id):
    asked = {"interrupt_before": ["write"]}
    client.runs.wait(thread_id, "steps", input={"notes": []}, **asked)
    head = client.threads.get_state(thread_id)["checkpoint"]

    answer = client.runs.wait(thread_id, "steps", input=None, checkpoint=head, **asked)

    assert answer["notes"] == ["plan", "write", "review"]


def test_a_breakpoint_in_the_stream_is_an_empty_list(client, thread_id):
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
    answer = client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["nowhere"])

    assert answer["notes"] == ["plan", "write", "review"]


def test_a_state_may_be_edited_at_a_breakpoint(client, thread_id):
    client.runs.wait(thread_id, "steps", input={"notes": []}, interrupt_before=["write"])

    client.threads.update_state(thread_id, {"notes": ["edited"]})
    answer = client.runs.wait(thread_id, "steps", input=None)

    assert answer["notes"] == ["plan", "edited", "write", "review"]


# Forks


@pytest.fixture
def ran(client, thread_id):
    client.runs.wait(thread_id, "steps", input={"notes": ["in"]})
    return thread_id


def test_a_checkpoint_without_input_replays_from_there(client, ran):
    planned = checkpoint_before(client, ran, "write")

    answer = client.runs.wait(ran, "steps", input=None, checkpoint_id=planned["checkpoint_id"])

    assert answer["notes"] == ["in", "plan", "write", "review"]
    assert [source for source, _ in sources(client, ran)[5:]] == ["fork", "loop", "loop"]


def test_a_replay_is_the_head(client, ran):
    planned = checkpoint_before(client, ran, "write")
    before = client.threads.get_state(ran)["checkpoint_id"]

    client.runs.wait(ran, "steps", input=None, checkpoint=planned["checkpoint"])

    state = client.threads.get_state(ran)
    assert state["checkpoint_id"] > before
    assert client.threads.get(ran)["values"] == state["values"]


def test_a_checkpoint_with_input_applies_it_there(client, ran):
    planned = checkpoint_before(client, ran, "write")

    answer = client.runs.wait(
        ran, "steps", input={"notes": ["other"]}, checkpoint_id=planned["checkpoint_id"]
    )

    assert answer["notes"] == ["in", "plan", "other", "plan", "write", "review"]


def test_older_branches_stay_in_the_history(client, ran):
    before = {state["checkpoint_id"] for state in client.threads.get_history(ran)}
    planned = checkpoint_before(client, ran, "write")

    client.runs.wait(ran, "steps", input={"notes": []}, checkpoint=planned["checkpoint"])

    after = {state["checkpoint_id"] for state in client.threads.get_history(ran, limit=100)}
    assert before < after


def test_a_branch_hangs_on_the_checkpoint_it_was_made_from(client, ran):
    planned = checkpoint_before(client, ran, "write")

    client.runs.wait(ran, "steps", input={"notes": []}, checkpoint=planned["checkpoint"])

    history = client.threads.get_history(ran, limit=100)
    branch = [s for s in history if s["parent_checkpoint_id"] == planned["checkpoint_id"]]
    assert len(branch) == 2


def test_the_head_with_every_message_makes_no_fork(client, ran):
    head = client.threads.get_state(ran)["checkpoint"]
    head = {name: value for name, value in head.items() if name != "thread_id"}

    answer = client.runs.wait(ran, "steps", input={"notes": ["more"]}, checkpoint=head)

    assert answer["notes"][4:] == ["more", "plan", "write", "review"]
    assert [source for source, _ in sources(client, ran)] == ["input", *["loop"] * 4] * 2


def test_a_fork_before_a_question_asks_again(client, asking):
    client.runs.wait(asking, "human", command={"resume": "yes"})
    drafted = checkpoint_before(client, asking, "approve")

    again = client.runs.wait(asking, "human", input=None, checkpoint_id=drafted["checkpoint_id"])
    answer = client.runs.wait(asking, "human", command={"resume": "no"})

    assert [asked["value"] for asked in again["__interrupt__"]] == [{"approve": "send it? (0)"}]
    assert answer["notes"] == ["draft", "answer 0: no", "sent"]


def test_an_unknown_checkpoint_is_an_empty_thread(client, ran):
    empty = client.runs.wait(
        ran, "steps", input=None, checkpoint_id=UNKNOWN_CHECKPOINT, raise_error=False
    )
    answer = client.runs.wait(
        ran, "steps", input={"notes": ["new"]}, checkpoint_id=UNKNOWN_CHECKPOINT
    )

    assert empty["__error__"]["error"] == "EmptyInputError"
    assert answer["notes"] == ["new", "plan", "write", "review"]


@pytest.mark.parametrize("field", ["checkpoint_id", "checkpoint"])
def test_a_malformed_checkpoint_is_422(client, ran, field):
    value = "latest" if field == "checkpoint_id" else {"checkpoint_id": "latest"}
    body = {"assistant_id": "steps", "input": None, field: value}

    answer = client.http.client.post(f"/threads/{ran}/runs/wait", json=body)

    assert answer.status_code == 422
