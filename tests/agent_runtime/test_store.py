"""`runtime.store` in runs, on a real graph host and PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.agent_runtime.db.store_operations import store_owner
from apps.agent_runtime.db.write_batch import FencingToken, StaleToken
from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_runtime.graph_calls.call_session import GraphCall
from apps.agent_runtime.hosts.launch import RevisionRef
from apps.agent_server.models import AgentRun, StoreItem, StoreVector
from apps.core.json import dumps, loads
from apps.usage.models import StoredBytes
from tests.agent_runtime.factories import make_revision, make_run, make_thread
from tests.agent_runtime.host_launch import launch_unconfined

AGENT = Path(__file__).parent / "memory"


@pytest.fixture
def engine(settings, transactional_db, tmp_path):
    settings.DATA_DIR = tmp_path
    settings.WARM_GRAPH_HOSTS = 0
    engine = EngineThread("worker@here", lambda _: launch_unconfined(AGENT))
    yield engine
    engine.stop(0)


@pytest.fixture
def run(engine, revision, listen) -> Callable[..., list[Any]]:
    """Return a function that runs store calls in a graph and returns their results."""

    def run(*calls: Any, graph: str = "async") -> list[Any]:
        thread = make_thread(revision)
        complete_calls = [
            [method, args, options] for method, args, options in map(_complete_call, calls)
        ]
        row = make_run(thread, graph, kwargs={"input": {"calls": complete_calls}})
        engine.call(engine.engine.claim_or_queue, thread.pk)
        events = list(listen(row.pk))
        assert events[-1] == ("end", {"status": "success"}), events
        thread.refresh_from_db()
        return thread.values["results"]

    return run


def _complete_call(call):
    method, *rest = call
    return method, rest[0] if rest else [], rest[1] if len(rest) > 1 else {}


KINDS = pytest.mark.parametrize(
    ("graph", "a"), [("async", "a"), ("async", ""), ("sync", "")], ids=["await", "block", "thread"]
)
"""Awaited, called on the loop's own thread, and called on the thread of a node."""


@KINDS
def test_items_are_put_got_replaced_and_deleted(run, graph, a):
    address = [["n", "m"], "k"]

    results = run(
        (f"{a}get", address),
        (f"{a}put", [*address, {"v": 1}]),
        (f"{a}get", address),
        (f"{a}put", [*address, {"w": [2, None, "✓"]}]),
        (f"{a}get", address),
        (f"{a}delete", address),
        (f"{a}get", address),
        graph=graph,
    )

    item = {"namespace": ["n", "m"], "key": "k"}
    assert results == [
        None,
        None,
        {**item, "value": {"v": 1}},
        None,
        {**item, "value": {"w": [2, None, "✓"]}},
        None,
        None,
    ]


@KINDS
def test_search_combines_filter_and_semantic_query(run, graph, a):
    results = run(
        (f"{a}put", [["n"], "tea", {"text": "tea tea", "n": 1}]),
        (f"{a}put", [["n"], "cake", {"text": "cake and tea", "n": 2}]),
        (f"{a}put", [["n"], "none", {"text": "tea", "n": 3}, False]),
        (f"{a}put", [["x"], "sea", {"text": "sea", "n": 4}]),
        (f"{a}search", [["n"]], {"query": "tea", "limit": 5}),
        (f"{a}search", [[]], {"query": "sea", "limit": 1}),
        (f"{a}search", [["n"]], {"filter": {"n": {"$gte": 2}}}),
        (f"{a}search", [["n"]], {"filter": {"n": 1}, "query": "cake"}),
        (f"{a}search", [["n"]], {"limit": 1, "offset": 1}),
        graph=graph,
    )

    by_similarity, elsewhere, filtered, both, page = results[4:]
    scores = [(item["key"], item["score"] and round(item["score"], 3)) for item in by_similarity]
    assert scores == [("tea", 1.0), ("cake", 0.707), ("none", None)]
    assert [item["key"] for item in elsewhere] == ["sea"]
    assert [(item["key"], item["score"]) for item in filtered] == [("none", None), ("cake", None)]
    assert [(item["key"], item["score"]) for item in both] == [("tea", 0.0)]
    assert [item["key"] for item in page] == ["cake"]


