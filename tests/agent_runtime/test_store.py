"""`runtime.store` in runs, on a real graph host and PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.agent_runtime.db.run_store import store_owner
from apps.agent_runtime.db.write_batch import FencingToken, StaleToken
from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_runtime.graph_calls.call_session import GraphCall
from apps.agent_runtime.hosts.launch import RevisionRef, launch_unconfined
from apps.agent_server.models import AgentRun, StoreItem, StoreVector
from apps.core.json import dumps, loads
from tests.agent_runtime.factories import make_revision, make_run, make_thread

AGENT = Path(__file__).parent / "memory"


@pytest.fixture
def engine(settings, transactional_db, tmp_path):
    settings.DATA_DIR = tmp_path
    engine = EngineThread("worker@here", lambda _: launch_unconfined(AGENT))
    yield engine
    engine.stop(0)


@pytest.fixture
def run(engine, revision, listen) -> Callable[..., list[Any]]:
    """What the calls return, made by a run."""

    def run(*calls: Any, graph: str = "async") -> list[Any]:
        thread = make_thread(revision)
        full = [[method, args, options] for method, args, options in map(_whole, calls)]
        row = make_run(thread, graph, kwargs={"input": {"calls": full}})
        engine.call(engine.engine.claim_or_queue, thread.pk)
        events = list(listen(row.pk))
        assert events[-1] == ("end", {"status": "success"}), events
        thread.refresh_from_db()
        return thread.values["results"]

    return run


def _whole(call):
    method, *rest = call
    return method, rest[0] if rest else [], rest[1] if len(rest) > 1 else {}


KINDS = pytest.mark.parametrize(
    ("graph", "a"), [("async", "a"), ("async", ""), ("sync", "")], ids=["await", "block", "thread"]
)
"""Awaited, called on the loop's own thread, and called on the thread of a node."""


@KINDS
def test_items_are_put_got_replaced_and_deleted(run, graph, a):
    place = [["n", "m"], "k"]

    results = run(
        (f"{a}get", place),
        (f"{a}put", [*place, {"v": 1}]),
        (f"{a}get", place),
        (f"{a}put", [*place, {"w": [2, None, "✓"]}]),
        (f"{a}get", place),
        (f"{a}delete", place),
        (f"{a}get", place),
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
def test_searching_by_filter_and_by_meaning(run, graph, a):
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

    by_meaning, elsewhere, filtered, both, page = results[4:]
    scores = [(item["key"], item["score"] and round(item["score"], 3)) for item in by_meaning]
    assert scores == [("tea", 1.0), ("cake", 0.707), ("none", None)]
    assert [item["key"] for item in elsewhere] == ["sea"]
    assert [(item["key"], item["score"]) for item in filtered] == [("none", None), ("cake", None)]
    assert [(item["key"], item["score"]) for item in both] == [("tea", 0.0)]
    assert [item["key"] for item in page] == ["cake"]


@KINDS
def test_listing_namespaces(run, graph, a):
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
def test_a_batch_reads_before_it_writes_and_the_last_write_counts(run, graph, method):
    place = [["n"], "k"]
    results = run(
        ("put", [*place, {"v": 0}]),
        (
            method,
            [
                ["put", *place, {"v": 1}],
                ["get", *place],
                ["put", *place, {"v": 2}],
                ["search", ["n"], {"v": 0}],
                ["namespaces", [["prefix", ["n"]]]],
                ["put", ["n"], "other", None],
                ["get", ["n"], "other"],
            ],
        ),
        ("get", place),
        (method, []),
        graph=graph,
    )

    item = {"namespace": ["n"], "key": "k", "value": {"v": 0}}
    found = {**item, "score": None}
    assert results[1] == [None, item, None, [found], [["n"]], None, None]
    assert results[2]["value"] == {"v": 2}
    assert results[3] == []


def test_many_at_once(run):
    results = run(("parallel", [200]), ("asearch", [["many"]], {"limit": 500}))

    assert {item["value"]["n"] for item in results[1]} == set(range(200))


def test_threads_of_a_node_use_the_store_too(run):
    results = run(("aput", [["n"], "k", {"v": 1}]), ("thread",))

    assert results[1]["value"] == {"v": 1}


def test_what_is_indexed(run):
    run(
        ("put", [["n"], "fields", {"text": "tea", "parts": [{"text": "a"}, {"text": "b"}]}]),
        ("put", [["n"], "own", {"title": "x", "text": "tea"}, ["title"]]),
        ("put", [["n"], "whole", {"title": "x"}, ["$"]]),
        ("put", [["n"], "nothing", {"text": None, "parts": []}]),
        ("put", [["n"], "off", {"text": "tea"}, False]),
    )

    found = StoreVector.objects.order_by("item__created_at", "position")
    paths: dict[str, list[str]] = {}
    for key, path in found.values_list("item__key", "path"):
        paths.setdefault(key, []).append(path)
    assert paths == {
        "fields": ["text", "parts[*].text.0", "parts[*].text.1"],
        "own": ["title"],
        "whole": ["$"],
    }


def test_times_to_live(run):
    run(
        ("put", [["n"], "default", {}]),
        ("put", [["n"], "own", {}], {"ttl": 5}),
        ("put", [["n"], "never", {}], {"ttl": None}),
    )

    now = timezone.now()
    left = {
        item.key: item.expires_at and round((item.expires_at - now) / timedelta(minutes=1))
        for item in StoreItem.unscoped.all()
    }
    assert left == {"default": 60, "own": 5, "never": None}


def test_reading_prolongs_a_life_unless_told_otherwise(run):
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
def test_what_cannot_be_done_raises_in_the_node_and_writes_nothing(run, call, error):
    results = run(call)

    assert results[0]["error"] == error, results
    assert not StoreItem.unscoped.exists()


def test_values_that_postgresql_refuses_are_mended(run):
    results = run(("put", [["n"], "k", {"a": "x(nul)y"}]), ("get", [["n"], "k"]))

    assert results[1]["value"] == {"a": "x\ufffdy"}


def test_agents_do_not_see_each_others_items(engine, run, listen):
    run(("put", [["n"], "k", {"v": 1}]))
    stranger = make_revision()
    thread = make_thread(stranger)
    calls = [["get", [["n"], "k"], {}], ["search", [[]], {}], ["list_namespaces", [], {}]]
    row = make_run(thread, "async", kwargs={"input": {"calls": calls}})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    list(listen(row.pk))

    thread.refresh_from_db()
    assert thread.values["results"] == [None, [], []]


def test_a_stale_attempt_writes_nothing(engine, revision):
    thread = make_thread(revision)
    row = make_run(thread, "async", status="running", attempt=2)
    StoreItem.unscoped.create(
        workspace=revision.workspace, deployment=revision.deployment,
        namespace=["n"], key="old", value={}, ttl_minutes=5,
        expires_at=timezone.now() + timedelta(minutes=1),
    )  # fmt: skip
    expires_at = StoreItem.unscoped.get().expires_at
    owner = store_owner(RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id))
    said: list[Any] = []

    def perform(attempt: int, *ops: Any) -> None:
        token = FencingToken(row.pk, attempt)
        engine.wait_for(
            engine.engine.store.execute(owner, ops, token, lambda *told: said.append(told))
        )

    for op in (["put", ["n"], "k", b"{}", None, []], ["put", ["n"], "old", None, None, []]):
        with pytest.raises(StaleToken):
            perform(1, op)
    perform(1, ["get", ["n"], "old", True])

    assert said[:2] == [(False, "This run now belongs to another attempt.")] * 2
    assert said[2][0] is True
    assert [item.key for item in StoreItem.unscoped.all()] == ["old"]
    assert StoreItem.unscoped.get().expires_at == expires_at

    perform(2, ["put", ["n"], "k", b"{}", None, []])
    assert said[3] == (True, [None])
    AgentRun.unscoped.filter(pk=row.pk).update(status="success")
    with pytest.raises(StaleToken):
        perform(2, ["put", ["n"], "k2", b"{}", None, []])
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
def test_frames_that_make_no_sense_are_answered(engine, revision, ops):
    thread = make_thread(revision)
    row = make_run(thread, "async", status="running", attempt=1)
    said: list[Any] = []
    owner = store_owner(RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id))

    engine.wait_for(
        engine.engine.store.execute(
            owner, ops, FencingToken(row.pk, 1), lambda *told: said.append(told)
        )
    )

    assert [done for done, _ in said] == [False]
    assert not StoreItem.unscoped.exists()


