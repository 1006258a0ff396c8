"""Section 12: the store, used by the public client and by graphs, with and without an index."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import APIStatusError


@pytest.fixture(scope="module")
def unindexed_client(client):
    """The client of an agent without an index."""
    return client


@pytest.fixture
def store(store_client):
    return store_client.store


@pytest.fixture
def namespace() -> list[str]:
    """A namespace that only this test uses."""
    return [f"t{uuid4().hex}"]


def keys(result):
    return [item["key"] for item in result["items"]]


def scores(result):
    return [
        (item["key"], None if item["score"] is None else round(item["score"], 3))
        for item in result["items"]
    ]


def rejection_status(call, *arguments, **options):
    with pytest.raises(APIStatusError) as caught:
        call(*arguments, **options)
    return caught.value.status_code


# Items


def test_an_item_is_read_back_as_it_was_put(store, namespace):
    value = {"text": "tea", "list": [1, 2.5, None, True], "deep": {"ü": "✓"}}

    assert store.put_item(namespace, "k", value) is None

    item = store.get_item(namespace, "k")
    assert (item["namespace"], item["key"], item["value"]) == (namespace, "k", value)
    assert item["created_at"] == item["updated_at"]
    assert datetime.fromisoformat(item["created_at"]).utcoffset() == timedelta(0)


def test_replacing_an_item_keeps_its_creation_time(store, namespace):
    store.put_item(namespace, "k", {"v": 1})
    first = store.get_item(namespace, "k")
    store.put_item(namespace, "k", {"w": 2})

    second = store.get_item(namespace, "k")
    assert second["value"] == {"w": 2}
    assert second["created_at"] == first["created_at"]
    assert second["updated_at"] > first["updated_at"]


def test_a_missing_item_is_null_and_creates_no_namespace(store, namespace):
    assert store.get_item(namespace, "k") is None
    assert store.list_namespaces(prefix=namespace) == {"namespaces": []}


def test_deleting_an_item_twice_is_no_error(store, namespace):
    store.put_item(namespace, "k", {})

    assert store.delete_item(namespace, "k") is None
    assert store.delete_item(namespace, "k") is None
    assert store.get_item(namespace, "k") is None


def test_items_of_nested_namespaces_are_read(store, namespace):
    store.put_item([*namespace, "a", "b"], "k.with.dots", {"v": 1})

    assert store.get_item([*namespace, "a", "b"], "k.with.dots")["value"] == {"v": 1}
    assert store.get_item([*namespace, "a"], "k.with.dots") is None


@pytest.mark.parametrize("key", ["a/b", "a b", "ключ", "?&=%", "🫖"])
def test_a_key_may_contain_any_characters(store, namespace, key):
    store.put_item(namespace, key, {"key": key})

    assert store.get_item(namespace, key)["value"] == {"key": key}


def test_routes_have_the_statuses_and_bodies_that_clients_expect(store_raw, namespace):
    body = {"namespace": namespace, "key": "k", "value": {}}

    put = store_raw.put("/store/items", json=body)
    missing = store_raw.get("/store/items", params={"namespace": namespace[0], "key": "nothing"})
    no_key = store_raw.get("/store/items", params={"namespace": namespace[0]})
    deleted = store_raw.request("DELETE", "/store/items", json={"namespace": namespace, "key": "k"})
    patched = store_raw.patch("/store/items", json={})

    assert (put.status_code, put.content) == (204, b"")
    assert (missing.status_code, missing.content) == (200, b"null")
    assert (no_key.status_code, no_key.json()) == (400, {"error": "Key is required"})
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert patched.status_code == 405


def test_null_fields_are_treated_as_absent(store_raw, namespace):
    body = {"namespace": namespace, "key": "k", "value": {"v": 1}, "index": None, "ttl": None}
    assert store_raw.put("/store/items", json=body).status_code == 204

    search = {"namespace_prefix": namespace, "filter": None, "query": None, "refresh_ttl": None}
    result = store_raw.post("/store/items/search", json={**search, "limit": 10, "offset": 0})
    assert keys(result.json()) == ["k"]


@pytest.mark.parametrize(
    ("namespace", "status"),
    [([], 400), (["langgraph", "x"], 400), (["a", ""], 422), (["a.b"], 422), (["a", 1], 422)],
)
def test_an_invalid_namespace_is_rejected(store_raw, namespace, status):
    result = store_raw.put("/store/items", json={"namespace": namespace, "key": "k", "value": {}})

    assert result.status_code == status
    assert isinstance(result.json()["detail"], str)


@pytest.mark.parametrize("value", [[1], "text", 1, None])
def test_a_value_that_is_not_an_object_is_rejected(store_raw, namespace, value):
    result = store_raw.put(
        "/store/items", json={"namespace": namespace, "key": "k", "value": value}
    )

    assert result.status_code == 422


def test_agents_of_one_workspace_share_no_items(store, unindexed_client, namespace):
    store.put_item(namespace, "k", {"v": 1})

    assert unindexed_client.store.get_item(namespace, "k") is None
    assert unindexed_client.store.search_items(namespace) == {"items": []}
    unindexed_client.store.delete_item(namespace, "k")
    assert store.get_item(namespace, "k") is not None


def test_the_store_rejects_an_unknown_key(store_url, namespace):
    with get_sync_client(url=store_url, api_key=None, headers={"X-Api-Key": "wrong"}) as anonymous:
        assert rejection_status(anonymous.store.put_item, namespace, "k", {}) == 401
        assert rejection_status(anonymous.store.search_items, []) == 401


# Search


def test_a_prefix_matches_whole_labels(store, namespace):
    [root] = namespace
    for labels, key in [([root], "1"), ([root, "a"], "2"), ([root, "ab"], "3")]:
        store.put_item(labels, key, {})

    assert keys(store.search_items([root])) == ["3", "2", "1"]
    assert keys(store.search_items([root, "a"])) == ["2"]
    assert keys(store.search_items([root[:-1]])) == []


def test_a_search_without_a_prefix_is_accepted(store_raw):
    assert store_raw.post("/store/items/search", json={}).status_code == 200


def test_a_search_is_paged(store, namespace):
    for n in range(13):
        store.put_item(namespace, str(n), {"text": ""})

    assert len(keys(store.search_items(namespace))) == 10
    assert keys(store.search_items(namespace, limit=3, offset=9)) == ["3", "2", "1"]
    assert keys(store.search_items(namespace, limit=1000)) == [str(n) for n in range(12, -1, -1)]
    assert rejection_status(store.search_items, namespace, limit=1001) == 422


@pytest.mark.parametrize(
    ("item_filter", "expected"),
    [
        ({"kind": "tea"}, "ab"),
        ({"kind": {"$eq": "tea"}, "grams": 5}, "a"),
        ({"kind": {"$ne": "tea"}}, "cd"),
        ({"from": {"land": "cn"}}, "b"),
        ({"grams": {"$gt": 5}}, "bc"),
        ({"grams": {"$gte": 5, "$lt": 10}}, "ac"),
        ({"grams": {"$lte": 5}}, "a"),
        ({"day": {"$gt": "2026-01-01"}}, "d"),
        ({"kind": "coffee"}, ""),
    ],
)
def test_a_search_is_filtered(store, namespace, item_filter, expected):
    store.put_item(namespace, "a", {"kind": "tea", "grams": 5, "from": {"land": "cn", "year": 1}})
    store.put_item(namespace, "b", {"kind": "tea", "grams": 10, "from": {"land": "cn"}})
    store.put_item(namespace, "c", {"kind": "cake", "grams": 7.5})
    store.put_item(namespace, "d", {"day": "2026-02-01"})

    assert sorted(keys(store.search_items(namespace, filter=item_filter))) == sorted(expected)


@pytest.mark.parametrize("operator", ["$in", "$regex", "$and"])
def test_an_unsupported_operator_is_rejected(store, namespace, operator):
    assert rejection_status(store.search_items, namespace, filter={"a": {operator: [1]}}) == 400


# Semantic search


@pytest.fixture
def indexed(store, namespace):
    store.put_item(namespace, "tea", {"text": "tea tea"})
    store.put_item(namespace, "both", {"text": "tea and cake"})
    store.put_item(namespace, "ship", {"text": "a ship at sea"})
    store.put_item(namespace, "off", {"text": "tea"}, index=False)
    return namespace


def test_items_are_ranked_by_score_with_unindexed_items_last(store, indexed):
    result = store.search_items(indexed, query="tea")

    assert scores(result) == [("tea", 1.0), ("both", 0.707), ("ship", 0.0), ("off", None)]


def test_a_semantic_search_is_filtered_and_paged(store, indexed):
    assert scores(store.search_items(indexed, query="sea ship", limit=1)) == [("ship", 1.0)]
    assert keys(store.search_items(indexed, query="tea", limit=2, offset=1)) == ["both", "ship"]
    filtered = store.search_items(indexed, query="tea", filter={"text": "a ship at sea"})
    assert scores(filtered) == [("ship", 0.0)]


def test_a_search_without_a_query_has_no_scores(store, indexed):
    assert scores(store.search_items(indexed)) == [
        ("off", None),
        ("ship", None),
        ("both", None),
        ("tea", None),
    ]


def test_an_item_with_several_texts_has_the_highest_score(store, namespace):
    parts = [{"text": "the moon"}, {"text": "the sun"}]
    store.put_item(namespace, "sky", {"parts": parts})

    assert scores(store.search_items(namespace, query="sun")) == [("sky", 1.0)]


def test_an_item_is_indexed_by_the_given_fields(store, namespace):
    store.put_item(namespace, "title", {"title": "moon", "text": "sun"}, index=["title"])

    assert scores(store.search_items(namespace, query="moon")) == [("title", 1.0)]
    assert scores(store.search_items(namespace, query="sun")) == [("title", 0.0)]


def test_a_replaced_item_is_indexed_by_its_new_text(store, namespace):
    store.put_item(namespace, "k", {"text": "tea"})
    store.put_item(namespace, "k", {"text": "moon"})

    assert scores(store.search_items(namespace, query="tea")) == [("k", 0.0)]
    assert scores(store.search_items(namespace, query="moon")) == [("k", 1.0)]


def test_an_item_whose_embedding_fails_is_rejected(store, namespace):
    assert rejection_status(store.put_item, namespace, "k", {"text": "unspeakable"}) == 422
    assert rejection_status(store.search_items, namespace, query="unspeakable") == 422
    assert store.get_item(namespace, "k") is None


def test_a_store_without_an_index_ignores_the_query(unindexed_client, namespace):
    unindexed_client.store.put_item(namespace, "a", {"text": "tea"})
    unindexed_client.store.put_item(namespace, "b", {"text": "sea"}, index=["text"])

    assert scores(unindexed_client.store.search_items(namespace, query="tea")) == [
        ("b", None),
        ("a", None),
    ]


# Namespaces


@pytest.fixture
def namespace_tree(store, namespace):
    for path in ("x", "y/v1", "y/v2", "y/v2/deep", "z/v1"):
        store.put_item([*namespace, *path.split("/")], "k", {}, index=False)
    return namespace


def relative_paths(namespace, result):
    return [
        "/".join(namespace[1:]) for namespace in result["namespaces"] if namespace[0] in namespace
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["x", "y/v1", "y/v2", "y/v2/deep", "z/v1"]),
        ({"suffix": ["v1"]}, ["y/v1", "z/v1"]),
        ({"suffix": ["y", "*"]}, ["y/v1", "y/v2"]),
        ({"max_depth": 2}, ["x", "y", "z"]),
        ({"max_depth": 1}, [""]),
        ({"limit": 2, "offset": 1}, ["y/v1", "y/v2"]),
    ],
)
def test_namespaces_are_listed_by_prefix_suffix_and_depth(store, namespace_tree, options, expected):
    assert (
        relative_paths(namespace_tree, store.list_namespaces(prefix=namespace_tree, **options))
        == expected
    )


def test_a_wildcard_matches_any_label(store, namespace_tree):
    result = store.list_namespaces(prefix=[*namespace_tree, "*", "v2"])

    assert relative_paths(namespace_tree, result) == ["y/v2", "y/v2/deep"]


# Expiry


def test_an_expired_item_is_not_found(store, namespace):
    store.put_item(namespace, "long", {}, index=False)
    store.put_item(namespace, "short", {}, index=False, ttl=0.005)
    deadline = time.monotonic() + 120

    while store.get_item(namespace, "short", refresh_ttl=False) is not None:
        assert time.monotonic() < deadline

    assert keys(store.search_items(namespace)) == ["long"]


def test_reading_an_item_extends_its_ttl(store, namespace):
    for key in ("read", "unread"):
        store.put_item(namespace, key, {}, index=False, ttl=0.1)

    while store.get_item(namespace, "unread", refresh_ttl=False) is not None:
        assert store.get_item(namespace, "read") is not None
        time.sleep(0.2)

    assert store.get_item(namespace, "read") is not None


# In graphs


def run_notes_graph(store_client, **values):
    thread = store_client.threads.create()
    return store_client.runs.wait(thread["thread_id"], "notes", input=values, raise_error=False)


def test_the_client_reads_an_item_that_a_graph_put(store_client, store, namespace):
    run_notes_graph(store_client, namespace=namespace, keep={"k": {"text": "tea"}})

    assert store.get_item(namespace, "k")["value"] == {"text": "tea"}
    assert scores(store.search_items(namespace, query="tea")) == [("k", 1.0)]


def test_a_graph_finds_an_item_that_the_client_put(store_client, store, namespace):
    store.put_item(namespace, "k", {"text": "sea ship"})

    result = run_notes_graph(store_client, namespace=namespace, find="ship")

    [[key, value, score]] = result["items"]
    assert (key, value, round(score, 3)) == ("k", {"text": "sea ship"}, 0.707)
    assert result["namespaces"] == [namespace]


def test_a_graph_finds_items_of_other_threads(store_client, namespace):
    run_notes_graph(store_client, namespace=[*namespace, "a"], keep={"1": {"n": 1}})
    run_notes_graph(store_client, namespace=[*namespace, "b"], keep={"2": {"n": 2}}, index=False)

    result = run_notes_graph(store_client, namespace=namespace, filter={"n": {"$gt": 1}})

    assert result["items"] == [["2", {"n": 2}, None]]
    assert result["namespaces"] == [[*namespace, "a"], [*namespace, "b"]]


def test_a_graph_puts_an_item_with_a_ttl(store_client, store, namespace):
    run_notes_graph(store_client, namespace=namespace, keep={"k": {}}, ttl=0.005)
    deadline = time.monotonic() + 120

    while store.get_item(namespace, "k", refresh_ttl=False) is not None:
        assert time.monotonic() < deadline


def test_a_store_error_fails_the_run(store_client, namespace):
    result = run_notes_graph(store_client, namespace=["langgraph"], keep={"k": {}})
    assert result["__error__"]["error"] == "InvalidNamespaceError"

    result = run_notes_graph(store_client, namespace=namespace, keep={"k": {"text": "unspeakable"}})
    assert result["__error__"] == {"error": "ValueError", "message": "this text cannot be embedded"}


def test_a_stateless_run_stores_an_item(store_client, store, namespace):
    store_client.runs.wait(None, "notes", input={"namespace": namespace, "keep": {"k": {"v": 1}}})

    assert store.get_item(namespace, "k")["value"] == {"v": 1}


def test_the_memory_graph_recalls_a_fact(unindexed_client):
    user = uuid4().hex
    fact = {"user": user, "remember": {"key": "tea", "text": "likes oolong"}}
    unindexed_client.runs.wait(None, "memory", input=fact)

    result = unindexed_client.runs.wait(None, "memory", input={"user": user})

    assert result["memories"] == [["tea", "likes oolong"]]
    item = unindexed_client.store.get_item(["memories", user], "tea")
    assert item["value"] == {"text": "likes oolong"}
