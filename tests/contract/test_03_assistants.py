"""Section 3: assistants, their versions, and what their graphs look like."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4, uuid5

import httpx
import pytest
from langgraph_sdk.errors import APIStatusError, ConflictError, NotFoundError

NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
STEPS = str(uuid5(NAMESPACE, "steps"))


@pytest.fixture
def assistants(client):
    return client.assistants


@pytest.fixture
def raw(live, agent_url):
    """Requests as they stand, for what the client never sends."""
    with httpx.Client(base_url=agent_url, headers=live.headers, timeout=60) as http:
        yield http


@pytest.fixture
def mark():
    """Metadata of this test alone."""
    return {"mark": str(uuid4())}


# Made by the system


def test_each_graph_has_an_assistant_of_a_known_id(assistants):
    found = assistants.get(STEPS)

    assert {name: found[name] for name in found if not name.endswith("_at")} == {
        "assistant_id": STEPS,
        "graph_id": "steps",
        "name": "steps",
        "description": "Plans, writes and reviews",
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "version": 1,
    }


def test_the_system_made_ones_are_found_by_their_metadata(assistants):
    found = assistants.search(metadata={"created_by": "system"}, graph_id="steps", limit=100)

    assert [row["assistant_id"] for row in found] == [STEPS]


def test_a_graph_without_a_description_has_none(assistants):
    assert assistants.get(str(uuid5(NAMESPACE, "human")))["description"] is None


def test_a_graphs_own_assistant_cannot_be_deleted(assistants):
    with pytest.raises(ConflictError):
        assistants.delete(STEPS)

    assert assistants.get(STEPS)["assistant_id"] == STEPS


# Create


def test_defaults_of_a_new_assistant(assistants):
    made = assistants.create("steps")

    assert (made["name"], made["description"], made["version"]) == ("Untitled", None, 1)
    assert (made["config"], made["context"], made["metadata"]) == ({}, {}, {})
    assert UUID(made["assistant_id"]).version == 4
    assert assistants.get(made["assistant_id"]) == made


def test_everything_that_can_be_given_is_kept(assistants, mark):
    given = str(uuid4())
    made = assistants.create(
        "steps",
        config={"tags": ["a"], "recursion_limit": 7},
        context={"tone": "dry"},
        metadata=mark,
        assistant_id=given,
        name="Mine",
        description="Of use",
    )

    assert made["assistant_id"] == given
    assert made["config"] == {
        "tags": ["a"],
        "recursion_limit": 7,
        "configurable": {"tone": "dry"},
    }
    assert made["context"] == {"tone": "dry"}
    assert (made["metadata"], made["name"], made["description"]) == (mark, "Mine", "Of use")


def test_configurable_fills_context(assistants):
    made = assistants.create("steps", config={"configurable": {"tone": "dry"}})

    assert made["context"] == {"tone": "dry"}


def test_configurable_and_context_at_once_are_refused(assistants):
    with pytest.raises(APIStatusError) as refused:
        assistants.create("steps", config={"configurable": {"a": 1}}, context={"a": 1})

    assert refused.value.status_code == 400


def test_an_unknown_graph_is_not_found_and_the_known_ones_are_named(assistants):
    with pytest.raises(NotFoundError, match="steps"):
        assistants.create("nothing")


def test_a_graph_is_needed(raw):
    assert raw.post("/assistants", json={}).status_code == 422


def test_an_id_can_be_taken_once(assistants):
    given = str(uuid4())
    assistants.create("steps", assistant_id=given)

    with pytest.raises(ConflictError, match=f"Assistant {given} already exists"):
        assistants.create("steps", assistant_id=given)


def test_do_nothing_gives_the_old_one_back(assistants):
    given = str(uuid4())
    first = assistants.create("steps", assistant_id=given, name="first")

    again = assistants.create("steps", assistant_id=given, name="second", if_exists="do_nothing")

    assert again == first


def test_an_id_that_is_no_uuid(raw):
    answer = raw.get("/assistants/steps")

    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "Invalid assistant ID: must be a UUID",
    )


def test_an_id_that_nobody_has(assistants):
    with pytest.raises(NotFoundError, match="Not Found"):
        assistants.get(str(uuid4()))


# Update and versions


def test_an_update_is_a_version(assistants):
    made = assistants.create("steps", metadata={"a": 1}, context={"x": 1}, name="one")

    changed = assistants.update(
        made["assistant_id"], graph_id="human", metadata={"b": 2}, context={"y": 2}, name="two"
    )

    assert (changed["version"], changed["graph_id"], changed["name"]) == (2, "human", "two")
    assert changed["metadata"] == {"a": 1, "b": 2}
    assert changed["context"] == {"y": 2}
    assert changed["config"] == {"configurable": {"y": 2}}


def test_config_is_replaced_whole(assistants):
    made = assistants.create("steps", config={"tags": ["a"], "configurable": {"x": 1}})

    changed = assistants.update(made["assistant_id"], config={"recursion_limit": 5})

    assert (changed["config"], changed["context"]) == ({"recursion_limit": 5}, {})


def test_updating_what_is_not_there(assistants):
    with pytest.raises(NotFoundError):
        assistants.update(str(uuid4()), name="x")


def test_updating_to_an_unknown_graph(assistants):
    made = assistants.create("steps")

    with pytest.raises(NotFoundError):
        assistants.update(made["assistant_id"], graph_id="nothing")

    assert assistants.get(made["assistant_id"]) == made


def test_versions_come_newest_first(assistants):
    made = assistants.create("steps", name="one")
    assistants.update(made["assistant_id"], name="two")
    assistants.update(made["assistant_id"], name="three")

    versions = assistants.get_versions(made["assistant_id"])

    assert [(row["version"], row["name"]) for row in versions] == [
        (3, "three"),
        (2, "two"),
        (1, "one"),
    ]
    assert set(versions[0]) == set(made) - {"updated_at"}


def test_versions_by_metadata_and_page(assistants):
    made = assistants.create("steps", metadata={"stage": "draft"})
    assistants.update(made["assistant_id"], metadata={"stage": "final"})

    by_metadata = assistants.get_versions(made["assistant_id"], metadata={"stage": "draft"})
    page = assistants.get_versions(made["assistant_id"], limit=1, offset=1)

    assert [row["version"] for row in by_metadata] == [1]
    assert [row["version"] for row in page] == [1]


def test_versions_of_nobody(assistants):
    with pytest.raises(NotFoundError):
        assistants.get_versions(str(uuid4()))


def test_going_back_restores_config_and_context(assistants):
    made = assistants.create("steps", context={"x": 1}, name="one")
    assistants.update(made["assistant_id"], context={"x": 2}, name="two")

    back = assistants.set_latest(made["assistant_id"], 1)

    assert (back["version"], back["name"], back["context"]) == (1, "one", {"x": 1})
    assert back["config"] == {"configurable": {"x": 1}}


def test_after_going_back_the_next_version_is_the_highest_and_one(assistants):
    made = assistants.create("steps", name="one")
    assistants.update(made["assistant_id"], name="two")
    assistants.set_latest(made["assistant_id"], 1)

    changed = assistants.update(made["assistant_id"], description="more")

    assert (changed["version"], changed["name"]) == (3, "one")


def test_a_version_that_is_not_there(assistants):
    made = assistants.create("steps")

    with pytest.raises(NotFoundError):
        assistants.set_latest(made["assistant_id"], 9)


def test_updates_at_once_lose_nothing(assistants):
    made = assistants.create("steps")

    def change(number):
        return assistants.update(made["assistant_id"], metadata={f"k{number}": number})["version"]

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(change, range(8)))

    assert sorted(versions) == list(range(2, 10))
    newest = assistants.get(made["assistant_id"])
    assert newest["metadata"] == {f"k{number}": number for number in range(8)}


def test_runs_use_the_active_version(client, assistants):
    made = assistants.create("context", context={"tone": "dry"})
    assistants.update(made["assistant_id"], context={"tone": "warm"})

    newer = client.runs.wait(None, made["assistant_id"], input={"question": "?"})
    assistants.set_latest(made["assistant_id"], 1)
    older = client.runs.wait(None, made["assistant_id"], input={"question": "?"})

    assert (newer["answer"], older["answer"]) == ("warm 3", "dry 3")


# Delete


def test_a_deleted_assistant_is_gone_with_its_versions(assistants):
    made = assistants.create("steps")

    assistants.delete(made["assistant_id"])

    for call in (assistants.get, assistants.get_versions, assistants.delete):
        with pytest.raises(NotFoundError):
            call(made["assistant_id"])


def test_deleting_says_so_without_a_body(raw):
    made = raw.post("/assistants", json={"graph_id": "steps"}).json()

    answer = raw.delete(f"/assistants/{made['assistant_id']}?delete_threads=false")

    assert (answer.status_code, answer.content) == (204, b"")


def test_threads_outlive_their_assistant(client, assistants):
    made = assistants.create("steps")
    thread = client.threads.create()
    client.runs.wait(thread["thread_id"], made["assistant_id"], input={"notes": []})

    assistants.delete(made["assistant_id"])

    state = client.threads.get_state(thread["thread_id"])
    assert state["values"]["notes"] == ["plan", "write", "review"]
    assert len(client.runs.list(thread["thread_id"])) == 1


def test_threads_can_go_with_their_assistant(client, assistants):
    made = assistants.create("steps")
    thread, other = client.threads.create(), client.threads.create()
    client.runs.wait(thread["thread_id"], made["assistant_id"], input={"notes": []})
    client.runs.wait(other["thread_id"], "steps", input={"notes": []})

    assistants.delete(made["assistant_id"], delete_threads=True)

    with pytest.raises(NotFoundError):
        client.threads.get(thread["thread_id"])
    assert client.threads.get(other["thread_id"])["thread_id"] == other["thread_id"]


def test_running_runs_stop_when_their_thread_goes_with_the_assistant(client, assistants):
    made = assistants.create("slow")
    thread = client.threads.create()
    client.runs.create(thread["thread_id"], made["assistant_id"], input={"seconds": 60})

    assistants.delete(made["assistant_id"], delete_threads=True)

    with pytest.raises(NotFoundError):
        client.threads.get(thread["thread_id"])


# Search and count


@pytest.fixture
def five(assistants, mark):
    """Five assistants of one mark: a0 of `human`, a1 ... a4 of `steps`."""
    return [
        assistants.create(
            "steps" if number else "human",
            name=f"a{number}",
            metadata={**mark, "nested": {"number": number}},
        )
        for number in range(5)
    ]


def test_newest_come_first(assistants, five, mark):
    found = assistants.search(metadata=mark)

    assert [row["name"] for row in found] == ["a4", "a3", "a2", "a1", "a0"]
    assert found[0] == five[4]


def test_pages_say_how_to_go_on(assistants, five, mark):
    first = assistants.search(metadata=mark, limit=2, response_format="object")
    last = assistants.search(metadata=mark, limit=2, offset=4, response_format="object")

    assert [row["name"] for row in first["assistants"]] == ["a4", "a3"]
    assert first["next"] == "2"
    assert [row["name"] for row in last["assistants"]] == ["a0"]
    assert last["next"] is None


def test_the_headers_of_a_page(raw, five, mark):
    middle = raw.post("/assistants/search", json={"metadata": mark, "limit": 2})
    last = raw.post("/assistants/search", json={"metadata": mark, "limit": 2, "offset": 3})

    assert (middle.headers["X-Pagination-Next"], middle.headers["X-Pagination-Total"]) == ("2", "3")
    assert "X-Pagination-Next" not in last.headers
    assert last.headers["X-Pagination-Total"] == "5"


@pytest.mark.parametrize(
    ("sort_by", "first"),
    [("name", "a0"), ("created_at", "a0"), ("graph_id", "a0"), ("updated_at", "a0")],
)
def test_sorting(assistants, five, mark, sort_by, first):
    up = assistants.search(metadata=mark, sort_by=sort_by, sort_order="asc")
    down = assistants.search(metadata=mark, sort_by=sort_by, sort_order="desc")

    assert up[0]["name"] == first
    assert [row["name"] for row in down] == [row["name"] for row in reversed(up)]


def test_filters(assistants, five, mark):
    def names(**filters):
        return {row["name"] for row in assistants.search(metadata=mark, **filters)}

    assert names(graph_id="human") == {"a0"}
    assert names(name="A3") == {"a3"}
    nested = assistants.search(metadata={**mark, "nested": {"number": 2}})
    assert [row["name"] for row in nested] == ["a2"]


def test_a_percent_sign_is_no_wildcard(assistants, five, mark):
    assert assistants.search(metadata=mark, name="a%") == []


def test_select_leaves_only_what_was_asked_for(assistants, five, mark):
    [row] = assistants.search(metadata=mark, name="a1", select=["name", "graph_id"])

    assert row == {"name": "a1", "graph_id": "steps"}


def test_counting(assistants, five, mark):
    assert assistants.count(metadata=mark) == 5
    assert assistants.count(metadata=mark, graph_id="steps") == 4
    assert assistants.count(metadata=mark, name="a0") == 1


@pytest.mark.parametrize(
    "body",
    [
        {"limit": 0},
        {"limit": 1001},
        {"offset": -1},
        {"select": ["nothing"]},
        {"sort_by": "nothing"},
        {"metadata": "text"},
    ],
)
def test_searches_that_make_no_sense(raw, body):
    answer = raw.post("/assistants/search", json=body)

    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)


def test_a_search_needs_a_body(raw):
    answer = raw.post("/assistants/search")

    assert (answer.status_code, answer.json()["detail"]) == (422, "Invalid JSON in request body")


def test_unknown_fields_are_ignored(raw, five, mark):
    answer = raw.post("/assistants/count", json={"metadata": mark, "from_the_future": 1})

    assert answer.json() == 5


# Drawings, schemas, subgraphs


def test_the_drawing_of_an_assistant(assistants):
    drawn = assistants.get_graph(STEPS)

    assert [node["id"] for node in drawn["nodes"]] == [
        "__start__",
        "plan",
        "write",
        "review",
        "__end__",
    ]
    assert {"source": "plan", "target": "write"} in drawn["edges"]
    assert drawn["nodes"][-1] == {"id": "__end__"}


def test_a_graphs_name_will_do(assistants):
    assert assistants.get_graph("steps") == assistants.get_graph(STEPS)


def test_tool_nodes_list_their_tools(assistants):
    nodes = {node["id"]: node for node in assistants.get_graph("chat")["nodes"]}

    assert nodes["tools"]["metadata"]["__tools"] != []
    conditional = [e for e in assistants.get_graph("chat")["edges"] if e.get("conditional")]
    assert {edge["source"] for edge in conditional} == {"agent"}


def test_xray_opens_all_the_graphs_inside(assistants):
    ids = {node["id"] for node in assistants.get_graph("nested", xray=True)["nodes"]}

    assert {"research:outline", "research:search:fetch", "research:search:rank"} <= ids
    assert "research" not in ids


def test_xray_opens_so_many_levels(assistants):
    ids = {node["id"] for node in assistants.get_graph("nested", xray=1)["nodes"]}

    assert {"research:outline", "research:search"} <= ids
    assert "research:search:fetch" not in ids


@pytest.mark.parametrize("xray", ["-1", "deep", "1.5", "²"])
def test_xray_that_makes_no_sense(raw, xray):
    assert raw.get("/assistants/nested/graph", params={"xray": xray}).status_code == 422


def test_the_drawing_of_nobody(assistants):
    with pytest.raises(NotFoundError):
        assistants.get_graph(str(uuid4()))


def test_a_function_draws_what_the_assistant_configures(assistants):
    made = assistants.create("factory", context={"nodes": ["one", "two"]})

    drawn = [node["id"] for node in assistants.get_graph(made["assistant_id"])["nodes"]]
    plain = [node["id"] for node in assistants.get_graph("factory")["nodes"]]

    assert drawn == ["__start__", "one", "two", "__end__"]
    assert plain == ["__start__", "only", "__end__"]


def test_schemas(assistants):
    schemas = assistants.get_schemas(STEPS)

    assert schemas["graph_id"] == "steps"
    assert {"notes", "count"} <= set(schemas["state_schema"]["properties"])
    assert schemas["input_schema"]["type"] == "object"
    assert schemas["output_schema"]["type"] == "object"
    assert (schemas["config_schema"], schemas["context_schema"]) == ({}, None)


def test_the_schema_of_a_context(assistants):
    schemas = assistants.get_schemas(str(uuid5(NAMESPACE, "context")))

    assert set(schemas["context_schema"]["properties"]) == {"tone", "length"}
    assert schemas["config_schema"] == schemas["context_schema"]


def test_typed_dicts_of_the_standard_library_have_schemas_too(assistants):
    schemas = assistants.get_schemas(str(uuid5(NAMESPACE, "factory")))

    for name in ("input_schema", "output_schema", "state_schema"):
        assert set(schemas[name]["properties"]) == {"notes", "place"}


def test_subgraphs(assistants):
    direct = assistants.get_subgraphs(str(uuid5(NAMESPACE, "nested")))
    deep = assistants.get_subgraphs(str(uuid5(NAMESPACE, "nested")), recurse=True)

    assert set(direct) == {"research"}
    assert set(deep) == {"research", "research|search"}
    assert set(deep["research|search"]["state_schema"]["properties"]) == {
        "topic",
        "ask",
        "pages",
        "hits",
    }
    assert "graph_id" not in direct["research"]


def test_one_subgraph_by_its_namespace(assistants):
    nested = str(uuid5(NAMESPACE, "nested"))

    assert set(assistants.get_subgraphs(nested, namespace="research")) == {"research"}
    inner = assistants.get_subgraphs(nested, namespace="research|search", recurse=True)
    assert set(inner) == {"research|search"}
    assert assistants.get_subgraphs(nested, namespace="nowhere") == {}


def test_a_graph_without_others_inside(assistants):
    assert assistants.get_subgraphs(STEPS) == {}
