"""Section 12: the store, by the public client and by graphs, with and without an index."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import APIStatusError

from tests.contract.memory import deployed
from tests.response_deadline import with_deadline


@pytest.fixture(scope="module")
def url(live):
    return deployed(live)


@pytest.fixture(scope="module")
def sdk(live, url):
    with with_deadline(get_sync_client(url=url, api_key=live.api_key, timeout=60)) as client:
        yield client


@pytest.fixture(scope="module")
def plain(client):
    """The client of an agent without an index."""
    return client


@pytest.fixture
def store(sdk):
    return sdk.store


@pytest.fixture
def place() -> list[str]:
    """A namespace of this test's own."""
    return [f"t{uuid4().hex}"]


@pytest.fixture
def raw(live, url):
    with httpx.Client(base_url=url, headers=live.headers, timeout=60) as client:
        yield client


def keys(answer):
    return [item["key"] for item in answer["items"]]


def scores(answer):
    return [
        (item["key"], None if item["score"] is None else round(item["score"], 3))
        for item in answer["items"]
    ]


def refused(call, *words, **more):
    with pytest.raises(APIStatusError) as caught:
        call(*words, **more)
    return caught.value.status_code


# Items


def test_an_item_comes_back_as_it_was_put(store, place):
    value = {"text": "tea", "list": [1, 2.5, None, True], "deep": {"ü": "✓"}}

    assert store.put_item(place, "k", value) is None

    item = store.get_item(place, "k")
    assert (item["namespace"], item["key"], item["value"]) == (place, "k", value)
    assert item["created_at"] == item["updated_at"]
    assert datetime.fromisoformat(item["created_at"]).utcoffset() == timedelta(0)


def test_replacing_keeps_the_time_of_making(store, place):
    store.put_item(place, "k", {"v": 1})
    first = store.get_item(place, "k")
    store.put_item(place, "k", {"w": 2})

    second = store.get_item(place, "k")
    assert second["value"] == {"w": 2}
    assert second["created_at"] == first["created_at"]
    assert second["updated_at"] > first["updated_at"]


def test_a_missing_item_is_null_and_its_namespace_is_not_made(store, place):
    assert store.get_item(place, "k") is None
    assert store.list_namespaces(prefix=place) == {"namespaces": []}


def test_deleting_is_silent_and_may_be_repeated(store, place):
    store.put_item(place, "k", {})

    assert store.delete_item(place, "k") is None
    assert store.delete_item(place, "k") is None
    assert store.get_item(place, "k") is None


def test_nested_namespaces_are_joined_with_dots_when_read(store, place):
    store.put_item([*place, "a", "b"], "k.with.dots", {"v": 1})

    assert store.get_item([*place, "a", "b"], "k.with.dots")["value"] == {"v": 1}
    assert store.get_item([*place, "a"], "k.with.dots") is None


@pytest.mark.parametrize("key", ["a/b", "a b", "ключ", "?&=%", "🫖"])
def test_keys_of_all_kinds(store, place, key):
    store.put_item(place, key, {"key": key})

    assert store.get_item(place, key)["value"] == {"key": key}


def test_statuses_and_bodies_are_those_that_clients_wait_for(raw, place):
    body = {"namespace": place, "key": "k", "value": {}}

    put = raw.put("/store/items", json=body)
    missing = raw.get("/store/items", params={"namespace": place[0], "key": "nothing"})
    no_key = raw.get("/store/items", params={"namespace": place[0]})
    deleted = raw.request("DELETE", "/store/items", json={"namespace": place, "key": "k"})
    wrong = raw.patch("/store/items", json={})

    assert (put.status_code, put.content) == (204, b"")
    assert (missing.status_code, missing.content) == (200, b"null")
    assert (no_key.status_code, no_key.json()) == (400, {"error": "Key is required"})
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert wrong.status_code == 405


def test_nulls_of_the_javascript_client_mean_absent(raw, place):
    body = {"namespace": place, "key": "k", "value": {"v": 1}, "index": None, "ttl": None}
    assert raw.put("/store/items", json=body).status_code == 204

    search = {"namespace_prefix": place, "filter": None, "query": None, "refresh_ttl": None}
    answer = raw.post("/store/items/search", json={**search, "limit": 10, "offset": 0})
    assert keys(answer.json()) == ["k"]


@pytest.mark.parametrize(
    ("namespace", "status"),
    [([], 400), (["langgraph", "x"], 400), (["a", ""], 422), (["a.b"], 422), (["a", 1], 422)],
)
def test_namespaces_that_cannot_be(raw, namespace, status):
    answer = raw.put("/store/items", json={"namespace": namespace, "key": "k", "value": {}})

    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize("value", [[1], "text", 1, None])
def test_values_are_objects(raw, place, value):
    answer = raw.put("/store/items", json={"namespace": place, "key": "k", "value": value})

    assert answer.status_code == 422


