"""Section 4: threads."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import UUID, uuid4

import pytest
from langgraph_sdk.errors import APIStatusError

from tests.installation import wait_until


@pytest.fixture
def raw(client):
    """The HTTP client underneath."""
    return client.http.client


@pytest.fixture
def tag():
    """Metadata that only this test's threads have."""
    return {"test": str(uuid4())}


def refused(call, *arguments, **named):
    """The status and the text with which the server refuses."""
    with pytest.raises(APIStatusError) as caught:
        call(*arguments, **named)
    return caught.value.response.status_code, caught.value.response.json()["detail"]


def ran(client, graph="steps", metadata=None, **run):
    """A thread on which the graph ran once."""
    thread_id = client.threads.create(metadata=metadata)["thread_id"]
    client.runs.wait(thread_id, graph, **{"input": {"notes": ["asked"]}, **run})
    return thread_id


def ids(threads):
    return [thread["thread_id"] for thread in threads]


# Making


def test_a_new_thread(client):
    thread = client.threads.create(metadata={"a": {"b": [1]}})

    assert UUID(thread["thread_id"]).version == 7
    assert (thread["status"], thread["values"], thread["config"]) == ("idle", None, {})
    assert thread["metadata"] == {"a": {"b": [1]}}
    assert thread["created_at"] == thread["updated_at"] == thread["state_updated_at"]
    assert datetime.fromisoformat(thread["created_at"]).utcoffset().total_seconds() == 0
    assert "interrupts" not in thread


def test_a_given_id_is_kept(client):
    thread_id = str(uuid4())

    assert client.threads.create(thread_id=thread_id)["thread_id"] == thread_id
    assert client.threads.get(thread_id)["thread_id"] == thread_id


def test_an_id_that_is_taken_is_409(client):
    thread_id = client.threads.create()["thread_id"]

    status, detail = refused(client.threads.create, thread_id=thread_id)

    assert (status, detail) == (409, f"Thread with ID {thread_id} already exists")


def test_do_nothing_gives_the_old_thread_unchanged(client):
    first = client.threads.create(metadata={"n": 1})

    again = client.threads.create(
        thread_id=first["thread_id"], metadata={"n": 2}, if_exists="do_nothing"
    )

    assert again == first


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
def test_a_body_that_breaks_the_schema_is_422_with_one_sentence(raw, body):
    answer = raw.post("/threads", json=body)

    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)


def test_no_json_is_422(raw):
    answer = raw.post("/threads", content=b"{", headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["detail"]) == (422, "Invalid JSON in request body")


def test_metadata_with_odd_text_is_kept_or_mended(raw):
    body = b'{"metadata": {"nul": "a\\u0000b", "lone": "\\ud83d"}}'

    answer = raw.post("/threads", content=body, headers={"content-type": "application/json"})

    assert answer.status_code in {200, 422}


# Supersteps


PAST = [
    {"updates": [{"values": {"notes": ["asked"]}, "as_node": "__input__"}]},
    {"updates": [{"values": {"notes": ["asked"]}, "as_node": "__start__"}]},
    {"updates": [{"values": {"notes": ["plan"], "count": 1}, "as_node": "plan"}]},
    {"updates": [{"values": {"notes": ["write"]}, "as_node": "write"}]},
]


def test_supersteps_give_a_thread_a_past(client):
    thread = client.threads.create(graph_id="steps", supersteps=PAST)

    state = client.threads.get_state(thread["thread_id"])
    assert state["values"] == {"notes": ["asked", "plan", "write"], "count": 1}
    assert (state["next"], thread["status"]) == (["review"], "interrupted")
    assert thread["values"] == state["values"]
    history = client.threads.get_history(thread["thread_id"])
    assert [past["metadata"]["source"] for past in history] == [
        "update",
        "update",
        "update",
        "input",
    ]


