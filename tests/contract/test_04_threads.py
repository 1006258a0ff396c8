"""Section 4: threads."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

import pytest

from tests.contract.sdk_calls import rejection, run_graph
from tests.installation import wait_until


@pytest.fixture
def tag():
    """Metadata that only the threads of this test have."""
    return {"test": str(uuid4())}


def ids(threads):
    return [thread["thread_id"] for thread in threads]


# Creating


def test_a_new_thread_has_the_defaults(client):
    thread = client.threads.create(metadata={"a": {"b": [1]}})

    assert UUID(thread["thread_id"]).version == 7
    assert (thread["status"], thread["values"], thread["config"]) == ("idle", None, {})
    assert thread["metadata"] == {"a": {"b": [1]}}
    assert thread["created_at"] == thread["updated_at"] == thread["state_updated_at"]
    assert datetime.fromisoformat(thread["created_at"]).utcoffset().total_seconds() == 0
    assert "interrupts" not in thread


def test_a_thread_is_created_with_the_given_id(client):
    thread_id = str(uuid4())

    assert client.threads.create(thread_id=thread_id)["thread_id"] == thread_id
    assert client.threads.get(thread_id)["thread_id"] == thread_id


def test_a_taken_id_is_409(client):
    thread_id = client.threads.create()["thread_id"]

    status, detail = rejection(client.threads.create, thread_id=thread_id)

    assert (status, detail) == (409, f"Thread with ID {thread_id} already exists")


def test_do_nothing_returns_the_existing_thread_unchanged(client):
    first = client.threads.create(metadata={"n": 1})

    second = client.threads.create(
        thread_id=first["thread_id"], metadata={"n": 2}, if_exists="do_nothing"
    )

    assert second == first


@pytest.mark.parametrize(
    "body",
    [
        {"thread_id": "mine"},
        {"metadata": "text"},
        {"if_exists": "replace"},
        {"ttl": 5},
        {"ttl": {"ttl": -1}},
        {"ttl": {"ttl": 5, "strategy": "forget"}},
        {"supersteps": "many"},
    ],
)
def test_an_invalid_body_is_422_with_a_detail_string(raw, body):
    response = raw.post("/threads", json=body)

    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)


def test_a_body_that_is_not_json_is_422(raw):
    response = raw.post("/threads", content=b"{", headers={"content-type": "application/json"})

    assert (response.status_code, response.json()["detail"]) == (
        422,
        "Invalid JSON in request body",
    )


def test_metadata_with_invalid_characters_is_stored_or_rejected(raw):
    body = b'{"metadata": {"nul": "a\\u0000b", "lone": "\\ud83d"}}'

    response = raw.post("/threads", content=body, headers={"content-type": "application/json"})

    assert response.status_code in {200, 422}


# Supersteps


SUPERSTEPS = [
    {"updates": [{"values": {"notes": ["start"]}, "as_node": "__input__"}]},
    {"updates": [{"values": {"notes": ["start"]}, "as_node": "__start__"}]},
    {"updates": [{"values": {"notes": ["plan"], "count": 1}, "as_node": "plan"}]},
    {"updates": [{"values": {"notes": ["write"]}, "as_node": "write"}]},
]


def test_supersteps_create_the_state_and_history_of_a_thread(client):
    thread = client.threads.create(graph_id="steps", supersteps=SUPERSTEPS)

    state = client.threads.get_state(thread["thread_id"])
    assert state["values"] == {"notes": ["start", "plan", "write"], "count": 1}
    assert (state["next"], thread["status"]) == (["review"], "interrupted")
    assert thread["values"] == state["values"]
    history = client.threads.get_history(thread["thread_id"])
    assert [past["metadata"]["source"] for past in history] == [
        "update",
        "update",
        "update",
        "input",
    ]


def test_a_thread_with_supersteps_is_continued_by_a_run(client):
    thread_id = client.threads.create(graph_id="steps", supersteps=SUPERSTEPS)["thread_id"]

    response = client.runs.wait(thread_id, "steps", input=None)

    assert response["notes"] == ["start", "plan", "write", "review"]


def test_supersteps_may_hold_several_nodes_and_commands(client):
    supersteps = [
        {"updates": [{"values": {"names": ["in"]}, "as_node": "__start__"}]},
        {
            "updates": [
                {"values": {"names": ["left"], "total": 1}, "as_node": "left"},
                {"values": None, "as_node": "right", "command": {"update": {"names": ["right"]}}},
            ]
        },
    ]

    thread = client.threads.create(graph_id="twins", supersteps=supersteps)

    assert thread["values"] == {"names": ["in", "left", "right"], "total": 1}
    assert client.threads.get_state(thread["thread_id"])["next"] == ["join"]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"values": {"notes": []}, "as_node": "missing"}, "Node missing does not exist"),
        ({"values": {"notes": 5}, "as_node": "plan"}, "TypeError: "),
    ],
)
def test_a_failing_superstep_creates_no_thread(client, step, reason):
    thread_id = str(uuid4())

    status, detail = rejection(
        client.threads.create,
        thread_id=thread_id,
        graph_id="steps",
        supersteps=[*SUPERSTEPS, {"updates": [step]}],
    )

    assert status == 400
    assert detail.startswith(reason)
    assert rejection(client.threads.get, thread_id)[0] == 404
    assert client.threads.create(thread_id=thread_id)["values"] is None


def test_supersteps_without_a_known_graph_are_rejected(client):
    assert rejection(client.threads.create, supersteps=SUPERSTEPS)[0] == 400
    assert 400 <= rejection(client.threads.create, graph_id="none", supersteps=SUPERSTEPS)[0] < 500


def test_supersteps_for_a_taken_id_are_rejected_or_ignored(client):
    thread_id = client.threads.create()["thread_id"]
    fields = {"thread_id": thread_id, "graph_id": "steps", "supersteps": SUPERSTEPS}

    assert rejection(client.threads.create, **fields)[0] == 409
    assert client.threads.create(**fields, if_exists="do_nothing")["values"] is None


# Reading, changing, deleting


def test_an_unknown_thread_is_404_and_a_malformed_id_422(client):
    unknown = str(uuid4())

    assert rejection(client.threads.get, unknown) == (404, f"Thread with ID {unknown} not found")
    assert rejection(client.threads.get, "mine") == (422, "Invalid thread ID: must be a UUID")
    assert rejection(client.threads.update, unknown, metadata={})[0] == 404
    assert rejection(client.threads.delete, unknown)[0] == 404


def test_metadata_is_merged(client):
    thread_id = client.threads.create(metadata={"a": 1, "b": 1})["thread_id"]

    changed = client.threads.update(thread_id, metadata={"b": 2, "c": 3})

    assert changed["metadata"] == {"a": 1, "b": 2, "c": 3}
    assert client.threads.get(thread_id)["updated_at"] > changed["created_at"]


def test_a_minimal_response_has_no_body(client, raw):
    thread_id = client.threads.create()["thread_id"]

    response = raw.patch(
        f"/threads/{thread_id}", json={"metadata": {"a": 1}}, headers={"Prefer": "return=minimal"}
    )

    assert (response.status_code, response.content) == (204, b"")
    assert client.threads.get(thread_id)["metadata"] == {"a": 1}


def test_metadata_is_updated_while_a_run_is_active(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "slow", input={"seconds": 100})

    changed = client.threads.update(thread_id, metadata={"a": 1})

    assert (changed["status"], changed["metadata"]["a"]) == ("busy", 1)
    client.runs.cancel(thread_id, run["run_id"], wait=True)
    assert client.threads.get(thread_id)["metadata"]["a"] == 1


def test_a_run_adds_its_graph_and_assistant_to_the_metadata(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "steps", input={"notes": []})

    metadata = client.threads.get(thread_id)["metadata"]

    assert metadata == {"graph_id": "steps", "assistant_id": run["assistant_id"]}
    client.runs.join(thread_id, run["run_id"])


def test_a_thread_is_idle_with_values_after_a_run(client):
    thread_id = run_graph(client)

    thread = client.threads.get(thread_id)

    assert (thread["status"], thread["interrupts"], thread["error"]) == ("idle", {}, None)
    assert thread["values"]["notes"] == ["start", "plan", "write", "review"]
    assert thread["config"] == {"configurable": {}}


def test_the_error_of_a_failed_run_is_cleared_by_the_next_success(client):
    thread_id = client.threads.create()["thread_id"]
    client.runs.wait(thread_id, "faults", input={"kind": "value"}, raise_error=False)

    failed = client.threads.get(thread_id)
    client.runs.wait(thread_id, "faults", input={"kind": ""})
    good = client.threads.get(thread_id)

    assert failed["status"] == "error"
    assert failed["error"] == {"error": "ValueError", "message": "no such city"}
    assert (good["status"], good["error"]) == ("idle", None)


def test_a_deleted_thread_is_not_found(client):
    thread_id = run_graph(client)

    client.threads.delete(thread_id)

    assert rejection(client.threads.get, thread_id)[0] == 404
    assert rejection(client.threads.delete, thread_id)[0] == 404
    assert rejection(client.threads.get_state, thread_id)[0] == 404
    assert rejection(client.runs.create, thread_id, "steps", input={})[0] == 404


def test_the_id_of_a_deleted_thread_can_be_reused(client):
    thread_id = run_graph(client)

    client.threads.delete(thread_id)
    second = client.threads.create(thread_id=thread_id)

    assert (second["values"], client.threads.get_history(thread_id)) == (None, [])
    assert client.runs.list(thread_id) == []


def test_deleting_a_busy_thread_stops_its_runs_at_once(client):
    thread_id = client.threads.create()["thread_id"]
    running = client.runs.create(thread_id, "slow", input={"seconds": 600})
    waiting = client.runs.create(thread_id, "slow", input={"seconds": 600})
    streams = [client.runs.join_stream(thread_id, r["run_id"]) for r in (running, waiting)]
    wait_until(
        lambda: client.runs.get(thread_id, running["run_id"])["status"] == "running", "the start"
    )

    client.threads.delete(thread_id)

    assert rejection(client.threads.get, thread_id)[0] == 404
    for run in (running, waiting):
        assert rejection(client.runs.get, thread_id, run["run_id"])[0] == 404
    client.threads.create(thread_id=thread_id)
    response = client.runs.wait(thread_id, "steps", input={"notes": []})
    assert response["notes"] == ["plan", "write", "review"]
    for stream in streams:
        stream.close()


def test_streams_of_a_deleted_run_end(client):
    thread_id = client.threads.create()["thread_id"]
    events = client.runs.stream(thread_id, "slow", input={"seconds": 600})
    assert next(events).event == "metadata"

    client.threads.delete(thread_id)

    assert [event.event for event in events if event.event != "end"] in ([], ["values"])


# Times to live


def test_a_ttl_is_included_on_request(client):
    plain = client.threads.create()
    thread = client.threads.create(ttl={"ttl": 60, "strategy": "keep_latest"})

    result = client.threads.get(thread["thread_id"], include=["ttl"])

    assert "ttl" not in client.threads.get(thread["thread_id"])
    assert client.threads.get(plain["thread_id"], include=["ttl"])["ttl"] is None
    assert (result["ttl"]["strategy"], result["ttl"]["ttl_minutes"]) == ("keep_latest", 60)
    expires = datetime.fromisoformat(result["ttl"]["expires_at"])
    assert (expires - datetime.fromisoformat(thread["created_at"])).total_seconds() == 3600


def test_a_ttl_number_uses_the_delete_strategy(client):
    thread_id = client.threads.create(ttl=1.5)["thread_id"]

    ttl = client.threads.get(thread_id, include=["ttl"])["ttl"]

    assert (ttl["strategy"], ttl["ttl_minutes"]) == ("delete", 1.5)


def test_a_ttl_can_be_changed(client):
    thread_id = client.threads.create(ttl=5)["thread_id"]

    client.threads.update(thread_id, metadata={}, ttl={"ttl": 10, "strategy": "keep_latest"})

    ttl = client.threads.get(thread_id, include=["ttl"])["ttl"]
    assert (ttl["strategy"], ttl["ttl_minutes"]) == ("keep_latest", 10)


def test_activity_refreshes_a_ttl(client):
    thread_id = client.threads.create(ttl=5)["thread_id"]
    before = client.threads.get(thread_id, include=["ttl"])["ttl"]["expires_at"]

    client.runs.wait(thread_id, "steps", input={"notes": []})

    after = client.threads.get(thread_id, include=["ttl"])["ttl"]["expires_at"]
    assert datetime.fromisoformat(after) > datetime.fromisoformat(before)


# Searching


@pytest.fixture
def five_threads(client, tag):
    """Five threads, oldest first."""
    return [client.threads.create(metadata={**tag, "n": n, "deep": {"x": n}}) for n in range(5)]


def test_search_lists_the_newest_change_first(client, tag, five_threads):
    result = client.threads.search(metadata=tag)

    assert ids(result) == ids(reversed(five_threads))


def test_search_finds_nested_metadata(client, tag, five_threads):
    result = client.threads.search(metadata={**tag, "deep": {"x": 3}})

    assert ids(result) == [five_threads[3]["thread_id"]]


def test_search_by_ids(client, tag, five_threads):
    wanted_ids = ids(five_threads[1:3])

    result = client.threads.search(
        ids=[*wanted_ids, str(uuid4())], sort_by="created_at", sort_order="asc"
    )

    assert ids(result) == wanted_ids
    assert client.threads.search(metadata={**tag, "n": 0}, ids=wanted_ids) == []


@pytest.mark.parametrize("sort_by", ["thread_id", "created_at", "updated_at", "state_updated_at"])
def test_search_is_sorted(client, tag, five_threads, sort_by):
    up = client.threads.search(metadata=tag, sort_by=sort_by, sort_order="asc")
    down = client.threads.search(metadata=tag, sort_by=sort_by, sort_order="desc")

    assert ids(up) == ids(five_threads)
    assert ids(down) == ids(reversed(five_threads))


def test_search_is_paged(client, raw, tag, five_threads):
    body = {"metadata": tag, "limit": 2, "sort_by": "created_at", "sort_order": "asc"}

    pages = [raw.post("/threads/search", json={**body, "offset": offset}) for offset in (0, 2, 4)]

    assert [ids(page.json()) for page in pages] == [
        ids(five_threads[:2]),
        ids(five_threads[2:4]),
        ids(five_threads[4:]),
    ]
    assert [page.headers["X-Pagination-Total"] for page in pages] == ["3", "5", "5"]
    assert [page.headers.get("X-Pagination-Next") for page in pages] == ["2", "4", None]


def test_search_by_values_skips_threads_without_values(client, tag, five_threads):
    thread_id = run_graph(client, metadata=tag)

    result = client.threads.search(metadata=tag, values={"count": 3})

    assert ids(result) == [thread_id]
    assert client.threads.search(metadata=tag, values={"count": 4}) == []


def test_search_by_status(client, tag):
    idle = run_graph(client, metadata=tag)
    interrupted = run_graph(client, "human", metadata=tag)
    failed = client.threads.create(metadata=tag)["thread_id"]
    client.runs.wait(failed, "faults", input={"kind": "value"}, raise_error=False)

    result = {
        status: ids(client.threads.search(metadata=tag, status=status))
        for status in ("idle", "interrupted", "error", "busy")
    }

    assert result == {"idle": [idle], "interrupted": [interrupted], "error": [failed], "busy": []}


@pytest.mark.parametrize(
    "body",
    [
        {"status": "asleep"},
        {"limit": 0},
        {"limit": 1001},
        {"offset": -1},
        {"sort_by": "colour"},
        {"select": ["colour"]},
        {"ids": ["mine"]},
        {"extract": {"a": "state.notes"}},
        {"extract": {"a": "values.notes[x]"}},
        {"extract": {str(n): "values" for n in range(11)}},
    ],
)
def test_an_invalid_search_is_422(raw, body):
    response = raw.post("/threads/search", json=body)

    assert (response.status_code, type(response.json()["detail"])) == (422, str)


def test_search_returns_the_selected_fields(client, tag, five_threads):
    [result] = client.threads.search(
        metadata={**tag, "n": 1}, select=["thread_id", "metadata", "values"]
    )

    assert result == {
        "thread_id": five_threads[1]["thread_id"],
        "metadata": {**tag, "n": 1, "deep": {"x": 1}},
        "values": None,
    }


def test_search_extracts_the_values_at_paths(client, tag):
    thread_id = run_graph(client, metadata={**tag, "deep": {"list": [{"x": 1}, {"x": 2}]}})

    [result] = client.threads.search(
        metadata=tag,
        select=["thread_id"],
        extract={
            "first": "values.notes[0]",
            "last": "values.notes[-1]",
            "x": "metadata.deep.list[-1].x",
            "none": "values.nothing.here",
            "config": "config.configurable",
            "interrupts": "interrupts",
        },
    )

    assert result == {
        "thread_id": thread_id,
        "extracted": {
            "first": "start",
            "last": "review",
            "x": 2,
            "none": None,
            "config": {},
            "interrupts": {},
        },
    }


def test_threads_are_counted(client, tag, five_threads):
    run_graph(client, metadata=tag)

    assert client.threads.count(metadata=tag) == 6
    assert client.threads.count(metadata={**tag, "n": 2}) == 1
    assert client.threads.count(metadata=tag, values={"count": 3}) == 1
    assert client.threads.count(metadata=tag, status="busy") == 0


# Copying


def test_a_copy_has_values_history_and_no_runs(client):
    thread_id = run_graph(client, metadata={"a": 1})

    copy = client.threads.copy(thread_id) or {}

    source = client.threads.get(thread_id)
    assert copy["thread_id"] != thread_id
    for name in ("values", "metadata", "status", "interrupts", "config"):
        assert copy[name] == source[name]
    source_ids = [s["checkpoint_id"] for s in client.threads.get_history(thread_id)]
    copied_history = client.threads.get_history(copy["thread_id"])
    assert [state["checkpoint_id"] for state in copied_history] == source_ids
    assert {state["checkpoint"]["thread_id"] for state in copied_history} == {copy["thread_id"]}
    assert client.runs.list(copy["thread_id"]) == []


def test_the_state_of_a_copy_names_the_copy(client):
    thread_id = run_graph(client)

    copy_id = client.threads.copy(thread_id)["thread_id"]

    state, source = client.threads.get_state(copy_id), client.threads.get_state(thread_id)
    assert state["values"] == source["values"]
    assert state["checkpoint"] == {**source["checkpoint"], "thread_id": copy_id}
    assert state["metadata"]["thread_id"] == copy_id


def test_a_run_on_a_copy_does_not_change_the_source(client):
    thread_id = run_graph(client)

    copy_id = client.threads.copy(thread_id)["thread_id"]
    response = client.runs.wait(copy_id, "steps", input={"notes": ["again"]})

    assert response["notes"][4:] == ["again", "plan", "write", "review"]
    assert len(client.threads.get_state(thread_id)["values"]["notes"]) == 4


def test_a_copy_of_an_interrupted_thread_can_be_resumed(client):
    thread_id = run_graph(client, "human")

    copy = client.threads.copy(thread_id)
    response = client.runs.wait(copy["thread_id"], "human", command={"resume": "yes"})

    assert copy["status"] == "interrupted"
    assert response["notes"] == ["start", "draft", "answer 0: yes", "sent"]
    assert client.threads.get(thread_id)["status"] == "interrupted"


def test_a_copy_of_a_thread_that_never_ran(client):
    copy = client.threads.copy(client.threads.create(metadata={"a": 1})["thread_id"])

    assert (copy["metadata"], copy["values"]) == ({"a": 1}, None)
    assert client.threads.get_state(copy["thread_id"])["checkpoint"] is None


def test_a_missing_thread_cannot_be_copied(client):
    assert rejection(client.threads.copy, str(uuid4()))[0] == 404


# Pruning, sizes


def test_pruning_deletes_threads_and_skips_missing_ones(client):
    first, second = run_graph(client), client.threads.create()["thread_id"]

    response = client.threads.prune([first, second, str(uuid4())])

    assert response == {"pruned_count": 2}
    assert rejection(client.threads.get, first)[0] == 404
    assert client.threads.prune([first]) == {"pruned_count": 0}


def test_pruning_to_the_latest_keeps_the_state(client):
    thread_id = run_graph(client)
    before, size = client.threads.get_state(thread_id), storage_bytes(client, thread_id)

    response = client.threads.prune([thread_id], strategy="keep_latest")

    assert response == {"pruned_count": 1}
    assert len(client.threads.get_history(thread_id)) == 1
    assert client.threads.get_state(thread_id) == before
    assert storage_bytes(client, thread_id) < size
    response = client.runs.wait(thread_id, "steps", input={"notes": ["again"]})
    assert response["notes"][3:] == ["review", "again", "plan", "write", "review"]


def test_pruning_to_the_latest_keeps_an_interrupt_of_a_subgraph(client):
    thread_id = run_graph(client, "nested", input={"topic": "tea", "ask": True})

    client.threads.prune([thread_id], strategy="keep_latest")

    response = client.runs.wait(thread_id, "nested", command={"resume": "yes"})
    assert response["report"] == "tea 2 (yes) & tea 1 (yes)"
    assert client.threads.get(thread_id)["status"] == "idle"


def test_pruning_skips_busy_threads(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "slow", input={"seconds": 100})

    response = client.threads.prune([thread_id], strategy="keep_latest")

    assert response == {"pruned_count": 0}
    client.runs.cancel(thread_id, run["run_id"])


@pytest.mark.parametrize("body", [{}, {"thread_ids": ["x"]}, {"thread_ids": [], "strategy": "x"}])
def test_an_invalid_pruning_is_422(raw, body):
    assert raw.post("/threads/prune", json=body).status_code == 422


def storage_bytes(client, thread_id):
    return client.http.client.get(f"/threads/{thread_id}/storage").json()["total_bytes"]


def test_storage_is_reported_by_channel(client, raw):
    thread_id = run_graph(client, "twins", input={"names": ["n" * 1000]})

    storage = raw.get(f"/threads/{thread_id}/storage").json()

    assert storage["thread_id"] == thread_id
    assert storage["checkpoints"]["count"] == len(client.threads.get_history(thread_id))
    names = storage["channel_values"]["by_channel"]["names"]
    assert names["versions"] == 3
    assert 3_000 < names["bytes"] < 3_500
    parts = ("checkpoints", "channel_values", "pending_writes")
    assert storage["total_bytes"] == sum(storage[part]["bytes"] for part in parts)


def test_storage_of_a_new_thread_is_empty_and_of_an_unknown_one_404(client, raw):
    thread_id = client.threads.create()["thread_id"]

    storage = raw.get(f"/threads/{thread_id}/storage").json()

    assert (storage["total_bytes"], storage["channel_values"]["by_channel"]) == (0, {})
    assert raw.get(f"/threads/{uuid4()}/storage").status_code == 404


def test_storage_does_not_grow_with_pruning_to_the_latest(client):
    thread_id = client.threads.create()["thread_id"]
    sizes = []

    for _ in range(5):
        client.runs.wait(thread_id, "nested", input={"topic": "tea", "log": []})
        client.threads.update_state(thread_id, {"log": []})
        client.threads.prune([thread_id], strategy="keep_latest")
        storage = client.http.client.get(f"/threads/{thread_id}/storage").json()
        sizes.append((storage["checkpoints"]["count"], storage["channel_values"]["count"]))

    assert len(set(sizes)) == 1