@KINDS
def test_namespaces_are_listed_by_prefix_suffix_and_depth(run, graph, a):
    puts = [(f"{a}put", [path.split("/"), "k", {}, False]) for path in ("a/x", "a/y/1", "b/y/1")]
    results = run(
        *puts,
        (f"{a}list_namespaces", [], {"prefix": ["a"]}),
        (f"{a}list_namespaces", [], {"suffix": ["y", "*"]}),
        (f"{a}list_namespaces", [], {"max_depth": 1}),
        (f"{a}list_namespaces", [], {"limit": 1, "offset": 1}),
        graph=graph,
    )

    assert results[3:] == [
        [["a", "x"], ["a", "y", "1"]],
        [["a", "y", "1"], ["b", "y", "1"]],
        [["a"], ["b"]],
        [["a", "y", "1"]],
    ]


@pytest.mark.parametrize(("graph", "method"), [("async", "abatch"), ("sync", "batch")])
def test_a_batch_reads_before_it_writes_and_the_last_write_wins(run, graph, method):
    address = [["n"], "k"]
    results = run(
        ("put", [*address, {"v": 0}]),
        (
            method,
            [
                ["put", *address, {"v": 1}],
                ["get", *address],
                ["put", *address, {"v": 2}],
                ["search", ["n"], {"v": 0}],
                ["namespaces", [["prefix", ["n"]]]],
                ["put", ["n"], "other", None],
                ["get", ["n"], "other"],
            ],
        ),
        ("get", address),
        (method, []),
        graph=graph,
    )

    item = {"namespace": ["n"], "key": "k", "value": {"v": 0}}
    search_hit = {**item, "score": None}
    assert results[1] == [None, item, None, [search_hit], [["n"]], None, None]
    assert results[2]["value"] == {"v": 2}
    assert results[3] == []


def test_two_hundred_concurrent_writes_are_all_stored(run):
    results = run(("parallel", [200]), ("asearch", [["many"]], {"limit": 500}))

    assert {item["value"]["n"] for item in results[1]} == set(range(200))


def test_a_thread_started_by_a_node_reads_the_store(run):
    results = run(("aput", [["n"], "k", {"v": 1}]), ("thread",))

    assert results[1]["value"] == {"v": 1}


def test_only_indexed_fields_get_vectors(run):
    run(
        ("put", [["n"], "fields", {"text": "tea", "parts": [{"text": "a"}, {"text": "b"}]}]),
        ("put", [["n"], "own", {"title": "x", "text": "tea"}, ["title"]]),
        ("put", [["n"], "whole", {"title": "x"}, ["$"]]),
        ("put", [["n"], "nothing", {"text": None, "parts": []}]),
        ("put", [["n"], "off", {"text": "tea"}, False]),
    )

    vectors = StoreVector.objects.order_by("item__created_at", "position")
    paths: dict[str, list[str]] = {}
    for key, path in vectors.values_list("item__key", "path"):
        paths.setdefault(key, []).append(path)
    assert paths == {
        "fields": ["text", "parts[*].text.0", "parts[*].text.1"],
        "own": ["title"],
        "whole": ["$"],
    }


def test_items_expire_after_their_time_to_live(run):
    run(
        ("put", [["n"], "default", {}]),
        ("put", [["n"], "own", {}], {"ttl": 5}),
        ("put", [["n"], "never", {}], {"ttl": None}),
    )

    now = timezone.now()
    minutes_left = {
        item.key: item.expires_at and round((item.expires_at - now) / timedelta(minutes=1))
        for item in StoreItem.unscoped.all()
    }
    assert minutes_left == {"default": 60, "own": 5, "never": None}