def test_a_thread_with_a_past_goes_on(client):
    thread_id = client.threads.create(graph_id="steps", supersteps=PAST)["thread_id"]

    answer = client.runs.wait(thread_id, "steps", input=None)

    assert answer["notes"] == ["asked", "plan", "write", "review"]


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
        ({"values": {"notes": []}, "as_node": "nobody"}, "Node nobody does not exist"),
        ({"values": {"notes": 5}, "as_node": "plan"}, "TypeError: "),
    ],
)
def test_a_superstep_that_fails_leaves_nothing_behind(client, step, reason):
    thread_id = str(uuid4())

    status, detail = refused(
        client.threads.create,
        thread_id=thread_id,
        graph_id="steps",
        supersteps=[*PAST, {"updates": [step]}],
    )

    assert status == 400
    assert detail.startswith(reason)
    assert refused(client.threads.get, thread_id)[0] == 404
    assert client.threads.create(thread_id=thread_id)["values"] is None


def test_supersteps_need_a_graph(client):
    assert refused(client.threads.create, supersteps=PAST)[0] == 400
    assert 400 <= refused(client.threads.create, graph_id="none", supersteps=PAST)[0] < 500


def test_supersteps_of_an_id_that_is_taken(client):
    thread_id = client.threads.create()["thread_id"]
    given = {"thread_id": thread_id, "graph_id": "steps", "supersteps": PAST}

    assert refused(client.threads.create, **given)[0] == 409
    assert client.threads.create(**given, if_exists="do_nothing")["values"] is None


# Reading, changing, deleting


def test_an_unknown_thread_is_404_and_a_malformed_id_422(client):
    unknown = str(uuid4())

    assert refused(client.threads.get, unknown) == (404, f"Thread with ID {unknown} not found")
    assert refused(client.threads.get, "mine") == (422, "Invalid thread ID: must be a UUID")
    assert refused(client.threads.update, unknown, metadata={})[0] == 404
    assert refused(client.threads.delete, unknown)[0] == 404


def test_metadata_is_merged(client):
    thread_id = client.threads.create(metadata={"a": 1, "b": 1})["thread_id"]

    changed = client.threads.update(thread_id, metadata={"b": 2, "c": 3})

    assert changed["metadata"] == {"a": 1, "b": 2, "c": 3}
    assert client.threads.get(thread_id)["updated_at"] > changed["created_at"]


def test_a_minimal_answer_has_no_body(client, raw):
    thread_id = client.threads.create()["thread_id"]

    answer = raw.patch(
        f"/threads/{thread_id}", json={"metadata": {"a": 1}}, headers={"Prefer": "return=minimal"}
    )

    assert (answer.status_code, answer.content) == (204, b"")
    assert client.threads.get(thread_id)["metadata"] == {"a": 1}


def test_metadata_may_change_while_a_run_is_open(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "slow", input={"seconds": 0.5})

    changed = client.threads.update(thread_id, metadata={"a": 1})

    assert (changed["status"], changed["metadata"]["a"]) == ("busy", 1)
    client.runs.join(thread_id, run["run_id"])
    assert client.threads.get(thread_id)["metadata"]["a"] == 1


def test_a_run_puts_its_graph_and_assistant_into_the_metadata(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "steps", input={"notes": []})

    metadata = client.threads.get(thread_id)["metadata"]

    assert metadata == {"graph_id": "steps", "assistant_id": run["assistant_id"]}
    client.runs.join(thread_id, run["run_id"])


def test_the_thread_after_a_run(client):
    thread_id = ran(client)

    thread = client.threads.get(thread_id)

    assert (thread["status"], thread["interrupts"], thread["error"]) == ("idle", {}, None)
    assert thread["values"]["notes"] == ["asked", "plan", "write", "review"]
    assert thread["config"] == {"configurable": {}}


def test_a_failed_run_leaves_its_error_until_the_next_good_one(client):
    thread_id = client.threads.create()["thread_id"]
    client.runs.wait(thread_id, "faults", input={"kind": "value"}, raise_error=False)

    failed = client.threads.get(thread_id)
    client.runs.wait(thread_id, "faults", input={"kind": ""})
    good = client.threads.get(thread_id)

    assert failed["status"] == "error"
    assert failed["error"] == {"error": "ValueError", "message": "no such city"}
    assert (good["status"], good["error"]) == ("idle", None)


def test_deleting_a_thread(client):
    thread_id = ran(client)

    client.threads.delete(thread_id)

    assert refused(client.threads.get, thread_id)[0] == 404
    assert refused(client.threads.delete, thread_id)[0] == 404
    assert refused(client.threads.get_state, thread_id)[0] == 404
    assert refused(client.runs.create, thread_id, "steps", input={})[0] == 404