def test_agents_of_one_workspace_share_nothing(store, plain, place):
    store.put_item(place, "k", {"v": 1})

    assert plain.store.get_item(place, "k") is None
    assert plain.store.search_items(place) == {"items": []}
    plain.store.delete_item(place, "k")
    assert store.get_item(place, "k") is not None


def test_without_a_key_nothing_is_told(url, place):
    with get_sync_client(url=url, api_key=None, headers={"X-Api-Key": "wrong"}) as stranger:
        assert refused(stranger.store.put_item, place, "k", {}) == 401
        assert refused(stranger.store.search_items, []) == 401


# Search


def test_prefixes_are_whole_labels(store, place):
    [root] = place
    for namespace, key in [([root], "1"), ([root, "a"], "2"), ([root, "ab"], "3")]:
        store.put_item(namespace, key, {})

    assert keys(store.search_items([root])) == ["3", "2", "1"]
    assert keys(store.search_items([root, "a"])) == ["2"]
    assert keys(store.search_items([root[:-1]])) == []


def test_search_without_a_prefix_answers(raw):
    assert raw.post("/store/items/search", json={}).status_code == 200


def test_pages_of_a_search(store, place):
    for n in range(13):
        store.put_item(place, str(n), {"text": ""})

    assert len(keys(store.search_items(place))) == 10
    assert keys(store.search_items(place, limit=3, offset=9)) == ["3", "2", "1"]
    assert keys(store.search_items(place, limit=1000)) == [str(n) for n in range(12, -1, -1)]
    assert refused(store.search_items, place, limit=1001) == 422


@pytest.mark.parametrize(
    ("wanted", "expected"),
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
def test_filters(store, place, wanted, expected):
    store.put_item(place, "a", {"kind": "tea", "grams": 5, "from": {"land": "cn", "year": 1}})
    store.put_item(place, "b", {"kind": "tea", "grams": 10, "from": {"land": "cn"}})
    store.put_item(place, "c", {"kind": "cake", "grams": 7.5})
    store.put_item(place, "d", {"day": "2026-02-01"})

    assert sorted(keys(store.search_items(place, filter=wanted))) == sorted(expected)


@pytest.mark.parametrize("operator", ["$in", "$regex", "$and"])
def test_other_operators_are_refused(store, place, operator):
    assert refused(store.search_items, place, filter={"a": {operator: [1]}}) == 400


# By meaning


@pytest.fixture
def indexed(store, place):
    store.put_item(place, "tea", {"text": "tea tea"})
    store.put_item(place, "both", {"text": "tea and cake"})
    store.put_item(place, "ship", {"text": "a ship at sea"})
    store.put_item(place, "off", {"text": "tea"}, index=False)
    return place


def test_the_likest_is_first_and_what_is_not_indexed_last(store, indexed):
    answer = store.search_items(indexed, query="tea")

    assert scores(answer) == [("tea", 1.0), ("both", 0.707), ("ship", 0.0), ("off", None)]


def test_filters_and_pages_of_a_likeness_search(store, indexed):
    assert scores(store.search_items(indexed, query="sea ship", limit=1)) == [("ship", 1.0)]
    assert keys(store.search_items(indexed, query="tea", limit=2, offset=1)) == ["both", "ship"]
    found = store.search_items(indexed, query="tea", filter={"text": "a ship at sea"})
    assert scores(found) == [("ship", 0.0)]


def test_without_a_query_there_are_no_scores(store, indexed):
    assert scores(store.search_items(indexed)) == [
        ("off", None),
        ("ship", None),
        ("both", None),
        ("tea", None),
    ]


def test_of_several_texts_of_an_item_the_likest_counts(store, place):
    parts = [{"text": "the moon"}, {"text": "the sun"}]
    store.put_item(place, "sky", {"parts": parts})

    assert scores(store.search_items(place, query="sun")) == [("sky", 1.0)]


def test_an_item_may_say_what_of_it_is_found(store, place):
    store.put_item(place, "title", {"title": "moon", "text": "sun"}, index=["title"])

    assert scores(store.search_items(place, query="moon")) == [("title", 1.0)]
    assert scores(store.search_items(place, query="sun")) == [("title", 0.0)]


def test_a_replaced_item_is_found_by_its_new_meaning(store, place):
    store.put_item(place, "k", {"text": "tea"})
    store.put_item(place, "k", {"text": "moon"})

    assert scores(store.search_items(place, query="tea")) == [("k", 0.0)]
    assert scores(store.search_items(place, query="moon")) == [("k", 1.0)]


def test_what_the_model_refuses_is_refused_and_not_stored(store, place):
    assert refused(store.put_item, place, "k", {"text": "unspeakable"}) == 422
    assert refused(store.search_items, place, query="unspeakable") == 422
    assert store.get_item(place, "k") is None


def test_an_agent_without_an_index_ignores_the_query(plain, place):
    plain.store.put_item(place, "a", {"text": "tea"})
    plain.store.put_item(place, "b", {"text": "sea"}, index=["text"])

    assert scores(plain.store.search_items(place, query="tea")) == [("b", None), ("a", None)]


# Namespaces


@pytest.fixture
def many(store, place):
    for path in ("x", "y/v1", "y/v2", "y/v2/deep", "z/v1"):
        store.put_item([*place, *path.split("/")], "k", {}, index=False)
    return place


def below(place, answer):
    return ["/".join(namespace[1:]) for namespace in answer["namespaces"] if namespace[0] in place]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ["x", "y/v1", "y/v2", "y/v2/deep", "z/v1"]),
        ({"suffix": ["v1"]}, ["y/v1", "z/v1"]),
        ({"suffix": ["y", "*"]}, ["y/v1", "y/v2"]),
        ({"max_depth": 2}, ["x", "y", "z"]),
        ({"max_depth": 1}, [""]),
        ({"limit": 2, "offset": 1}, ["y/v1", "y/v2"]),
    ],
)
def test_namespaces(store, many, more, expected):
    assert below(many, store.list_namespaces(prefix=many, **more)) == expected