def ask(engine, revision, graph_id, method, params):
    ref = RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id)
    question = GraphCall(ref, graph_id, method, None, None, dumps(params))
    return engine.wait_for(engine.engine.call_graph(question, 30))


def test_a_factory_reads_the_store_and_writes_in_runs_only(engine, revision, run):
    run(("put", [["n"], "k", {"v": 1}]))

    reply = ask(engine, revision, "made", "schemas", {})
    assert reply.succeeded, reply.body
    assert not StoreItem.unscoped.filter(namespace=["made"]).exists()

    [facts, wrote] = run(graph="made")
    assert (facts["value"], wrote) == ({"v": 1}, True)
    assert StoreItem.unscoped.get(namespace=["made"]).value == {"by": "factory"}


def test_the_platform_has_texts_embedded_by_the_host(engine, revision):
    reply = ask(engine, revision, "", "embed", {"value": {"text": "tea"}, "index": None})
    assert reply.succeeded, reply.body
    [[path, packed]] = loads(reply.body)
    assert (path, packed) == ("text", "AACAPwAAAAAAAAAA")

    reply = ask(engine, revision, "", "embed", {"query": "sea"})
    assert loads(reply.body) == "AAAAAAAAAAAAAIA/"

    reply = ask(engine, revision, "", "embed", {"value": {"text": "poison"}})
    assert not reply.succeeded
    assert loads(reply.body) == {"error": "RuntimeError", "message": "the model is down"}


def test_a_run_id_is_no_token_of_another_deployment(engine, revision):
    """The owner comes from the claim, never from a frame."""
    other = make_revision()
    row = make_run(make_thread(revision), "async", status="running", attempt=1)
    said: list[Any] = []
    owner = store_owner(RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id))

    put = ["put", ["n"], "k", b"{}", None, []]
    token = FencingToken(row.pk, 1)
    engine.wait_for(
        engine.engine.store.execute(owner, [put], token, lambda *told: said.append(told))
    )

    assert said == [(True, [None])]
    item = StoreItem.unscoped.get()
    assert item.deployment_id == revision.deployment_id != other.deployment_id
    assert uuid.UUID(str(item.pk)).version == 7