def test_a_deleted_id_can_be_used_again(client):
    thread_id = ran(client)

    client.threads.delete(thread_id)
    again = client.threads.create(thread_id=thread_id)

    assert (again["values"], client.threads.get_history(thread_id)) == (None, [])
    assert client.runs.list(thread_id) == []


def test_deleting_a_busy_thread_ends_its_runs_at_once(client):
    thread_id = client.threads.create()["thread_id"]
    running = client.runs.create(thread_id, "slow", input={"seconds": 100})
    waiting = client.runs.create(thread_id, "slow", input={"seconds": 100})
    streams = [client.runs.join_stream(thread_id, r["run_id"]) for r in (running, waiting)]
    wait_until(
        lambda: client.runs.get(thread_id, running["run_id"])["status"] != "pending",
        "the start of the run",
        60,
    )
    began = time.monotonic()

    client.threads.delete(thread_id)

    assert refused(client.threads.get, thread_id)[0] == 404
    for run in (running, waiting):
        assert refused(client.runs.get, thread_id, run["run_id"])[0] == 404
    client.threads.create(thread_id=thread_id)
    answer = client.runs.wait(thread_id, "steps", input={"notes": []})
    assert answer["notes"] == ["plan", "write", "review"]
    assert time.monotonic() - began < 50
    for stream in streams:
        stream.close()


def test_readers_of_a_deleted_run_are_let_go(client):
    thread_id = client.threads.create()["thread_id"]
    events = client.runs.stream(thread_id, "slow", input={"seconds": 100})
    assert next(events).event == "metadata"
    began = time.monotonic()

    client.threads.delete(thread_id)

    assert [event.event for event in events if event.event != "end"] in ([], ["values"])
    assert time.monotonic() - began < 50


# Times to live


def test_a_ttl_is_shown_when_asked_for(client):
    plain = client.threads.create()
    thread = client.threads.create(ttl={"ttl": 60, "strategy": "keep_latest"})

    found = client.threads.get(thread["thread_id"], include=["ttl"])

    assert "ttl" not in client.threads.get(thread["thread_id"])
    assert client.threads.get(plain["thread_id"], include=["ttl"])["ttl"] is None
    assert (found["ttl"]["strategy"], found["ttl"]["ttl_minutes"]) == ("keep_latest", 60)
    expires = datetime.fromisoformat(found["ttl"]["expires_at"])
    assert (expires - datetime.fromisoformat(thread["created_at"])).total_seconds() == 3600


def test_a_number_from_the_client_means_delete(client):
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
def five(client, tag):
    """Five threads, oldest first."""
    return [client.threads.create(metadata={**tag, "n": n, "deep": {"x": n}}) for n in range(5)]


def test_search_by_metadata_newest_change_first(client, tag, five):
    found = client.threads.search(metadata=tag)

    assert ids(found) == ids(reversed(five))


def test_search_finds_nested_metadata(client, tag, five):
    found = client.threads.search(metadata={**tag, "deep": {"x": 3}})

    assert ids(found) == [five[3]["thread_id"]]


def test_search_by_ids(client, tag, five):
    wanted = ids(five[1:3])

    found = client.threads.search(
        ids=[*wanted, str(uuid4())], sort_by="created_at", sort_order="asc"
    )

    assert ids(found) == wanted
    assert client.threads.search(metadata={**tag, "n": 0}, ids=wanted) == []


@pytest.mark.parametrize("sort_by", ["thread_id", "created_at", "updated_at", "state_updated_at"])
def test_search_sorts(client, tag, five, sort_by):
    up = client.threads.search(metadata=tag, sort_by=sort_by, sort_order="asc")
    down = client.threads.search(metadata=tag, sort_by=sort_by, sort_order="desc")

    assert ids(up) == ids(five)
    assert ids(down) == ids(reversed(five))


def test_search_in_pages(client, raw, tag, five):
    body = {"metadata": tag, "limit": 2, "sort_by": "created_at", "sort_order": "asc"}

    pages = [raw.post("/threads/search", json={**body, "offset": offset}) for offset in (0, 2, 4)]

    assert [ids(page.json()) for page in pages] == [ids(five[:2]), ids(five[2:4]), ids(five[4:])]
    assert [page.headers["X-Pagination-Total"] for page in pages] == ["3", "5", "5"]
    assert [page.headers.get("X-Pagination-Next") for page in pages] == ["2", "4", None]