def test_a_star_is_any_label(store, many):
    answer = store.list_namespaces(prefix=[*many, "*", "v2"])

    assert below(many, answer) == ["y/v2", "y/v2/deep"]


# Expiry


def test_what_lived_its_time_is_gone(store, place):
    store.put_item(place, "long", {}, index=False)
    store.put_item(place, "short", {}, index=False, ttl=0.005)
    deadline = time.monotonic() + 60

    while store.get_item(place, "short", refresh_ttl=False) is not None:
        assert time.monotonic() < deadline

    assert keys(store.search_items(place)) == ["long"]


def test_reading_prolongs_a_life(store, place):
    store.put_item(place, "k", {}, index=False, ttl=0.08)
    until = time.monotonic() + 7

    while time.monotonic() < until:
        assert store.get_item(place, "k") is not None
        assert keys(store.search_items(place)) == ["k"]


# In graphs


def run(sdk, **values):
    thread = sdk.threads.create()
    return sdk.runs.wait(thread["thread_id"], "notes", input=values, raise_error=False)


def test_what_a_graph_puts_the_client_sees(sdk, store, place):
    run(sdk, place=place, keep={"k": {"text": "tea"}})

    assert store.get_item(place, "k")["value"] == {"text": "tea"}
    assert scores(store.search_items(place, query="tea")) == [("k", 1.0)]


def test_what_the_client_puts_a_graph_sees(sdk, store, place):
    store.put_item(place, "k", {"text": "sea ship"})

    answer = run(sdk, place=place, find="ship")

    [[key, value, score]] = answer["found"]
    assert (key, value, round(score, 3)) == ("k", {"text": "sea ship"}, 0.707)
    assert answer["namespaces"] == [place]


def test_a_graph_finds_what_other_threads_kept(sdk, place):
    run(sdk, place=[*place, "a"], keep={"1": {"n": 1}})
    run(sdk, place=[*place, "b"], keep={"2": {"n": 2}}, index=False)

    answer = run(sdk, place=place, filter={"n": {"$gt": 1}})

    assert answer["found"] == [["2", {"n": 2}, None]]
    assert answer["namespaces"] == [[*place, "a"], [*place, "b"]]


def test_a_graph_may_let_things_expire(sdk, store, place):
    run(sdk, place=place, keep={"k": {}}, ttl=0.005)
    deadline = time.monotonic() + 60

    while store.get_item(place, "k", refresh_ttl=False) is not None:
        assert time.monotonic() < deadline


def test_a_graphs_mistakes_are_its_own_errors(sdk, place):
    answer = run(sdk, place=["langgraph"], keep={"k": {}})
    assert answer["__error__"]["error"] == "InvalidNamespaceError"

    answer = run(sdk, place=place, keep={"k": {"text": "unspeakable"}})
    assert answer["__error__"] == {"error": "ValueError", "message": "that cannot be said"}


def test_stateless_runs_remember_too(sdk, store, place):
    sdk.runs.wait(None, "notes", input={"place": place, "keep": {"k": {"v": 1}}})

    assert store.get_item(place, "k")["value"] == {"v": 1}


def test_the_shared_memory_graph(plain):
    user = uuid4().hex
    fact = {"user": user, "remember": {"key": "tea", "text": "likes oolong"}}
    plain.runs.wait(None, "memory", input=fact)

    answer = plain.runs.wait(None, "memory", input={"user": user})

    assert answer["memories"] == [["tea", "likes oolong"]]
    item = plain.store.get_item(["memories", user], "tea")
    assert item["value"] == {"text": "likes oolong"}