def test_reading_an_item_refreshes_its_expiry_unless_disabled(run):
    run(("put", [["n"], "k", {}]))
    soon = timezone.now() + timedelta(minutes=1)
    StoreItem.unscoped.update(expires_at=soon)

    run(("get", [["n"], "k"], {"refresh_ttl": False}), ("search", [["n"]], {"refresh_ttl": False}))
    assert StoreItem.unscoped.get().expires_at == soon

    run(("search", [["n"]]))
    assert StoreItem.unscoped.get().expires_at > soon


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("put", [[], "k", {}]), "InvalidNamespaceError"),
        (("put", [["a.b"], "k", {}]), "InvalidNamespaceError"),
        (("put", [["langgraph"], "k", {}]), "InvalidNamespaceError"),
        (("put", [["n"], "k", "text"]), "TypeError"),
        (("put", [["n"], "k(nul)", {}]), "Refused"),
        (("put", [["n"], "k" * 3000, {}]), "Refused"),
        (("put", [["n"], "", {}]), "Refused"),
        (("put", [["n"], "k", {}], {"ttl": -1}), "Refused"),
        (("search", [["n"]], {"filter": {"a": {"$in": [1]}}}), "ValueError"),
        (("put", [["n"], "k", {"text": "poison"}]), "RuntimeError"),
        (("put", [["n"], "k", {"text": "short"}]), "ValueError"),
        (("search", [["n"]], {"query": "poison"}), "RuntimeError"),
    ],
)
def test_an_invalid_store_call_raises_in_the_node_and_writes_nothing(run, call, error):
    results = run(call)

    assert results[0]["error"] == error, results
    assert not StoreItem.unscoped.exists()


def test_a_full_store_refuses_items_and_deletes_them(run, revision, settings):
    run(("put", [["n"], "k", {"v": 1}]))
    settings.MAX_STORE_STORAGE_BYTES = 1_048_576
    StoredBytes(
        workspace=revision.workspace, kind="store", size=1_048_576, measured_at=timezone.now()
    ).save()

    results = run(("put", [["n"], "k", {"v": 2}]), ("get", [["n"], "k"]), ("delete", [["n"], "k"]))

    assert results[0]["error"] == "Refused"
    assert "the maximum of 1 MB of store items" in results[0]["message"]
    assert results[1]["value"] == {"v": 1}
    assert not StoreItem.unscoped.exists()


def test_nul_characters_in_values_are_replaced(run):
    results = run(("put", [["n"], "k", {"a": "x(nul)y"}]), ("get", [["n"], "k"]))

    assert results[1]["value"] == {"a": "x\ufffdy"}


def test_agents_do_not_see_each_others_items(engine, run, listen):
    run(("put", [["n"], "k", {"v": 1}]))
    other_revision = make_revision()
    thread = make_thread(other_revision)
    calls = [["get", [["n"], "k"], {}], ["search", [[]], {}], ["list_namespaces", [], {}]]
    row = make_run(thread, "async", kwargs={"input": {"calls": calls}})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    list(listen(row.pk))

    thread.refresh_from_db()
    assert thread.values["results"] == [None, [], []]


def test_a_stale_attempt_writes_nothing_to_the_store(engine, revision):
    thread = make_thread(revision)
    row = make_run(thread, "async", status="running", attempt=2)
    StoreItem.unscoped.create(
        workspace=revision.workspace, deployment=revision.deployment,
        namespace=["n"], key="old", value={}, ttl_minutes=5,
        expires_at=timezone.now() + timedelta(minutes=1),
    )  # fmt: skip
    expires_at = StoreItem.unscoped.get().expires_at
    owner = store_owner(RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id))
    answers: list[Any] = []

    def execute(attempt: int, *ops: Any) -> None:
        token = FencingToken(row.pk, attempt)
        engine.run(
            engine.engine.store.execute(owner, ops, token, lambda *answer: answers.append(answer))
        )

    for op in (["put", ["n"], "k", b"{}", None, []], ["put", ["n"], "old", None, None, []]):
        with pytest.raises(StaleToken):
            execute(1, op)
    execute(1, ["get", ["n"], "old", True])

    assert answers[:2] == [(False, "This run now belongs to another attempt.")] * 2
    assert answers[2][0] is True
    assert [item.key for item in StoreItem.unscoped.all()] == ["old"]
    assert StoreItem.unscoped.get().expires_at == expires_at

    execute(2, ["put", ["n"], "k", b"{}", None, []])
    assert answers[3] == (True, [None])
    AgentRun.unscoped.filter(pk=row.pk).update(status="success")
    with pytest.raises(StaleToken):
        execute(2, ["put", ["n"], "k2", b"{}", None, []])
    assert {item.key for item in StoreItem.unscoped.all()} == {"old", "k"}