def test_search_by_values_passes_over_threads_without_any(client, tag, five):
    thread_id = ran(client, metadata=tag)

    found = client.threads.search(metadata=tag, values={"count": 3})

    assert ids(found) == [thread_id]
    assert client.threads.search(metadata=tag, values={"count": 4}) == []


def test_search_by_status(client, tag):
    idle = ran(client, metadata=tag)
    asks = ran(client, "human", metadata=tag)
    failed = client.threads.create(metadata=tag)["thread_id"]
    client.runs.wait(failed, "faults", input={"kind": "value"}, raise_error=False)

    found = {
        status: ids(client.threads.search(metadata=tag, status=status))
        for status in ("idle", "interrupted", "error", "busy")
    }

    assert found == {"idle": [idle], "interrupted": [asks], "error": [failed], "busy": []}


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
def test_a_search_that_breaks_the_schema_is_422(raw, body):
    answer = raw.post("/threads/search", json=body)

    assert (answer.status_code, type(answer.json()["detail"])) == (422, str)


def test_search_shows_the_fields_that_were_selected(client, tag, five):
    [found] = client.threads.search(
        metadata={**tag, "n": 1}, select=["thread_id", "metadata", "values"]
    )

    assert found == {
        "thread_id": five[1]["thread_id"],
        "metadata": {**tag, "n": 1, "deep": {"x": 1}},
        "values": None,
    }


