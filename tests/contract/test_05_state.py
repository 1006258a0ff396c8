"""Section 5: the state of a thread and its history."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from tests.compatibility.chosen_clients import requires_client
from tests.contract.sdk_calls import rejection, run_graph
from tests.installation import wait_until

SELECTION = requires_client("langgraph-sdk", ">0.4.3", "selection of a state's fields")
UNKNOWN_CHECKPOINT = "1ef4f797-8335-6428-8001-8a1503f9b875"


def steps_of(history):
    return [(state["metadata"]["source"], state["metadata"]["step"]) for state in history]


# Reading


def test_a_thread_that_never_ran_has_an_empty_state(client):
    thread_id = client.threads.create()["thread_id"]

    assert client.threads.get_state(thread_id) == {
        "values": {},
        "next": [],
        "tasks": [],
        "metadata": None,
        "created_at": None,
        "checkpoint": None,
        "parent_checkpoint": None,
        "interrupts": [],
    }
    assert client.threads.get_history(thread_id) == []


def test_the_state_after_a_run_has_values_and_checkpoint(client):
    thread_id = run_graph(client)

    state = client.threads.get_state(thread_id)

    assert state["values"]["notes"] == ["start", "plan", "write", "review"]
    assert (state["next"], state["tasks"], state["interrupts"]) == ([], [], [])
    checkpoint = state["checkpoint"]
    assert (checkpoint["thread_id"], checkpoint["checkpoint_ns"]) == (thread_id, "")
    assert UUID(checkpoint["checkpoint_id"]).version == 6
    assert state["checkpoint_id"] == checkpoint["checkpoint_id"]
    assert state["parent_checkpoint_id"] == state["parent_checkpoint"]["checkpoint_id"]


def test_the_metadata_of_a_state_names_its_run(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "steps", input={"notes": []}, metadata={"topic": "tea"})
    client.runs.join(thread_id, run["run_id"])

    metadata = client.threads.get_state(thread_id)["metadata"]

    expected = {
        "source": "loop",
        "step": 3,
        "parents": {},
        "run_id": run["run_id"],
        "thread_id": thread_id,
        "graph_id": "steps",
        "assistant_id": run["assistant_id"],
        "run_attempt": 1,
        "topic": "tea",
    }
    assert {name: metadata.get(name) for name in expected} == expected


def test_an_unknown_thread_has_no_state(client):
    unknown = str(uuid4())

    assert rejection(client.threads.get_state, unknown)[0] == 404
    assert rejection(client.threads.get_history, unknown)[0] == 404
    assert rejection(client.threads.update_state, unknown, {})[0] == 404


def test_a_malformed_thread_id_is_422(raw):
    responses = [raw.get(f"/threads/mine/{resource}") for resource in ("state", "history")]

    assert [response.status_code for response in responses] == [422, 422]
    assert responses[0].json()["detail"] == "Invalid thread ID: must be a UUID"


def test_the_state_is_read_at_a_checkpoint_id(client):
    thread_id = run_graph(client)
    history = client.threads.get_history(thread_id)
    planned = next(state for state in history if state["next"] == ["write"])

    state = client.threads.get_state(thread_id, checkpoint_id=planned["checkpoint_id"])

    assert state["values"].get("notes") == ["start", "plan"]
    assert state["next"] == ["write"]
    assert state == planned


def test_the_state_is_read_at_a_checkpoint_object(client):
    thread_id = run_graph(client)
    planned = client.threads.get_history(thread_id)[2]

    state = client.threads.get_state(thread_id, checkpoint=planned["checkpoint"])

    assert state["checkpoint"] == planned["checkpoint"]
    assert state["values"] == planned["values"]


@pytest.mark.parametrize(
    ("checkpoint_id", "error"),
    [(UNKNOWN_CHECKPOINT, NotFoundError), ("not-a-uuid", UnprocessableEntityError)],
)
def test_the_state_at_an_unknown_checkpoint_is_refused(client, checkpoint_id, error):
    for thread_id in (run_graph(client), client.threads.create()["thread_id"]):
        with pytest.raises(error, match="checkpoint_id: "):
            client.threads.get_state(thread_id, checkpoint_id=checkpoint_id)


def test_posting_without_a_checkpoint_is_rejected(client, raw):
    thread_id = run_graph(client)

    response = raw.post(f"/threads/{thread_id}/state/checkpoint", json={"subgraphs": False})

    assert response.status_code == 422


@SELECTION
def test_a_state_has_the_selected_fields(client, raw):
    thread_id = run_graph(client)

    repeated = client.threads.get_state(thread_id, select=["next", "values.count"])
    as_json = raw.get(f"/threads/{thread_id}/state", params={"select": '["metadata"]'}).json()
    posted = client.threads.get_state(
        thread_id, checkpoint={"checkpoint_ns": ""}, select=["values"]
    )

    assert repeated == {"next": [], "values": {"count": 3}}
    assert list(as_json) == ["metadata"]
    assert posted["values"]["count"] == 3
    assert list(posted) == ["values"]


@SELECTION
def test_an_unknown_field_cannot_be_selected(client):
    thread_id = run_graph(client)

    status, detail = rejection(client.threads.get_state, thread_id, select=["colour"])

    assert (status, detail) == (422, "select: unknown field 'colour'")


# Subgraphs


@pytest.fixture(scope="module")
def interrupted_inside(client):
    """A thread whose innermost subgraph is interrupted."""
    return run_graph(client, "nested", input={"topic": "tea", "ask": True})


def test_a_subgraph_task_names_its_checkpoint_namespace(client, interrupted_inside):
    [task] = client.threads.get_state(interrupted_inside)["tasks"]

    assert (task["name"], task["state"]) == ("research", None)
    assert task["checkpoint"] == {
        "thread_id": interrupted_inside,
        "checkpoint_ns": f"research:{task['id']}",
    }


def test_the_states_of_subgraphs_are_nested_on_request(client, interrupted_inside):
    [task] = client.threads.get_state(interrupted_inside, subgraphs=True)["tasks"]

    research = task["state"]
    [inner] = research["tasks"]
    search = inner["state"]
    assert task["checkpoint"] is None
    assert research["values"]["outline"] == ["tea"]
    assert (research["next"], search["next"]) == (["search"], ["fetch"])
    assert research["checkpoint"]["checkpoint_ns"] == f"research:{task['id']}"
    assert search["checkpoint"]["checkpoint_ns"] == f"research:{task['id']}|search:{inner['id']}"


def test_an_interrupt_of_a_subgraph_has_one_id_on_every_level(client, interrupted_inside):
    state = client.threads.get_state(interrupted_inside, subgraphs=True)

    levels = [state]
    while levels[-1]["tasks"] and levels[-1]["tasks"][0]["state"]:
        levels.append(levels[-1]["tasks"][0]["state"])
    assert len(levels) == 3
    assert len({level["interrupts"][0]["id"] for level in levels}) == 1
    assert levels[0]["interrupts"][0]["value"] == {"may I fetch": "tea"}


def test_the_state_of_a_namespace_is_read(client, interrupted_inside):
    [task] = client.threads.get_state(interrupted_inside)["tasks"]

    state = client.threads.get_state(interrupted_inside, checkpoint=task["checkpoint"])

    assert state["values"]["outline"] == ["tea"]
    assert state["next"] == ["search"]


def test_the_history_of_a_namespace_is_listed(client, interrupted_inside):
    [task] = client.threads.get_state(interrupted_inside)["tasks"]

    history = client.threads.get_history(interrupted_inside, checkpoint=task["checkpoint"])

    assert [state["next"] for state in history] == [["search"], ["outline"], ["__start__"]]
    assert {state["checkpoint"]["checkpoint_ns"] for state in history} == {
        task["checkpoint"]["checkpoint_ns"]
    }


def test_a_namespace_can_be_updated(client):
    thread_id = run_graph(client, "nested", input={"topic": "tea", "ask": True})
    [task] = client.threads.get_state(thread_id)["tasks"]

    update = client.threads.update_state(
        thread_id, {"outline": ["coffee"]}, checkpoint=task["checkpoint"]
    )

    assert update["checkpoint"]["checkpoint_ns"] == task["checkpoint"]["checkpoint_ns"]
    inner = client.threads.get_state(thread_id, checkpoint=task["checkpoint"])
    assert inner["values"]["outline"] == ["coffee"]
    assert client.threads.get(thread_id)["status"] == "interrupted"


# History


def test_history_is_newest_first_with_steps_from_minus_one(client):
    thread_id = run_graph(client)

    history = client.threads.get_history(thread_id)

    assert steps_of(history) == [
        ("loop", 3),
        ("loop", 2),
        ("loop", 1),
        ("loop", 0),
        ("input", -1),
    ]
    nexts = [state["next"] for state in history]
    assert nexts == [[], ["review"], ["write"], ["plan"], ["__start__"]]
    assert history[-1]["parent_checkpoint"] is None


def test_each_state_of_a_history_names_its_parent(client):
    history = client.threads.get_history(run_graph(client))

    parents = [state["parent_checkpoint_id"] for state in history[:-1]]
    assert parents == [state["checkpoint_id"] for state in history[1:]]


def test_past_tasks_carry_their_results(client):
    history = client.threads.get_history(run_graph(client))

    [task] = history[1]["tasks"]
    assert (task["name"], task["error"], task["interrupts"]) == ("review", None, [])
    assert task["result"]["notes"] == ["review"]


def test_the_default_limit_is_one(client, raw):
    thread_id = run_graph(client)

    read = raw.get(f"/threads/{thread_id}/history")
    posted = raw.post(f"/threads/{thread_id}/history", json={})

    assert len(read.json()) == len(posted.json()) == 1
    assert read.json() == posted.json()


@pytest.mark.parametrize("limit", [0, 1001, -1, "many"])
def test_a_limit_out_of_range_is_422(client, raw, limit):
    thread_id = client.threads.create()["thread_id"]

    responses = [
        raw.get(f"/threads/{thread_id}/history", params={"limit": limit}),
        raw.post(f"/threads/{thread_id}/history", json={"limit": limit}),
    ]

    assert [response.status_code for response in responses] == [422, 422]


def test_before_is_accepted_in_all_forms(client, raw):
    thread_id = run_graph(client)
    history = client.threads.get_history(thread_id)
    checkpoint, older = history[2]["checkpoint"], history[3:]

    forms = [
        checkpoint,
        {"checkpoint_id": checkpoint["checkpoint_id"]},
        {"configurable": {"checkpoint_id": checkpoint["checkpoint_id"]}},
        checkpoint["checkpoint_id"],
    ]
    for before in forms:
        body = {"before": before, "limit": 10}
        assert raw.post(f"/threads/{thread_id}/history", json=body).json() == older
    query = {"before": checkpoint["checkpoint_id"], "limit": 10}
    assert raw.get(f"/threads/{thread_id}/history", params=query).json() == older
    assert client.threads.get_history(thread_id, before=checkpoint) == older


def test_an_invalid_before_is_422(client):
    thread_id = run_graph(client)

    assert rejection(client.threads.get_history, thread_id, before="yesterday")[0] == 422


@pytest.mark.parametrize(
    ("metadata", "steps"),
    [({"source": "input"}, [-1]), ({"step": 1}, [1]), ({"source": "update"}, [])],
)
def test_history_is_filtered_by_metadata(client, metadata, steps):
    thread_id = run_graph(client)

    history = client.threads.get_history(thread_id, metadata=metadata)

    assert [state["metadata"]["step"] for state in history] == steps


def test_the_state_changes_during_a_run(client):
    thread_id = client.threads.create()["thread_id"]
    run_input = {"notes": ["start"], "sleep": 100, "slow": "write"}
    run = client.runs.create(thread_id, "pace", input=run_input)

    wait_until(
        lambda: client.threads.get_state(thread_id)["values"].get("notes") == ["start", "plan"],
        "the first step",
    )

    assert client.runs.get(thread_id, run["run_id"])["status"] == "running"
    client.threads.delete(thread_id)


# Updating


def test_an_update_applies_the_reducers(client):
    thread_id = run_graph(client)

    client.threads.update_state(thread_id, {"notes": ["later"], "count": 7})

    values = client.threads.get_state(thread_id)["values"]
    assert values["notes"] == ["start", "plan", "write", "review", "later"]
    assert values["count"] == 7


def test_an_update_returns_its_checkpoint(client):
    thread_id = run_graph(client)
    before = client.threads.get_state(thread_id)

    update = client.threads.update_state(thread_id, {"count": 7})

    state = client.threads.get_state(thread_id)
    assert update["checkpoint"] == update["configurable"] == state["checkpoint"]
    assert update["checkpoint_id"] == state["checkpoint_id"]
    assert state["parent_checkpoint"] == before["checkpoint"]
    assert (state["metadata"]["source"], state["metadata"]["step"]) == ("update", 4)


def test_an_update_changes_the_thread_at_once(client):
    thread_id = run_graph(client)
    before = client.threads.get(thread_id)

    client.threads.update_state(thread_id, {"count": 7})

    thread = client.threads.get(thread_id)
    assert thread["values"] == client.threads.get_state(thread_id)["values"]
    assert (thread["values"]["count"], thread["status"]) == (7, "idle")
    assert thread["state_updated_at"] > before["state_updated_at"]


def test_an_update_as_a_node_sets_the_next_node(client):
    thread_id = run_graph(client)

    client.threads.update_state(thread_id, {"notes": ["as plan"]}, as_node="plan")

    assert client.threads.get_state(thread_id)["next"] == ["write"]
    assert client.threads.get(thread_id)["status"] == "interrupted"
    client.runs.wait(thread_id, "steps", input=None)
    assert client.threads.get_state(thread_id)["values"]["notes"][-3:] == [
        "as plan",
        "write",
        "review",
    ]
    assert client.threads.get(thread_id)["status"] == "idle"


def test_an_update_of_an_older_checkpoint_creates_a_fork_that_becomes_the_head(client):
    thread_id = run_graph(client)
    planned = client.threads.get_history(thread_id)[2]

    client.threads.update_state(
        thread_id, {"notes": ["fork"]}, checkpoint_id=planned["checkpoint_id"]
    )

    state = client.threads.get_state(thread_id)
    assert state["values"]["notes"] == ["start", "plan", "fork"]
    assert (state["next"], state["parent_checkpoint"]) == (["write"], planned["checkpoint"])
    assert client.threads.get(thread_id)["values"] == state["values"]
    assert len(client.threads.get_history(thread_id)) == 6


def test_a_run_continues_from_a_fork(client):
    thread_id = run_graph(client)
    planned = client.threads.get_history(thread_id)[2]

    client.threads.update_state(thread_id, {"notes": ["fork"]}, checkpoint=planned["checkpoint"])
    response = client.runs.wait(thread_id, "steps", input=None)

    assert response["notes"] == ["start", "plan", "fork", "write", "review"]


def test_an_update_without_values_creates_only_a_checkpoint(client):
    thread_id = run_graph(client)
    before = client.threads.get_state(thread_id)

    client.threads.update_state(thread_id, None)

    after = client.threads.get_state(thread_id)
    assert (after["values"], after["next"]) == (before["values"], before["next"])
    assert after["checkpoint_id"] != before["checkpoint_id"]


def test_an_update_as_the_end_clears_the_interrupt(client):
    thread_id = run_graph(client, "human", input={"notes": []})
    assert client.threads.get(thread_id)["status"] == "interrupted"

    client.threads.update_state(thread_id, None, as_node="__end__")

    thread = client.threads.get(thread_id)
    assert (thread["status"], thread["interrupts"]) == ("idle", {})
    assert client.threads.get_state(thread_id)["next"] == []


def test_an_update_as_the_interrupted_node_clears_the_interrupt(client):
    thread_id = run_graph(client, "human", input={"notes": []})

    client.threads.update_state(thread_id, {"notes": ["answered by hand"]}, as_node="approve")

    state = client.threads.get_state(thread_id)
    assert (state["next"], state["interrupts"]) == (["send"], [])
    assert client.threads.get(thread_id)["interrupts"] == {}
    assert client.runs.wait(thread_id, "human", input=None)["notes"] == [
        "draft",
        "answered by hand",
        "sent",
    ]


def test_an_update_uses_the_graph_of_the_thread_metadata(client):
    thread_id = client.threads.create(graph_id="steps")["thread_id"]

    client.threads.update_state(thread_id, {"notes": ["first"]}, as_node="plan")

    state = client.threads.get_state(thread_id)
    assert (state["values"], state["next"]) == ({"notes": ["first"]}, ["write"])


def test_an_update_of_a_thread_without_a_graph_is_rejected(client):
    thread_id = client.threads.create()["thread_id"]

    status, _ = rejection(client.threads.update_state, thread_id, {"notes": []})

    assert status == 400
    assert client.threads.get_state(thread_id)["checkpoint"] is None


def test_an_update_as_an_unknown_node_is_rejected(client):
    thread_id = run_graph(client)
    before = client.threads.get_state(thread_id)

    status, detail = rejection(client.threads.update_state, thread_id, {}, as_node="missing")

    assert (status, detail) == (400, "Node missing does not exist")
    assert client.threads.get_state(thread_id) == before
    assert len(client.threads.get_history(thread_id)) == 5


def test_a_failing_reducer_is_a_client_error(client):
    thread_id = run_graph(client, "twins", input={"names": []})

    status, detail = rejection(
        client.threads.update_state, thread_id, {"total": "many"}, as_node="join"
    )

    assert status == 400
    assert detail.startswith("TypeError: ")
    assert client.threads.get_state(thread_id)["values"]["total"] == 11


def test_an_ambiguous_update_is_rejected(client):
    thread_id = client.threads.create()["thread_id"]
    client.runs.wait(thread_id, "twins", input={"names": []}, interrupt_before=["join"])

    status, detail = rejection(client.threads.update_state, thread_id, {"names": ["who?"]})

    assert (status, detail) == (400, "Ambiguous update, specify as_node")


@pytest.mark.parametrize("values", [["a", "b"], [1], [{"notes": []}], "text", 5])
def test_values_of_a_wrong_type_are_rejected(client, values):
    thread_id = run_graph(client)

    assert rejection(client.threads.update_state, thread_id, values)[0] in {400, 422}


def test_an_update_during_a_run_is_409(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "slow", input={"seconds": 100})

    status, detail = rejection(client.threads.update_state, thread_id, {"done": 5})

    assert status == 409
    assert run["run_id"] not in detail
    client.runs.cancel(thread_id, run["run_id"], wait=True)
    assert client.threads.get_state(thread_id)["values"].get("done", 0) == 0


def test_an_update_before_a_delayed_run_is_409(client):
    thread_id = run_graph(client)
    run = client.runs.create(thread_id, "steps", input={"notes": []}, after_seconds=60)

    assert rejection(client.threads.update_state, thread_id, {"count": 5})[0] == 409
    client.runs.cancel(thread_id, run["run_id"])


def test_a_run_starts_from_the_checkpoint_of_an_update(client):
    thread_id = run_graph(client)
    update = client.threads.update_state(thread_id, {"notes": ["x"]}, as_node="plan")
    client.threads.update_state(thread_id, {"notes": ["y"]}, as_node="plan")

    response = client.runs.wait(
        thread_id, "steps", input=None, checkpoint_id=update["checkpoint"]["checkpoint_id"]
    )

    assert response["notes"][-3:] == ["x", "write", "review"]


def test_updates_of_a_thread_are_applied_in_order(client):
    thread_id = run_graph(client)

    for number in range(5):
        client.threads.update_state(thread_id, {"notes": [str(number)]})

    values = client.threads.get_state(thread_id)["values"]
    assert values["notes"][-5:] == ["0", "1", "2", "3", "4"]
    history = client.threads.get_history(thread_id, metadata={"source": "update"})
    assert [state["metadata"]["step"] for state in history] == [8, 7, 6, 5, 4]


def test_concurrent_updates_are_all_applied(client):
    thread_id = run_graph(client)

    def append_note(number: int) -> None:
        client.threads.update_state(thread_id, {"notes": [str(number)]}, as_node="review")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(append_note, range(6)))

    notes = client.threads.get_state(thread_id)["values"]["notes"]
    assert sorted(notes[4:]) == [str(number) for number in range(6)]
    history = client.threads.get_history(thread_id, limit=100)
    parents = [state["parent_checkpoint_id"] for state in history[:-1]]
    assert parents == [state["checkpoint_id"] for state in history[1:]]


def test_updates_and_runs_exclude_each_other(client):
    thread_id = run_graph(client)

    def update_or_run(number: int) -> int:
        if number % 2:
            client.runs.wait(thread_id, "steps", input={"notes": ["run"]})
            return 0
        try:
            client.threads.update_state(thread_id, {"notes": ["edit"]}, as_node="review")
        except ConflictError:
            return 0
        return 1

    with ThreadPoolExecutor(6) as pool:
        edits = sum(pool.map(update_or_run, range(6)))

    notes = client.threads.get_state(thread_id)["values"]["notes"]
    assert (notes.count("edit"), notes.count("run")) == (edits, 3)
    assert client.threads.get(thread_id)["values"]["notes"] == notes


def test_patching_a_state_merges_metadata(client, raw):
    thread_id = client.threads.create(metadata={"a": 1})["thread_id"]

    response = raw.patch(f"/threads/{thread_id}/state", json={"metadata": {"b": 2}})

    assert (response.status_code, response.content) == (204, b"")
    assert client.threads.get(thread_id)["metadata"] == {"a": 1, "b": 2}
