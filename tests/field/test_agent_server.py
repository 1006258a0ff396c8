"""Reports of people who use agent servers, replayed on a graph host.

Each test names the public report whose situation it rebuilds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_server.models import AgentRun, Checkpoint, Cron, Thread
from apps.core.sync_bridge import in_thread
from apps.deployments.models import Deployment
from tests.agent_runtime.host_launch import launch_unconfined
from tests.agent_server.asgi import Answer, Caller
from tests.agent_server.conftest import asgi_app, call, clear_caches, key, redis_client
from tests.factories.agent_server import AgentFactory

__all__ = ["asgi_app", "call", "clear_caches", "key", "redis_client"]

AGENT = Path(__file__).parent / "agent"
GRAPHS = ("collect", "guarded", "slipping", "tenant", "toned")
UNKNOWN_CHECKPOINT = "1ef4f797-8335-6428-8001-8a1503f9b875"


@pytest.fixture
def agent(transactional_db) -> Deployment:
    return AgentFactory(graphs=GRAPHS)


@pytest.fixture(autouse=True)
def engine(settings, agent, redis_client, tmp_path) -> Iterator[EngineThread]:
    """A worker that executes runs and graph calls."""
    settings.DATA_DIR = tmp_path
    settings.WARM_GRAPH_HOSTS = 0
    engine = EngineThread("worker@here", lambda _: launch_unconfined(AGENT))
    yield engine
    engine.stop(0)


async def create_thread(call: Caller) -> str:
    return str((await call("POST", "/threads", {})).json()["thread_id"])


async def run(call: Caller, path: str, graph_id: str, **fields: Any) -> Answer:
    """Create a run and wait for its result."""
    return await call("POST", f"{path}/runs/wait", {"assistant_id": graph_id, **fields})


async def read_state(call: Caller, path: str) -> dict[str, Any]:
    answer = await call("GET", f"{path}/state")
    assert answer.status == 200, answer.body
    state: dict[str, Any] = answer.json()
    return state


def count_rows() -> tuple[int, int, int, int]:
    models = (Thread.unscoped, AgentRun.unscoped, Checkpoint.objects, Cron.unscoped)
    return tuple(model.count() for model in models)  # type: ignore[return-value]


# References that do not exist: aegra#320, a run from a checkpoint of the thread


async def test_run_from_a_checkpoint_of_the_thread_continues_there(call):
    path = f"/threads/{await create_thread(call)}"
    await run(call, path, "collect", input={"items": ["a"]})
    first = await read_state(call, path)
    await run(call, path, "collect", input={"items": ["b"]})

    fork = await run(
        call, path, "collect", input={"items": ["c"]}, checkpoint_id=first["checkpoint_id"]
    )

    assert fork.json() == {"items": ["a", "taken", "c", "taken"]}


async def test_reference_to_a_missing_checkpoint_is_refused_and_changes_nothing(call):
    path, other_path = [f"/threads/{await create_thread(call)}" for _ in range(2)]
    for each in (path, other_path):
        await run(call, each, "collect", input={"items": ["a"]})
    state, other_state = [await read_state(call, each) for each in (path, other_path)]
    of_other_thread = other_state["checkpoint_id"]
    foreign = {**state["checkpoint"], "thread_id": other_state["checkpoint"]["thread_id"]}
    counts = await in_thread(count_rows)

    for unknown in (UNKNOWN_CHECKPOINT, of_other_thread):
        references: list[dict[str, Any]] = [
            {"checkpoint_id": unknown},
            {"checkpoint": {"checkpoint_id": unknown, "checkpoint_ns": ""}},
            {"config": {"configurable": {"checkpoint_id": unknown}}},
            {"checkpoint": {**state["checkpoint"], "checkpoint_map": {"": unknown}}},
        ]
        body = {"assistant_id": "collect", "input": {"items": ["b"]}}
        for reference in references:
            for target in (path, ""):
                for suffix in ("/runs", "/runs/wait", "/runs/stream"):
                    answer = await call("POST", target + suffix, {**body, **reference})
                    assert (answer.status, answer.json()["code"]) == (404, "checkpoint_not_found")
                    assert (unknown if target else "a new thread") in answer.json()["detail"]
            cron = {**body, **reference, "schedule": "0 0 1 1 *"}
            for target in (path, ""):
                answer = await call("POST", f"{target}/runs/crons", cron)
                assert (answer.status, answer.json()["code"]) == (404, "checkpoint_not_found")
        batch = [body, {**body, "thread_id": path.rpartition("/")[2], "checkpoint_id": unknown}]
        update = {"values": {"items": ["b"]}, "as_node": "take", "checkpoint_id": unknown}
        at = {"checkpoint": {"checkpoint_id": unknown, "checkpoint_ns": ""}}
        for method, suffix, request in [
            ("POST", f"{path}/state", update),
            ("POST", f"{path}/state", {"values": None, **at}),
            ("GET", f"{path}/state/{unknown}", None),
            ("POST", f"{path}/state/checkpoint", at),
            ("GET", f"{path}/history?before={unknown}", None),
            ("POST", f"{path}/history", {"before": unknown}),
            ("POST", f"{path}/history", {"before": {"configurable": {"checkpoint_id": unknown}}}),
            ("POST", f"{path}/history", at),
            ("POST", "/runs/batch", batch),
        ]:
            answer = await call(method, suffix, request)
            assert (answer.status, answer.json()["code"]) == (404, "checkpoint_not_found"), suffix
            assert unknown in answer.json()["detail"]
    # The checkpoint is of this thread, the reference names another one.
    refused = await run(call, path, "collect", checkpoint=foreign)
    assert (refused.status, refused.json()["detail"][:20]) == (422, "checkpoint.thread_id")

    assert await read_state(call, path) == state
    assert await in_thread(count_rows) == counts


async def test_run_whose_assistant_names_a_missing_checkpoint_fails_and_keeps_the_state(call):
    path = f"/threads/{await create_thread(call)}"
    await run(call, path, "collect", input={"items": ["a"]})
    state = await read_state(call, path)
    config = {"configurable": {"checkpoint_id": UNKNOWN_CHECKPOINT}}
    assistant = await call("POST", "/assistants", {"graph_id": "collect", "config": config})

    answer = await run(call, path, assistant.json()["assistant_id"], input={"items": ["b"]})

    error = answer.json()["__error__"]
    assert error["error"] == "CheckpointNotFound"
    assert UNKNOWN_CHECKPOINT in error["message"]
    assert (await read_state(call, path))["values"] == state["values"]


async def test_protocol_command_with_a_missing_checkpoint_names_it(call):
    path = f"/threads/{await create_thread(call)}"
    await run(call, path, "collect", input={"items": ["a"]})
    commands = [
        ("state.fork", {"checkpoint_id": UNKNOWN_CHECKPOINT}),
        ("state.listCheckpoints", {"before": UNKNOWN_CHECKPOINT}),
        (
            "run.start",
            {
                "assistant_id": "collect",
                "config": {"configurable": {"checkpoint_id": UNKNOWN_CHECKPOINT}},
            },
        ),
    ]

    for method, params in commands:
        command = {"id": 1, "method": method, "params": params}
        answer = (await call("POST", f"{path}/commands", command)).json()
        assert (answer["error"], UNKNOWN_CHECKPOINT in answer["message"]) == (
            "no_such_checkpoint",
            True,
        )


async def test_missing_reference_of_a_body_is_named(call):
    missing = str(uuid4())
    known = await create_thread(call)

    answers = [
        (await run(call, f"/threads/{known}", missing), "assistant_id"),
        (await run(call, f"/threads/{missing}", "collect"), "thread_id"),
        (await run(call, "", missing), "assistant_id"),
        (await call("POST", "/runs/batch", [{"assistant_id": missing}]), "assistant_id"),
        (
            await call("POST", "/runs/batch", [{"assistant_id": "collect", "thread_id": missing}]),
            "thread_id",
        ),
        (
            await call("POST", "/runs/crons", {"assistant_id": missing, "schedule": "* * * * *"}),
            "assistant_id",
        ),
    ]

    for answer, field in answers:
        assert answer.status == 404
        named = {"field": field, "message": f"{missing} does not exist here"}
        assert answer.json()["errors"] == [named], answer.json()


async def test_every_missing_reference_is_refused_and_changes_nothing(call):
    missing = str(uuid4())
    known = f"/threads/{await create_thread(call)}"
    await run(call, known, "collect", input={"items": ["a"]})
    created = await call("POST", "/assistants", {"graph_id": "collect"})
    assistant = f"/assistants/{created.json()['assistant_id']}"
    cron = {"assistant_id": "collect", "schedule": "0 0 1 1 *"}
    counts, state = await in_thread(count_rows), await read_state(call, known)
    thread_id = known.rpartition("/")[2]

    for method, path, body in [
        ("GET", f"/threads/{missing}", None),
        ("PATCH", f"/threads/{missing}", {"metadata": {}}),
        ("DELETE", f"/threads/{missing}", None),
        ("POST", f"/threads/{missing}/copy", None),
        ("GET", f"/threads/{missing}/state", None),
        ("POST", f"/threads/{missing}/state", {"values": {"items": []}}),
        ("GET", f"/threads/{missing}/history", None),
        ("GET", f"/threads/{missing}/runs", None),
        ("GET", f"{known}/runs/{missing}", None),
        ("POST", f"{known}/runs/{missing}/cancel", None),
        ("DELETE", f"{known}/runs/{missing}", None),
        ("POST", "/runs/cancel", {"thread_id": missing, "run_ids": [missing]}),
        ("POST", "/runs/cancel", {"thread_id": thread_id, "run_ids": [missing]}),
        ("POST", f"/threads/{missing}/runs/crons", cron),
        ("PATCH", f"/runs/crons/{missing}", {"schedule": "0 0 1 1 *"}),
        ("DELETE", f"/runs/crons/{missing}", None),
        ("GET", f"/assistants/{missing}", None),
        ("PATCH", f"/assistants/{missing}", {"metadata": {}}),
        ("POST", f"/assistants/{missing}/versions", {}),
        ("POST", f"{assistant}/latest", {"version": 99}),
        ("PATCH", assistant, {"graph_id": "gone"}),
        ("POST", "/assistants", {"graph_id": "gone"}),
    ]:
        answer = await call(method, path, body)

        assert answer.status in {404, 422}, (method, path, answer.status, answer.body)
        assert answer.json()["detail"]
    assert await in_thread(count_rows) == counts
    assert await read_state(call, known) == state


# Failures of the graph in reads: langgraph#6491, input that a pydantic state refuses


BAD, GOOD = {"count": "many"}, {"count": 1}


@pytest.mark.parametrize("durability", ["async", "exit"])
async def test_thread_stays_usable_after_input_that_the_state_refuses(call, durability):
    path = f"/threads/{await create_thread(call)}"

    failed = await run(call, path, "guarded", input=BAD, durability=durability)
    broken = await read_state(call, path)
    broken_history = await call("GET", f"{path}/history?limit=10")
    thread = await call("GET", path)
    good = await run(call, path, "guarded", input=GOOD, durability=durability)
    state = await read_state(call, path)
    history = await call("GET", f"{path}/history?limit=10")

    assert failed.json()["__error__"]["error"] == "ValidationError"
    assert (broken["values"], broken["next"], broken["tasks"]) == ({"count": "many"}, [], [])
    assert broken["graph_error"]["error"] == "ValidationError"
    assert broken["metadata"]["step"] == 0
    assert (thread.json()["status"], thread.json()["values"]) == ("error", {"count": "many"})
    assert broken_history.json()[0] == broken
    assert good.json() == state["values"] == {"count": 2}
    assert "graph_error" not in state
    if durability == "async":
        assert broken["parent_checkpoint"] == broken_history.json()[1]["checkpoint"]
        next_nodes = [entry["next"] for entry in history.json()]
        assert next_nodes == [[], ["count_up"], ["__start__"], [], ["__start__"]]


async def test_update_repairs_a_thread_whose_state_the_graph_refuses(call):
    path = f"/threads/{await create_thread(call)}"
    await run(call, path, "guarded", input=GOOD)
    await run(call, path, "guarded", input=BAD)

    # The node that would run next would fail.
    refused = await call("POST", f"{path}/state", {"values": BAD, "as_node": "__start__"})
    still_broken = await read_state(call, path)
    update = await call("POST", f"{path}/state", {"values": {"count": 7}, "as_node": "count_up"})
    state = await read_state(call, path)
    continued = await run(call, path, "guarded", input={"note": "on"})

    assert (refused.status, refused.json()["code"]) == (400, "edit_refused")
    assert still_broken["values"] == {"count": "many"}
    assert update.status == 200, update.body
    assert (state["values"], state["next"]) == ({"count": 7}, [])
    assert continued.json() == {"count": 8, "note": "on"}


async def test_thread_stays_usable_after_a_node_wrote_what_the_state_refuses(call):
    path = f"/threads/{await create_thread(call)}"
    await run(call, path, "slipping", input=GOOD)

    await run(call, path, "slipping", input={"note": "slip"})
    broken = await read_state(call, path)
    again = await run(call, path, "slipping", input={"note": "fine", "count": 5})

    assert broken["values"] == {"count": "many", "note": "slip"}
    assert broken["graph_error"]["error"] == "ValidationError"
    assert again.json() == {"count": 7, "note": "fine"}


async def test_run_without_input_on_a_refused_state_fails_again(call):
    path = f"/threads/{await create_thread(call)}"
    await run(call, path, "guarded", input=BAD)
    state = await read_state(call, path)

    answer = await run(call, path, "guarded", input=None)

    assert answer.json()["__error__"]["error"] == "ValidationError"
    assert await read_state(call, path) == state


async def test_failure_of_the_graph_in_a_read_is_named_and_is_not_the_platforms(call):
    config = {"configurable": {"other": "field"}}
    created = await call("POST", "/assistants", {"graph_id": "tenant", "config": config})
    assistant = f"/assistants/{created.json()['assistant_id']}"
    path = f"/threads/{await create_thread(call)}"
    tenant = {"configurable": {"tenant": "acme"}}
    await run(call, path, "tenant", input={"items": ["a"]}, config=tenant)
    await in_thread(Thread.unscoped.update, state=None)

    for suffix in ("/schemas", "/graph", "/subgraphs"):
        answer = await call("GET", assistant + suffix)
        assert (answer.status, answer.json()["code"]) == (400, "graph_failed")
        assert answer.json()["detail"] == "Graph 'tenant' failed with KeyError: 'tenant'"
    state = await read_state(call, path)
    history = await call("GET", f"{path}/history?limit=2")

    assert state["values"] == {"items": ["a", "taken"]}
    assert state["graph_error"] == {"error": "KeyError", "message": "'tenant'"}
    values = [entry["values"] for entry in history.json()]
    assert values == [{"items": ["a", "taken"]}, {"items": ["a"]}]
    assert history.json()[0] == state


async def test_thread_of_a_graph_that_the_revision_lacks_stays_readable(call):
    path = f"/threads/{await create_thread(call)}"
    await run(call, path, "collect", input={"items": ["a"]})
    intact = await read_state(call, path)
    await in_thread(Thread.unscoped.update, state=None, metadata={"graph_id": "gone"})

    state = await read_state(call, path)

    assert state.pop("graph_error") == {
        "error": "ProjectError",
        "message": "This revision has no graph `gone`.",
    }
    assert state == intact


# Factories that need a configuration: aegra#245


async def test_graph_that_the_build_could_not_create_is_described_on_request(call, agent):
    revision = agent.active_revision
    await in_thread(revision.graphs.filter(graph_id="tenant").update, schemas={}, drawing={})
    tenant = {"graph_id": "tenant", "config": {"configurable": {"tenant": "acme"}}}
    assistant_id = (await call("POST", "/assistants", tenant)).json()["assistant_id"]

    described = await call("GET", f"/assistants/{assistant_id}/schemas")
    drawn = await call("GET", f"/assistants/{assistant_id}/graph")
    unknown = [await call("GET", f"/assistants/tenant/{part}") for part in ("schemas", "graph")]

    assert described.json()["input_schema"]["properties"].keys() == {"items"}
    assert [node["id"] for node in drawn.json()["nodes"]] == ["__start__", "take", "__end__"]
    for answer in unknown:
        assert (answer.status, answer.json()["code"]) == (400, "graph_failed")
        assert answer.json()["detail"] == "Graph 'tenant' failed with KeyError: 'tenant'"


# `context` beside `configurable`: langgraph#6342, a RemoteGraph with a context and a thread

NO_SETTINGS = {
    **dict.fromkeys(("thread_id", "run_id", "graph_id", "assistant_id"), "other"),
    "user_id": "",
    "langgraph_request_id": "1",
    "langgraph_auth_user": None,
    "__pregel_resuming": False,
    "checkpoint_ns": "node:1",
    "checkpoint_map": {},
}
"""What a RemoteGraph passes on within a run of another graph."""


async def test_context_is_accepted_beside_references_of_the_callers_run(call):
    path = f"/threads/{await create_thread(call)}"
    body: dict[str, Any] = {"context": {"tone": "curt"}, "input": {"items": []}}

    for name, value in NO_SETTINGS.items():
        answer = await run(call, "", "toned", config={"configurable": {name: value}}, **body)
        assert (answer.status, answer.json()) == (200, {"items": ["curt"]}), name
    answer = await run(call, path, "toned", config={"configurable": NO_SETTINGS}, **body)
    assert answer.json() == {"items": ["curt"]}
    cron = {**body, "config": {"configurable": NO_SETTINGS}, "schedule": "0 0 1 1 *"}
    answer = await call("POST", "/runs/crons", {"assistant_id": "toned", **cron})
    assert answer.status == 200, answer.body
    settings = {"config": {"configurable": NO_SETTINGS}, "context": {"tone": "curt"}}
    assistant = (await call("POST", "/assistants", {"graph_id": "toned", **settings})).json()
    assert assistant["context"] == assistant["config"]["configurable"] == {"tone": "curt"}
    thread = (await read_state(call, path))["checkpoint"]["thread_id"]
    assert thread == path.rpartition("/")[2]


async def test_context_is_refused_beside_settings(call):
    for name, value in {"tone": "curt", "model": "m", "user_id": "u"}.items():
        both = {"context": {"tone": "curt"}, "config": {"configurable": {name: value}}}
        body = {"assistant_id": "toned", "input": {"items": []}, **both}
        for method, target, request in [
            ("POST", "/runs/wait", body),
            ("POST", "/runs/crons", {**body, "schedule": "0 0 1 1 *"}),
            ("POST", "/runs/batch", [body]),
            ("POST", "/assistants", {"graph_id": "toned", **both}),
        ]:
            answer = await call(method, target, request)
            assert (answer.status, answer.json()["code"]) == (400, "config_and_context"), target