@pytest.mark.parametrize(
    "ops",
    [
        [["put", ["n"], "k", b"[1]", None, []]],
        [["put", ["n"], "k", b"{", None, []]],
        [["put", "n", "k", b"{}", None, []]],
        [["put", [1], "k", b"{}", None, []]],
        [["put", ["n"], "k", b"{}", "x", []]],
        [["put", ["n"], "k", b"{}", None, [["p", b"123"]]]],
        [["put", ["n"], "k", b"{}", None, [["p", b"\0\0\x80\x7f"]]]],
        [["put", ["n"], "k"]],
        [["get", ["n"], 1, True]],
        [["search", ["n"], b"[", 1, 0, None, True]],
        [["search", ["n"], None, "x", 0, None, True]],
        [["namespaces", [["prefix"]], None, 1, 0]],
        [["drop", "table"]],
        [[]],
        5,
        None,
    ],
)
def test_a_malformed_frame_is_answered_with_an_error(engine, revision, ops):
    thread = make_thread(revision)
    row = make_run(thread, "async", status="running", attempt=1)
    answers: list[Any] = []
    owner = store_owner(RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id))

    engine.run(
        engine.engine.store.execute(
            owner, ops, FencingToken(row.pk, 1), lambda *answer: answers.append(answer)
        )
    )

    assert [succeeded for succeeded, _ in answers] == [False]
    assert not StoreItem.unscoped.exists()


def call_graph(engine, revision, graph_id, method, params):
    ref = RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id)
    graph_call = GraphCall(ref, graph_id, method, None, None, dumps(params))
    return engine.run(engine.engine.call_graph(graph_call, 30))


def test_a_graph_factory_reads_the_store_and_writes_only_in_runs(engine, revision, run):
    run(("put", [["n"], "k", {"v": 1}]))

    reply = call_graph(engine, revision, "made", "schemas", {})
    assert reply.succeeded, reply.body
    assert not StoreItem.unscoped.filter(namespace=["made"]).exists()

    [facts, wrote] = run(graph="made")
    assert (facts["value"], wrote) == ({"v": 1}, True)
    assert StoreItem.unscoped.get(namespace=["made"]).value == {"by": "factory"}


def test_the_host_embeds_texts_for_the_platform(engine, revision):
    reply = call_graph(engine, revision, "", "embed", {"value": {"text": "tea"}, "index": None})
    assert reply.succeeded, reply.body
    [[path, packed]] = loads(reply.body)
    assert (path, packed) == ("text", "AACAPwAAAAAAAAAA")

    reply = call_graph(engine, revision, "", "embed", {"query": "sea"})
    assert loads(reply.body) == "AAAAAAAAAAAAAIA/"

    reply = call_graph(engine, revision, "", "embed", {"value": {"text": "poison"}})
    assert not reply.succeeded
    error = {"error": "RuntimeError", "message": "the model is down", "is_of_agent": True}
    assert loads(reply.body) == error


def test_a_store_item_belongs_to_the_deployment_of_the_claim(engine, revision):
    """The owner comes from the claim, never from a frame."""
    other = make_revision()
    row = make_run(make_thread(revision), "async", status="running", attempt=1)
    answers: list[Any] = []
    owner = store_owner(RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id))

    put = ["put", ["n"], "k", b"{}", None, []]
    token = FencingToken(row.pk, 1)
    engine.run(
        engine.engine.store.execute(owner, [put], token, lambda *answer: answers.append(answer))
    )

    assert answers == [(True, [None])]
    item = StoreItem.unscoped.get()
    assert item.deployment_id == revision.deployment_id != other.deployment_id
    assert uuid.UUID(str(item.pk)).version == 7