def test_search_extracts_what_lies_at_paths(client, tag):
    thread_id = ran(client, metadata={**tag, "deep": {"list": [{"x": 1}, {"x": 2}]}})

    [found] = client.threads.search(
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

    assert found == {
        "thread_id": thread_id,
        "extracted": {
            "first": "asked",
            "last": "review",
            "x": 2,
            "none": None,
            "config": {},
            "interrupts": {},
        },
    }


def test_count(client, tag, five):
    ran(client, metadata=tag)

    assert client.threads.count(metadata=tag) == 6
    assert client.threads.count(metadata={**tag, "n": 2}) == 1
    assert client.threads.count(metadata=tag, values={"count": 3}) == 1
    assert client.threads.count(metadata=tag, status="busy") == 0


# Copying


def test_a_copy_has_values_history_and_no_runs(client):
    thread_id = ran(client, metadata={"a": 1})

    copy = client.threads.copy(thread_id) or {}

    source = client.threads.get(thread_id)
    assert copy["thread_id"] != thread_id
    for name in ("values", "metadata", "status", "interrupts", "config"):
        assert copy[name] == source[name]
    theirs = [s["checkpoint_id"] for s in client.threads.get_history(thread_id)]
    own = client.threads.get_history(copy["thread_id"])
    assert [state["checkpoint_id"] for state in own] == theirs
    assert {state["checkpoint"]["thread_id"] for state in own} == {copy["thread_id"]}
    assert client.runs.list(copy["thread_id"]) == []


def test_the_state_of_a_copy_is_its_own(client):
    thread_id = ran(client)

    copy_id = client.threads.copy(thread_id)["thread_id"]

    state, source = client.threads.get_state(copy_id), client.threads.get_state(thread_id)
    assert state["values"] == source["values"]
    assert state["checkpoint"] == {**source["checkpoint"], "thread_id": copy_id}
    assert state["metadata"]["thread_id"] == copy_id


def test_a_copy_goes_its_own_way(client):
    thread_id = ran(client)

    copy_id = client.threads.copy(thread_id)["thread_id"]
    answer = client.runs.wait(copy_id, "steps", input={"notes": ["again"]})

    assert answer["notes"][4:] == ["again", "plan", "write", "review"]
    assert len(client.threads.get_state(thread_id)["values"]["notes"]) == 4


def test_a_copy_of_a_thread_that_asks_can_be_answered(client):
    thread_id = ran(client, "human")

    copy = client.threads.copy(thread_id)
    answer = client.runs.wait(copy["thread_id"], "human", command={"resume": "yes"})

    assert copy["status"] == "interrupted"
    assert answer["notes"] == ["asked", "draft", "answer 0: yes", "sent"]
    assert client.threads.get(thread_id)["status"] == "interrupted"


def test_a_copy_of_a_thread_that_never_ran(client):
    copy = client.threads.copy(client.threads.create(metadata={"a": 1})["thread_id"])

    assert (copy["metadata"], copy["values"]) == ({"a": 1}, None)
    assert client.threads.get_state(copy["thread_id"])["checkpoint"] is None


def test_a_missing_thread_cannot_be_copied(client):
    assert refused(client.threads.copy, str(uuid4()))[0] == 404


# Pruning, sizes


def test_pruning_deletes_and_skips_what_is_missing(client):
    first, second = ran(client), client.threads.create()["thread_id"]

    answer = client.threads.prune([first, second, str(uuid4())])

    assert answer == {"pruned_count": 2}
    assert refused(client.threads.get, first)[0] == 404
    assert client.threads.prune([first]) == {"pruned_count": 0}


def test_pruning_to_the_latest_keeps_the_state(client):
    thread_id = ran(client)
    before, size = client.threads.get_state(thread_id), bytes_of(client, thread_id)

    answer = client.threads.prune([thread_id], strategy="keep_latest")

    assert answer == {"pruned_count": 1}
    assert len(client.threads.get_history(thread_id)) == 1
    assert client.threads.get_state(thread_id) == before
    assert bytes_of(client, thread_id) < size
    answer = client.runs.wait(thread_id, "steps", input={"notes": ["again"]})
    assert answer["notes"][3:] == ["review", "again", "plan", "write", "review"]


def test_pruning_to_the_latest_keeps_a_question_inside(client):
    thread_id = ran(client, "nested", input={"topic": "tea", "ask": True})

    client.threads.prune([thread_id], strategy="keep_latest")

    answer = client.runs.wait(thread_id, "nested", command={"resume": "yes"})
    assert answer["report"] == "tea 2 (yes) & tea 1 (yes)"
    assert client.threads.get(thread_id)["status"] == "idle"


def test_pruning_leaves_busy_threads_their_history(client):
    thread_id = client.threads.create()["thread_id"]
    run = client.runs.create(thread_id, "slow", input={"seconds": 0.5, "steps": 1})

    answer = client.threads.prune([thread_id], strategy="keep_latest")

    assert answer == {"pruned_count": 0}
    client.runs.join(thread_id, run["run_id"])


@pytest.mark.parametrize("body", [{}, {"thread_ids": ["x"]}, {"thread_ids": [], "strategy": "x"}])
def test_a_pruning_that_breaks_the_schema_is_422(raw, body):
    assert raw.post("/threads/prune", json=body).status_code == 422


def bytes_of(client, thread_id):
    return client.http.client.get(f"/threads/{thread_id}/storage").json()["total_bytes"]


def test_storage_by_channel(client, raw):
    thread_id = ran(client, "twins", input={"names": ["n" * 1000]})

    storage = raw.get(f"/threads/{thread_id}/storage").json()

    assert storage["thread_id"] == thread_id
    assert storage["checkpoints"]["count"] == len(client.threads.get_history(thread_id))
    names = storage["channel_values"]["by_channel"]["names"]
    assert names["versions"] == 3
    assert 3_000 < names["bytes"] < 3_500
    parts = ("checkpoints", "channel_values", "pending_writes")
    assert storage["total_bytes"] == sum(storage[part]["bytes"] for part in parts)


def test_storage_of_new_and_of_unknown_threads(client, raw):
    thread_id = client.threads.create()["thread_id"]

    storage = raw.get(f"/threads/{thread_id}/storage").json()

    assert (storage["total_bytes"], storage["channel_values"]["by_channel"]) == (0, {})
    assert raw.get(f"/threads/{uuid4()}/storage").status_code == 404


def test_sizes_do_not_grow_where_only_the_latest_is_kept(client):
    thread_id = client.threads.create()["thread_id"]
    sizes = []

    for _ in range(5):
        client.runs.wait(thread_id, "nested", input={"topic": "tea", "log": []})
        client.threads.update_state(thread_id, {"log": []})
        client.threads.prune([thread_id], strategy="keep_latest")
        storage = client.http.client.get(f"/threads/{thread_id}/storage").json()
        sizes.append((storage["checkpoints"]["count"], storage["channel_values"]["count"]))

    assert len(set(sizes)) == 1
