"""The store over HTTP: items, search, namespaces, expiry. Vectors are in tests/contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

import pytest

from apps.agent_server.models import StoreItem, StoreVector
from apps.agent_server.schemas.store import ItemSearch, NewItem
from apps.agent_server.scope import Scope
from apps.agent_server.services import store
from apps.agent_server.store import statements
from apps.agent_server.store.statements import Vector
from apps.core.errors import TooLarge
from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import AgentFactory, route_of
from tests.factories.api_keys import key_for


@pytest.fixture
def put(call):
    async def put(namespace, key, value, **options):
        answer = await call(
            "PUT", "/store/items", {"namespace": namespace, "key": key, "value": value, **options}
        )
        assert answer.status == 204, answer.body
        assert answer.body == b""

    return put


@pytest.fixture
def get_item(call):
    async def get_item(namespace, key, **options):
        query = urlencode(
            {"namespace": ".".join(namespace), "key": key, **options}, quote_via=quote
        )
        answer = await call("GET", f"/store/items?{query}")
        assert answer.status == 200, answer.body
        return answer.json()

    return get_item


@pytest.fixture
def search_keys(call):
    async def search_keys(prefix, **options):
        answer = await call("POST", "/store/items/search", {"namespace_prefix": prefix, **options})
        assert answer.status == 200, answer.body
        return [make_item["key"] for make_item in answer.json()["items"]]

    return search_keys


@pytest.fixture
def list_namespaces(call):
    async def list_namespaces(**filters):
        answer = await call("POST", "/store/namespaces", filters)
        assert answer.status == 200, answer.body
        return answer.json()["namespaces"]

    return list_namespaces


async def expire():
    """Set the expiry of every item with a time to live into the past."""
    past = datetime.now(UTC) - timedelta(hours=1)
    await in_thread(StoreItem.unscoped.exclude(ttl_minutes=None).update, expires_at=past)


ROUTES = [
    ("PUT", "/store/items", {"namespace": ["a"], "key": "k", "value": {}}),
    ("GET", "/store/items?namespace=a&key=k", None),
    ("GET", "/store/items", None),
    ("DELETE", "/store/items", {"namespace": ["a"], "key": "k"}),
    ("POST", "/store/items/search", {}),
    ("POST", "/store/namespaces", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_unauthorized_callers_get_no_information(  # noqa: PLR0917
    asgi_app, agent, outsider_key, method, path, body
):
    anonymous = await Caller(agent.slug)(method, path, body)
    outsider = await Caller(agent.slug, outsider_key)(method, path, body)

    assert (anonymous.status, outsider.status) == (401, 404)


async def test_read_only_key_reads_and_cannot_write(asgi_app, agent, reader_key):
    reader = Caller(agent.slug, reader_key)

    answers = [(await reader(method, path, body)).status for method, path, body in ROUTES]

    assert answers == [403, 200, 400, 403, 200, 200]


async def test_item_is_returned_as_it_was_put(put, get_item):
    value = {"tea": {"kind": "oolong", "grams": [4, 4.5]}, "none": None, "ünï": "✓"}

    await put(["users", "ann"], "likes", value)

    make_item = await get_item(["users", "ann"], "likes")
    assert make_item["namespace"] == ["users", "ann"]
    assert make_item["key"] == "likes"
    assert make_item["value"] == value
    assert make_item["created_at"] == make_item["updated_at"]
    assert make_item["created_at"].endswith("+00:00")
    assert set(make_item) == {"namespace", "key", "value", "created_at", "updated_at"}


async def test_a_null_value_is_rejected_with_the_way_to_remove_an_item(call):
    answer = await call("PUT", "/store/items", {"namespace": ["a"], "key": "b", "value": None})

    assert answer.status == 422
    assert "delete the item to remove it" in answer.json()["detail"]


async def test_replaced_item_keeps_its_creation_time(put, get_item):
    await put(["n"], "k", {"v": 1})
    first = await get_item(["n"], "k")

    await put(["n"], "k", {"w": 2})

    second = await get_item(["n"], "k")
    assert second["value"] == {"w": 2}
    assert second["created_at"] == first["created_at"]
    assert second["updated_at"] > first["updated_at"]


async def test_missing_item_is_null_and_is_not_created(call, list_namespaces):
    answer = await call("GET", "/store/items?namespace=no.where&key=k")

    assert (answer.status, answer.body) == (200, b"null")
    assert await list_namespaces() == []


async def test_deletion_is_idempotent(call, put, get_item):
    await put(["n"], "k", {"v": 1})
    body = {"namespace": ["n"], "key": "k"}

    statuses = [(await call("DELETE", "/store/items", body)).status for _ in range(2)]

    assert statuses == [204, 204]
    assert await get_item(["n"], "k") is None


async def test_agents_do_not_share_items(agent, put, get_item):
    other = await in_thread(lambda: AgentFactory(workspace=agent.workspace))
    call_other = Caller(other.slug, await in_thread(key_for, agent.workspace, "write"))
    await put(["n"], "k", {"here": True})

    item_response = await call_other("GET", "/store/items?namespace=n&key=k")
    search_response = await call_other("POST", "/store/items/search", {})
    namespaces_response = await call_other("POST", "/store/namespaces", {})
    await call_other("PUT", "/store/items", {"namespace": ["n"], "key": "k", "value": {"there": 1}})
    await call_other("DELETE", "/store/items", {"namespace": ["n"], "key": "k"})

    assert item_response.json() is None
    assert search_response.json() == {"items": []}
    assert namespaces_response.json() == {"namespaces": []}
    assert (await get_item(["n"], "k"))["value"] == {"here": True}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"namespace": [], "key": "k", "value": {}}, 400, "Namespace cannot be empty."),
        ({"key": "k", "value": {}}, 400, "Namespace cannot be empty."),
        (
            {"namespace": ["langgraph"], "key": "k", "value": {}},
            400,
            "Root label for namespace cannot be \"langgraph\". Got: ['langgraph']",
        ),
        ({"namespace": ["a", ""], "key": "k", "value": {}}, 422, "cannot be empty"),
        ({"namespace": ["a.b"], "key": "k", "value": {}}, 422, "cannot contain periods"),
        ({"namespace": ["a", 1], "key": "k", "value": {}}, 422, "must be strings"),
        ({"namespace": "a", "key": "k", "value": {}}, 422, "namespace"),
        ({"namespace": ["a"] * 65, "key": "k", "value": {}}, 422, "more than 64 labels"),
        ({"namespace": ["a" * 2000], "key": "k", "value": {}}, 422, "longer than 2000 bytes"),
        ({"namespace": ["a"], "key": "", "value": {}}, 422, "key"),
        ({"namespace": ["a"], "value": {}}, 422, "key"),
        ({"namespace": ["a"], "key": "k"}, 422, "value"),
        ({"namespace": ["a"], "key": "k", "value": [1]}, 422, "value"),
        ({"namespace": ["a"], "key": "k", "value": "text"}, 422, "value"),
        ({"namespace": ["a"], "key": "k", "value": {}, "ttl": 0}, 422, "ttl"),
        ({"namespace": ["a"], "key": "k", "value": {}, "ttl": "soon"}, 422, "ttl"),
        ({"namespace": ["a"], "key": "k", "value": {}, "ttl": 1e300}, 422, "ttl"),
        ({"namespace": ["a"], "key": "k", "value": {}, "index": "text"}, 422, "index"),
    ],
)
async def test_invalid_item_is_rejected_with_a_message(
    call, list_namespaces, body, status, message
):
    answer = await call("PUT", "/store/items", body)

    assert answer.status == status, answer.body
    assert message in answer.json()["detail"]
    assert await list_namespaces() == []


async def test_longest_namespace_and_key_fit_the_index(put, get_item):
    namespace = ["é" * 14] * 64
    key = "k" * (2000 - 64 * 28)

    await put(namespace, key, {"v": 1})

    assert (await get_item(namespace, key))["value"] == {"v": 1}


async def test_characters_that_postgresql_rejects_are_replaced(put, get_item):
    await put(["n"], "k", {"nul": "a\0b", "deep": [[[{"x": "\0"}]]], "big": 10**30})

    value = (await get_item(["n"], "k"))["value"]
    assert value["nul"] == "a\ufffdb"
    assert value["deep"] == [[[{"x": "\ufffd"}]]]


async def test_reading_requires_a_key_and_a_namespace(call):
    no_key = await call("GET", "/store/items?namespace=a")
    no_namespace = await call("GET", "/store/items?key=k")

    assert (no_key.status, no_key.json()) == (400, {"error": "Key is required"})
    assert no_namespace.status == 400


async def test_keys_can_contain_periods_slashes_and_spaces(put, get_item):
    for key in ("a.b", "a/b", "a b", "ключ", "%41", "?&="):
        await put(["n"], key, {"key": key})
        assert (await get_item(["n"], key))["value"] == {"key": key}


# Search


async def test_search_returns_items_below_the_prefix_newest_first(put, search_keys):
    for namespace, key in [
        (["a"], "1"),
        (["a", "b"], "2"),
        (["a", "b", "c"], "3"),
        (["ab"], "4"),
        (["a b"], "5"),
        (["b"], "6"),
    ]:
        await put(namespace, key, {})

    assert await search_keys([]) == ["6", "5", "4", "3", "2", "1"]
    assert await search_keys(["a"]) == ["3", "2", "1"]
    assert await search_keys(["a", "b"]) == ["3", "2"]
    assert await search_keys(["a", "b", "c"]) == ["3"]
    assert await search_keys(["a", "c"]) == []


async def test_search_without_prefix_returns_all_items(call, put):
    await put(["a"], "1", {})

    answer = await call("POST", "/store/items/search", {})

    [make_item] = answer.json()["items"]
    assert (make_item["namespace"], make_item["key"], make_item["score"]) == (["a"], "1", None)


async def test_search_is_paginated(put, search_keys):
    for n in range(12):
        await put(["n"], str(n), {})

    assert await search_keys(["n"]) == [str(n) for n in range(11, 1, -1)]
    assert await search_keys(["n"], limit=5) == ["11", "10", "9", "8", "7"]
    assert await search_keys(["n"], limit=5, offset=10) == ["1", "0"]
    assert await search_keys(["n"], limit=5, offset=100) == []


async def test_search_with_too_many_bytes_is_refused(call, put, search_keys, monkeypatch):
    for n in range(3):
        await put(["n"], str(n), {"text": "x" * 1_000})
    monkeypatch.setattr(statements, "MAX_PAGE_BYTES", 2_500)

    answer = await call("POST", "/store/items/search", {"namespace_prefix": ["n"]})

    assert answer.status == 413
    assert "search with a smaller `limit`" in answer.json()["detail"]
    assert await search_keys(["n"], limit=2) == ["2", "1"]


ROWS = {
    "a": {"kind": "tea", "grams": 5, "tags": ["x", "y"], "from": {"land": "cn", "year": 2020}},
    "b": {"kind": "tea", "grams": 10, "tags": ["x"], "from": {"land": "cn"}},
    "c": {"kind": "cake", "grams": 7.5, "from": None},
    "d": {"grams": "7", "kind": True, "day": "2026-01-02"},
    "e": {"day": "2026-03-01"},
}


@pytest.mark.parametrize(
    ("filter_", "keys"),
    [
        ({}, "abcde"),
        (None, "abcde"),
        ({"kind": "tea"}, "ab"),
        ({"kind": {"$eq": "tea"}}, "ab"),
        ({"kind": "tea", "grams": 10}, "b"),
        ({"grams": 10.0}, "b"),
        ({"kind": True}, "d"),
        ({"from": {"land": "cn"}}, "b"),
        ({"from": {"$eq": {"land": "cn", "year": 2020}}}, "a"),
        ({"tags": ["x"]}, "b"),
        ({"tags": ["y", "x"]}, ""),
        ({"from": None}, "cde"),
        ({"kind": {"$ne": "tea"}}, "cde"),
        ({"from": {"$ne": None}}, "ab"),
        ({"grams": {"$gt": 5}}, "bc"),
        ({"grams": {"$gte": 5}}, "abc"),
        ({"grams": {"$lt": 10}}, "ac"),
        ({"grams": {"$lte": 10}}, "abc"),
        ({"grams": {"$gt": 5, "$lt": 10}}, "c"),
        ({"grams": {"$gt": "5"}}, "d"),
        ({"day": {"$gte": "2026-01-02", "$lt": "2026-02-01"}}, "d"),
        ({"nothing": 1}, ""),
        ({"grams'; --": 1}, ""),
        ({"from": {}}, ""),
    ],
)
async def test_search_filters_compare_values(put, search_keys, filter_, keys):
    for key, value in ROWS.items():
        await put(["n"], key, value)

    assert sorted(await search_keys(["n"], filter=filter_)) == sorted(keys)


@pytest.mark.parametrize(
    "filter_",
    [
        {"a": {"$in": [1]}},
        {"a": {"$regex": "x"}},
        {"a": {"$gt": 1, "b": 2}},
        {"a": {"$gt": None}},
        {"a": {"$lt": [1]}},
        {"a": {"$gt": True}},
    ],
)
async def test_unknown_filter_operators_are_rejected(call, filter_):
    answer = await call("POST", "/store/items/search", {"namespace_prefix": [], "filter": filter_})

    assert answer.status == 400, answer.body
    assert answer.json()["code"] == "bad_filter"


@pytest.mark.parametrize(
    "body",
    [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"filter": [1]}, {"namespace_prefix": ["a.b"]}],
)
async def test_invalid_search_is_rejected(call, body):
    assert (await call("POST", "/store/items/search", body)).status == 422


async def test_query_is_ignored_without_an_index(call, put):
    await put(["n"], "a", {"text": "x"})
    await put(["n"], "b", {"text": "y"})

    answer = await call("POST", "/store/items/search", {"namespace_prefix": ["n"], "query": "x"})

    items = answer.json()["items"]
    assert [(make_item["key"], make_item["score"]) for make_item in items] == [
        ("b", None),
        ("a", None),
    ]


# Namespaces


@pytest.fixture
async def nested_items(put):
    for path in ("a", "a/x", "a/y/v1", "a/y/v2", "a/y/v2/deep", "ab/y/v1", "b/y/v1", "a b"):
        for key in ("1", "2"):
            await put(path.split("/"), key, {})


def join_namespaces(namespaces):
    return ["/".join(namespace) for namespace in namespaces]


@pytest.mark.parametrize(
    ("filters", "namespaces"),
    [
        ({}, "a,a/x,a/y/v1,a/y/v2,a/y/v2/deep,a b,ab/y/v1,b/y/v1"),
        ({"prefix": ["a"]}, "a,a/x,a/y/v1,a/y/v2,a/y/v2/deep"),
        ({"prefix": ["a", "y"]}, "a/y/v1,a/y/v2,a/y/v2/deep"),
        ({"prefix": ["a", "*", "v2"]}, "a/y/v2,a/y/v2/deep"),
        ({"prefix": ["*", "y"]}, "a/y/v1,a/y/v2,a/y/v2/deep,ab/y/v1,b/y/v1"),
        ({"suffix": ["v1"]}, "a/y/v1,ab/y/v1,b/y/v1"),
        ({"suffix": ["*", "v1"]}, "a/y/v1,ab/y/v1,b/y/v1"),
        ({"suffix": ["y", "*"]}, "a/y/v1,a/y/v2,ab/y/v1,b/y/v1"),
        ({"prefix": ["a"], "suffix": ["v1"]}, "a/y/v1"),
        ({"max_depth": 1}, "a,a b,ab,b"),
        ({"max_depth": 2}, "a,a/x,a/y,a b,ab/y,b/y"),
        ({"max_depth": 2, "prefix": ["a", "y"]}, "a/y"),
        ({"max_depth": 1, "suffix": ["v1"]}, "a,ab,b"),
        ({"max_depth": 9, "prefix": ["b"]}, "b/y/v1"),
        ({"limit": 2}, "a,a/x"),
        ({"limit": 2, "offset": 6}, "ab/y/v1,b/y/v1"),
        ({"limit": 2, "offset": 1, "max_depth": 1}, "a b,ab"),
        ({"prefix": ["nowhere"]}, ""),
    ],
)
async def test_namespaces_are_listed_by_prefix_suffix_and_depth(
    nested_items, list_namespaces, filters, namespaces
):
    expected = [name for name in namespaces.split(",") if name]

    assert join_namespaces(await list_namespaces(**filters)) == expected


@pytest.mark.parametrize("body", [{"limit": 0}, {"max_depth": 0}, {"prefix": ["a.b"]}])
async def test_invalid_namespace_request_is_rejected(call, body):
    assert (await call("POST", "/store/namespaces", body)).status == 422


async def test_namespace_disappears_with_its_last_item(call, put, list_namespaces):
    await put(["a", "b"], "k", {})
    await call("DELETE", "/store/items", {"namespace": ["a", "b"], "key": "k"})

    assert await list_namespaces() == []


# Expiry


async def test_expired_item_is_not_returned_anywhere(put, get_item, search_keys, list_namespaces):
    await put(["n"], "short", {}, ttl=1)
    await put(["n"], "long", {})
    await expire()

    assert await get_item(["n"], "short") is None
    assert await search_keys(["n"]) == ["long"]
    assert await list_namespaces() == [["n"]]

    await put(["m"], "short", {}, ttl=0.5)
    await expire()
    assert await list_namespaces() == [["n"]]
    assert await list_namespaces(max_depth=1) == [["n"]]


async def test_item_put_after_expiry_is_new(put, get_item):
    await put(["n"], "k", {"v": 1}, ttl=1)
    first = await get_item(["n"], "k")
    await expire()

    await put(["n"], "k", {"v": 2})

    assert (await get_item(["n"], "k"))["created_at"] > first["created_at"]


async def read_expiry(key):
    make_item = await in_thread(StoreItem.unscoped.get, key=key)
    return make_item.expires_at


async def test_reading_refreshes_the_time_to_live_unless_disabled(put, get_item, search_keys):
    await put(["n"], "k", {}, ttl=10)
    initial_expiry = await read_expiry("k")

    await get_item(["n"], "k", refresh_ttl="false")
    await search_keys(["n"], refresh_ttl=False)
    assert await read_expiry("k") == initial_expiry

    await get_item(["n"], "k")
    refreshed_expiry = await read_expiry("k")
    assert refreshed_expiry > initial_expiry

    await search_keys(["n"])
    assert await read_expiry("k") > refreshed_expiry


async def test_replacing_an_item_replaces_its_time_to_live(put):
    await put(["n"], "k", {}, ttl=10)
    await put(["n"], "k", {})

    assert await read_expiry("k") is None


async def test_expiry_settings_of_the_agent_apply(agent, put, get_item):
    def configure():
        revision = agent.active_revision
        revision.config = {"store": {"ttl": {"default_ttl": 5, "refresh_on_read": False}}}
        revision.save()
        route_of(agent)

    await in_thread(configure)

    await put(["n"], "k", {})
    await put(["n"], "own", {}, ttl=60)

    initial_expiry = await read_expiry("k")
    assert timedelta(minutes=4) < initial_expiry - datetime.now(UTC) < timedelta(minutes=5)
    assert await read_expiry("own") - datetime.now(UTC) > timedelta(minutes=59)
    await get_item(["n"], "k")
    assert await read_expiry("k") == initial_expiry
    await get_item(["n"], "k", refresh_ttl="true")
    assert await read_expiry("k") > initial_expiry


def make_scope(agent) -> Scope:
    return Scope(route_of(agent))


def make_item(key, **options):
    return NewItem.check({"namespace": ["n"], "key": key, "value": {}, **options})


def make_vector(*numbers) -> Vector:
    return Vector("text", len(numbers), str(list(numbers)))


def test_sweeper_deletes_expired_items_and_their_vectors(agent):
    scope = make_scope(agent)
    store.put(scope, make_item("gone", ttl=1), [make_vector(1, 0)])
    store.put(scope, make_item("stays", ttl=1), [make_vector(1, 0)])
    past = datetime.now(UTC) - timedelta(hours=1)
    StoreItem.unscoped.filter(key="gone").update(expires_at=past)

    assert store.delete_expired() == 1
    assert store.delete_expired() == 0

    assert [row.key for row in StoreItem.unscoped.all()] == ["stays"]
    assert StoreVector.objects.count() == 1


# Vectors, through the services


def search_scores(scope, query, **options):
    body = ItemSearch.check({"namespace_prefix": ["n"], "query": "x", **options})
    return [
        (hit.key, None if hit.score is None else round(hit.score, 3))
        for hit in store.search(scope, body, query)
    ]


def test_most_similar_item_is_first_and_items_without_vector_last(agent):
    scope = make_scope(agent)
    store.put(scope, make_item("none"))
    store.put(scope, make_item("far"), [make_vector(0, 1)])
    store.put(scope, make_item("near"), [make_vector(1, 0.1)])
    store.put(scope, make_item("against"), [make_vector(-1, 0)])
    store.put(scope, make_item("other model"), [make_vector(1, 0, 0)])
    store.put(scope, make_item("nothing"), [make_vector(0, 0)])

    assert search_scores(scope, make_vector(1, 0)) == [
        ("near", 0.995),
        ("far", 0.0),
        ("against", -1.0),
        ("nothing", None),
        ("other model", None),
        ("none", None),
    ]


def test_similarity_search_with_too_many_bytes_is_refused(agent, monkeypatch):
    scope = make_scope(agent)
    for n in range(3):
        store.put(scope, make_item(str(n), value={"text": "x" * 1_000}), [make_vector(1, n)])
    monkeypatch.setattr(statements, "MAX_PAGE_BYTES", 2_500)

    with pytest.raises(TooLarge):
        search_scores(scope, make_vector(1, 0))
    assert len(search_scores(scope, make_vector(1, 0), limit=2)) == 2


def test_best_of_several_vectors_ranks_the_item(agent):
    scope = make_scope(agent)
    store.put(scope, make_item("many"), [make_vector(0, 1), make_vector(1, 0), make_vector(-1, 0)])

    assert search_scores(scope, make_vector(1, 0)) == [("many", 1.0)]


def test_similarity_search_is_paginated_and_filtered(agent):
    scope = make_scope(agent)
    for n in range(6):
        store.put(scope, make_item(str(n), value={"odd": n % 2}), [make_vector(1, n)])

    assert [key for key, _ in search_scores(scope, make_vector(1, 0), limit=2, offset=1)] == [
        "1",
        "2",
    ]
    assert [key for key, _ in search_scores(scope, make_vector(1, 0), filter={"odd": 1})] == [
        "1",
        "3",
        "5",
    ]


def test_replacing_an_item_replaces_its_vectors(agent):
    scope = make_scope(agent)
    store.put(scope, make_item("k"), [make_vector(1, 0), make_vector(0, 1)])

    store.put(scope, make_item("k"), [make_vector(-1, 0)])
    assert search_scores(scope, make_vector(1, 0)) == [("k", -1.0)]

    store.put(scope, make_item("k"))
    assert search_scores(scope, make_vector(1, 0)) == [("k", None)]


def test_deleting_an_item_deletes_its_vectors(agent):
    scope = make_scope(agent)
    store.put(scope, make_item("k"), [make_vector(1, 0)])

    store.delete(scope, make_item("k"))

    assert not StoreVector.objects.exists()
