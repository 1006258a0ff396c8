"""Section 3: assistants, their versions, and the drawings and schemas of their graphs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4, uuid5

import pytest
from langgraph_sdk.errors import APIStatusError, ConflictError, NotFoundError

NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
STEPS = str(uuid5(NAMESPACE, "steps"))


@pytest.fixture
def assistants(client):
    return client.assistants


# System assistants


def test_each_graph_has_a_system_assistant_with_a_derived_id(assistants):
    assistant = assistants.get(STEPS)

    assert {name: assistant[name] for name in assistant if not name.endswith("_at")} == {
        "assistant_id": STEPS,
        "graph_id": "steps",
        "name": "steps",
        "description": "Plans, writes and reviews",
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "version": 1,
    }


def test_system_assistants_are_found_by_their_metadata(assistants):
    rows = assistants.search(metadata={"created_by": "system"}, graph_id="steps", limit=100)

    assert [row["assistant_id"] for row in rows] == [STEPS]


def test_a_graph_without_a_description_has_none(assistants):
    assert assistants.get(str(uuid5(NAMESPACE, "human")))["description"] is None


def test_a_system_assistant_cannot_be_deleted(assistants):
    with pytest.raises(ConflictError):
        assistants.delete(STEPS)

    assert assistants.get(STEPS)["assistant_id"] == STEPS


# Create


def test_a_new_assistant_has_the_defaults(assistants):
    assistant = assistants.create("steps")

    assert (assistant["name"], assistant["description"], assistant["version"]) == (
        "Untitled",
        None,
        1,
    )
    assert (assistant["config"], assistant["context"], assistant["metadata"]) == ({}, {}, {})
    assert UUID(assistant["assistant_id"]).version == 4
    assert assistants.get(assistant["assistant_id"]) == assistant


def test_all_given_fields_are_stored(assistants, mark):
    assistant_id = str(uuid4())
    assistant = assistants.create(
        "steps",
        config={"tags": ["a"], "recursion_limit": 7},
        context={"tone": "dry"},
        metadata=mark,
        assistant_id=assistant_id,
        name="Mine",
        description="Of use",
    )

    assert assistant["assistant_id"] == assistant_id
    assert assistant["config"] == {
        "tags": ["a"],
        "recursion_limit": 7,
        "configurable": {"tone": "dry"},
    }
    assert assistant["context"] == {"tone": "dry"}
    assert (assistant["metadata"], assistant["name"], assistant["description"]) == (
        mark,
        "Mine",
        "Of use",
    )


def test_configurable_fills_context(assistants):
    assistant = assistants.create("steps", config={"configurable": {"tone": "dry"}})

    assert assistant["context"] == {"tone": "dry"}


def test_configurable_and_context_together_are_rejected(assistants):
    with pytest.raises(APIStatusError) as caught:
        assistants.create("steps", config={"configurable": {"a": 1}}, context={"a": 1})

    assert caught.value.status_code == 400


def test_the_error_of_an_unknown_graph_names_the_known_graphs(assistants):
    with pytest.raises(NotFoundError, match="steps"):
        assistants.create("nothing")


def test_an_assistant_without_a_graph_is_rejected(raw):
    assert raw.post("/assistants", json={}).status_code == 422


def test_a_taken_id_is_a_conflict(assistants):
    assistant_id = str(uuid4())
    assistants.create("steps", assistant_id=assistant_id)

    with pytest.raises(ConflictError, match=f"Assistant {assistant_id} already exists"):
        assistants.create("steps", assistant_id=assistant_id)


def test_do_nothing_returns_the_existing_assistant(assistants):
    assistant_id = str(uuid4())
    first = assistants.create("steps", assistant_id=assistant_id, name="first")

    second = assistants.create(
        "steps", assistant_id=assistant_id, name="second", if_exists="do_nothing"
    )

    assert second == first


def test_an_id_that_is_not_a_uuid_is_rejected(raw):
    response = raw.get("/assistants/steps")

    assert (response.status_code, response.json()["detail"]) == (
        422,
        "Invalid assistant ID: must be a UUID",
    )


def test_an_unknown_id_is_not_found(assistants):
    with pytest.raises(NotFoundError, match="Not Found"):
        assistants.get(str(uuid4()))


# Update and versions


def test_an_update_creates_a_version(assistants):
    assistant = assistants.create("steps", metadata={"a": 1}, context={"x": 1}, name="one")

    changed = assistants.update(
        assistant["assistant_id"], graph_id="human", metadata={"b": 2}, context={"y": 2}, name="two"
    )

    assert (changed["version"], changed["graph_id"], changed["name"]) == (2, "human", "two")
    assert changed["metadata"] == {"a": 1, "b": 2}
    assert changed["context"] == {"y": 2}
    assert changed["config"] == {"configurable": {"y": 2}}


def test_an_update_replaces_the_whole_config(assistants):
    assistant = assistants.create("steps", config={"tags": ["a"], "configurable": {"x": 1}})

    changed = assistants.update(assistant["assistant_id"], config={"recursion_limit": 5})

    assert (changed["config"], changed["context"]) == ({"recursion_limit": 5}, {})


def test_updating_a_missing_assistant_is_not_found(assistants):
    with pytest.raises(NotFoundError):
        assistants.update(str(uuid4()), name="x")


def test_updating_to_an_unknown_graph_changes_nothing(assistants):
    assistant = assistants.create("steps")

    with pytest.raises(NotFoundError):
        assistants.update(assistant["assistant_id"], graph_id="nothing")

    assert assistants.get(assistant["assistant_id"]) == assistant


def test_versions_are_listed_newest_first(assistants):
    assistant = assistants.create("steps", name="one")
    assistants.update(assistant["assistant_id"], name="two")
    assistants.update(assistant["assistant_id"], name="three")

    versions = assistants.get_versions(assistant["assistant_id"])

    assert [(row["version"], row["name"]) for row in versions] == [
        (3, "three"),
        (2, "two"),
        (1, "one"),
    ]
    assert set(versions[0]) == set(assistant) - {"updated_at"}


def test_versions_are_filtered_by_metadata_and_paged(assistants):
    assistant = assistants.create("steps", metadata={"stage": "draft"})
    assistants.update(assistant["assistant_id"], metadata={"stage": "final"})

    by_metadata = assistants.get_versions(assistant["assistant_id"], metadata={"stage": "draft"})
    page = assistants.get_versions(assistant["assistant_id"], limit=1, offset=1)

    assert [row["version"] for row in by_metadata] == [1]
    assert [row["version"] for row in page] == [1]


def test_versions_of_a_missing_assistant_are_not_found(assistants):
    with pytest.raises(NotFoundError):
        assistants.get_versions(str(uuid4()))


def test_activating_an_old_version_restores_config_and_context(assistants):
    assistant = assistants.create("steps", context={"x": 1}, name="one")
    assistants.update(assistant["assistant_id"], context={"x": 2}, name="two")

    back = assistants.set_latest(assistant["assistant_id"], 1)

    assert (back["version"], back["name"], back["context"]) == (1, "one", {"x": 1})
    assert back["config"] == {"configurable": {"x": 1}}


def test_the_version_after_an_activation_has_the_next_highest_number(assistants):
    assistant = assistants.create("steps", name="one")
    assistants.update(assistant["assistant_id"], name="two")
    assistants.set_latest(assistant["assistant_id"], 1)

    changed = assistants.update(assistant["assistant_id"], description="more")

    assert (changed["version"], changed["name"]) == (3, "one")


def test_activating_a_missing_version_is_not_found(assistants):
    assistant = assistants.create("steps")

    with pytest.raises(NotFoundError):
        assistants.set_latest(assistant["assistant_id"], 9)


def test_concurrent_updates_are_all_stored(assistants):
    assistant = assistants.create("steps")

    def change(number):
        return assistants.update(assistant["assistant_id"], metadata={f"k{number}": number})[
            "version"
        ]

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(change, range(8)))

    assert sorted(versions) == list(range(2, 10))
    newest = assistants.get(assistant["assistant_id"])
    assert newest["metadata"] == {f"k{number}": number for number in range(8)}


def test_runs_use_the_active_version(client, assistants):
    assistant = assistants.create("context", context={"tone": "dry"})
    assistants.update(assistant["assistant_id"], context={"tone": "warm"})

    newer = client.runs.wait(None, assistant["assistant_id"], input={"question": "?"})
    assistants.set_latest(assistant["assistant_id"], 1)
    older = client.runs.wait(None, assistant["assistant_id"], input={"question": "?"})

    assert (newer["answer"], older["answer"]) == ("warm 3", "dry 3")


# Delete


def test_a_deleted_assistant_is_not_found_with_its_versions(assistants):
    assistant = assistants.create("steps")

    assistants.delete(assistant["assistant_id"])

    for call in (assistants.get, assistants.get_versions, assistants.delete):
        with pytest.raises(NotFoundError):
            call(assistant["assistant_id"])


def test_deleting_answers_204_without_a_body(raw):
    assistant = raw.post("/assistants", json={"graph_id": "steps"}).json()

    response = raw.delete(f"/assistants/{assistant['assistant_id']}?delete_threads=false")

    assert (response.status_code, response.content) == (204, b"")


def test_threads_outlive_their_assistant(client, assistants):
    assistant = assistants.create("steps")
    thread = client.threads.create()
    client.runs.wait(thread["thread_id"], assistant["assistant_id"], input={"notes": []})

    assistants.delete(assistant["assistant_id"])

    state = client.threads.get_state(thread["thread_id"])
    assert state["values"]["notes"] == ["plan", "write", "review"]
    assert len(client.runs.list(thread["thread_id"])) == 1


def test_threads_are_deleted_with_their_assistant_on_request(client, assistants):
    assistant = assistants.create("steps")
    thread, other = client.threads.create(), client.threads.create()
    client.runs.wait(thread["thread_id"], assistant["assistant_id"], input={"notes": []})
    client.runs.wait(other["thread_id"], "steps", input={"notes": []})

    assistants.delete(assistant["assistant_id"], delete_threads=True)

    with pytest.raises(NotFoundError):
        client.threads.get(thread["thread_id"])
    assert client.threads.get(other["thread_id"])["thread_id"] == other["thread_id"]


def test_runs_stop_when_their_thread_is_deleted_with_the_assistant(client, assistants):
    assistant = assistants.create("slow")
    thread = client.threads.create()
    client.runs.create(thread["thread_id"], assistant["assistant_id"], input={"seconds": 60})

    assistants.delete(assistant["assistant_id"], delete_threads=True)

    with pytest.raises(NotFoundError):
        client.threads.get(thread["thread_id"])


# Search and count


@pytest.fixture
def five_assistants(assistants, mark):
    """Five assistants of one mark: a0 of `human`, a1 ... a4 of `steps`."""
    return [
        assistants.create(
            "steps" if number else "human",
            name=f"a{number}",
            metadata={**mark, "nested": {"number": number}},
        )
        for number in range(5)
    ]


def test_a_search_lists_the_newest_first(assistants, five_assistants, mark):
    rows = assistants.search(metadata=mark)

    assert [row["name"] for row in rows] == ["a4", "a3", "a2", "a1", "a0"]
    assert rows[0] == five_assistants[4]


def test_a_page_names_the_next_offset(assistants, five_assistants, mark):
    first = assistants.search(metadata=mark, limit=2, response_format="object")
    last = assistants.search(metadata=mark, limit=2, offset=4, response_format="object")

    assert [row["name"] for row in first["assistants"]] == ["a4", "a3"]
    assert first["next"] == "2"
    assert [row["name"] for row in last["assistants"]] == ["a0"]
    assert last["next"] is None


def test_a_page_has_pagination_headers(raw, five_assistants, mark):
    middle = raw.post("/assistants/search", json={"metadata": mark, "limit": 2})
    last = raw.post("/assistants/search", json={"metadata": mark, "limit": 2, "offset": 3})

    assert (middle.headers["X-Pagination-Next"], middle.headers["X-Pagination-Total"]) == ("2", "3")
    assert "X-Pagination-Next" not in last.headers
    assert last.headers["X-Pagination-Total"] == "5"


@pytest.mark.parametrize(
    ("sort_by", "first"),
    [("name", "a0"), ("created_at", "a0"), ("graph_id", "a0"), ("updated_at", "a0")],
)
def test_a_search_is_sorted(assistants, five_assistants, mark, sort_by, first):
    up = assistants.search(metadata=mark, sort_by=sort_by, sort_order="asc")
    down = assistants.search(metadata=mark, sort_by=sort_by, sort_order="desc")

    assert up[0]["name"] == first
    assert [row["name"] for row in down] == [row["name"] for row in reversed(up)]


def test_a_search_is_filtered(assistants, five_assistants, mark):
    def names(**filters):
        return {row["name"] for row in assistants.search(metadata=mark, **filters)}

    assert names(graph_id="human") == {"a0"}
    assert names(name="A3") == {"a3"}
    nested = assistants.search(metadata={**mark, "nested": {"number": 2}})
    assert [row["name"] for row in nested] == ["a2"]


def test_a_percent_sign_is_not_a_wildcard(assistants, five_assistants, mark):
    assert assistants.search(metadata=mark, name="a%") == []


def test_select_returns_only_the_selected_fields(assistants, five_assistants, mark):
    [row] = assistants.search(metadata=mark, name="a1", select=["name", "graph_id"])

    assert row == {"name": "a1", "graph_id": "steps"}


def test_assistants_are_counted(assistants, five_assistants, mark):
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
def test_an_invalid_search_is_rejected(raw, body):
    response = raw.post("/assistants/search", json=body)

    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)


def test_a_search_needs_a_body(raw):
    response = raw.post("/assistants/search")

    assert (response.status_code, response.json()["detail"]) == (
        422,
        "Invalid JSON in request body",
    )


def test_unknown_fields_are_ignored(raw, five_assistants, mark):
    response = raw.post("/assistants/count", json={"metadata": mark, "from_the_future": 1})

    assert response.json() == 5


# Drawings, schemas, subgraphs


def test_the_drawing_has_the_nodes_and_edges_of_the_graph(assistants):
    drawing = assistants.get_graph(STEPS)

    assert [node["id"] for node in drawing["nodes"]] == [
        "__start__",
        "plan",
        "write",
        "review",
        "__end__",
    ]
    assert {"source": "plan", "target": "write"} in drawing["edges"]
    assert drawing["nodes"][-1] == {"id": "__end__"}


def test_a_drawing_is_read_by_graph_name(assistants):
    assert assistants.get_graph("steps") == assistants.get_graph(STEPS)


def test_tool_nodes_list_their_tools(assistants):
    nodes = {node["id"]: node for node in assistants.get_graph("chat")["nodes"]}

    assert nodes["tools"]["metadata"]["__tools"] != []
    conditional = [e for e in assistants.get_graph("chat")["edges"] if e.get("conditional")]
    assert {edge["source"] for edge in conditional} == {"agent"}


def test_xray_expands_all_subgraphs(assistants):
    ids = {node["id"] for node in assistants.get_graph("nested", xray=True)["nodes"]}

    assert {"research:outline", "research:search:fetch", "research:search:rank"} <= ids
    assert "research" not in ids


def test_xray_expands_the_given_number_of_levels(assistants):
    ids = {node["id"] for node in assistants.get_graph("nested", xray=1)["nodes"]}

    assert {"research:outline", "research:search"} <= ids
    assert "research:search:fetch" not in ids


@pytest.mark.parametrize("xray", ["-1", "deep", "1.5", "²"])
def test_an_invalid_xray_is_rejected(raw, xray):
    assert raw.get("/assistants/nested/graph", params={"xray": xray}).status_code == 422


def test_the_drawing_of_a_missing_assistant_is_not_found(assistants):
    with pytest.raises(NotFoundError):
        assistants.get_graph(str(uuid4()))


def test_the_drawing_of_a_graph_factory_uses_the_context_of_the_assistant(assistants):
    assistant = assistants.create("factory", context={"nodes": ["one", "two"]})

    configured_ids = [
        node["id"] for node in assistants.get_graph(assistant["assistant_id"])["nodes"]
    ]
    default_ids = [node["id"] for node in assistants.get_graph("factory")["nodes"]]

    assert configured_ids == ["__start__", "one", "two", "__end__"]
    assert default_ids == ["__start__", "only", "__end__"]


def test_an_assistant_has_schemas(assistants):
    schemas = assistants.get_schemas(STEPS)

    assert schemas["graph_id"] == "steps"
    assert {"notes", "count"} <= set(schemas["state_schema"]["properties"])
    assert schemas["input_schema"]["type"] == "object"
    assert schemas["output_schema"]["type"] == "object"
    assert (schemas["config_schema"], schemas["context_schema"]) == ({}, None)


def test_a_context_has_a_schema(assistants):
    schemas = assistants.get_schemas(str(uuid5(NAMESPACE, "context")))

    assert set(schemas["context_schema"]["properties"]) == {"tone", "length"}
    assert schemas["config_schema"] == schemas["context_schema"]


def test_typed_dicts_of_the_standard_library_have_schemas(assistants):
    schemas = assistants.get_schemas(str(uuid5(NAMESPACE, "factory")))

    for name in ("input_schema", "output_schema", "state_schema"):
        assert set(schemas[name]["properties"]) == {"notes", "place"}


def test_subgraphs_are_listed_recursively_on_request(assistants):
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


def test_a_subgraph_is_read_by_its_namespace(assistants):
    nested = str(uuid5(NAMESPACE, "nested"))

    assert set(assistants.get_subgraphs(nested, namespace="research")) == {"research"}
    inner = assistants.get_subgraphs(nested, namespace="research|search", recurse=True)
    assert set(inner) == {"research|search"}
    assert assistants.get_subgraphs(nested, namespace="nowhere") == {}


def test_a_graph_without_subgraphs_lists_none(assistants):
    assert assistants.get_subgraphs(STEPS) == {}
