"""Trace ids of attempts, and the traces that a host sends before its exit."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import uuid4

from apps.trace_store.dotted_order import format_segment
from tests.graph_host.conftest import Host
from tests.receiver import Receiver

AGENT = """
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    word: str

def say(state: State) -> State:
    return {"word": "done"}

graph = StateGraph(State).add_node(say).add_edge(START, "say").compile()
"""


def test_a_retry_has_the_trace_id_of_its_attempt(host):
    agent_host = host({"agent.py": AGENT}, graphs={"a": "./agent.py:graph"})
    run_id, trace_id = str(uuid4()), str(uuid4())

    events, done = agent_host.run(
        "a",
        {"input": {}, "stream_mode": ["events"]},
        run_id=run_id,
        trace_id=trace_id,
        attempt=2,
    )

    assert done["status"] == "success"
    first = events[0][1]
    assert (first["event"], first["run_id"]) == ("on_chain_start", trace_id)
    assert (first["metadata"]["run_id"], first["metadata"]["run_attempt"]) == (run_id, 2)


def test_a_graph_without_a_name_of_its_own_is_traced_by_its_id(host):
    named = AGENT.replace(".compile()", '.compile(name="speaker")')
    factory = AGENT.replace("graph = ", "def make(config):\n    return ")
    agent_host = host(
        {"agent.py": AGENT, "named.py": named, "factory.py": factory},
        graphs={
            "desk": "./agent.py:graph",
            "named": "./named.py:graph",
            "made": "./factory.py:make",
        },
    )

    def first_event(graph_id):
        events, done = agent_host.run(graph_id, {"input": {}, "stream_mode": ["events"]})
        assert done["status"] == "success"
        return events[0][1]

    assert [first_event(name)["name"] for name in ("desk", "named", "made")] == [
        "desk",
        "speaker",
        "made",
    ]


def test_a_run_is_traced_below_its_parent_in_the_parents_project(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    config = {"dependencies": ["."], "graphs": {"a": "./agent.py:graph"}}
    (tmp_path / "langgraph.json").write_text(json.dumps(config))
    run_id, root_id = str(uuid4()), uuid4()
    dotted_order = format_segment(datetime.now(UTC), root_id)
    with Receiver() as receiver:
        env = {
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_ENDPOINT": receiver.url,
            "LANGSMITH_API_KEY": "key",
            "LANGSMITH_PROJECT": "own",
        }
        agent_host = Host(tmp_path, env)
        parent = {"dotted_order": dotted_order, "project_name": "experiment"}
        kwargs = {"input": {}, "trace_parent": parent}
        agent_host.run("a", kwargs, run_id=run_id, trace_id=run_id)
        agent_host.send("exit", 0)
        assert agent_host.process.wait(60) == 0
        agent_host.close()
        requests = [receiver.next(1) for _ in range(receiver.count_unread)]
    bodies = b"".join(request.body for request in requests)
    assert f'"dotted_order":"{dotted_order}.'.encode() in bodies
    assert f'"trace_id":"{root_id}"'.encode() in bodies
    assert f'"id":"{run_id}"'.encode() in bodies
    assert b'"session_name":"experiment"' in bodies
    assert b'"session_name":"own"' not in bodies
    assert f'"id":"{root_id}"'.encode() not in bodies.replace(b'"trace_id"', b"").replace(
        b'"parent_run_id"', b""
    )


def test_a_host_sends_its_traces_before_an_exit_on_request(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    config = {"dependencies": ["."], "graphs": {"a": "./agent.py:graph"}}
    (tmp_path / "langgraph.json").write_text(json.dumps(config))
    with Receiver() as receiver:
        env = {
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_ENDPOINT": receiver.url,
            "LANGSMITH_API_KEY": "key",
            "LANGSMITH_HOST_PROJECT_NAME": "desk",
            "LANGSMITH_REVISION_ID": "7",
        }
        agent_host = Host(tmp_path, env)
        run_id = str(uuid4())
        agent_host.run("a", {"input": {}}, run_id=run_id, trace_id=run_id)

        agent_host.send("exit", 0)

        assert agent_host.process.wait(60) == 0
        agent_host.close()
        bodies = b"".join(receiver.next(1).body for _ in range(receiver.count_unread))
    assert b"end_time" in bodies
    # The metadata by which pages find the deployment and the revision.
    assert b'"LANGSMITH_HOST_PROJECT_NAME":"desk"' in bodies
    assert b'"revision_id":"7"' in bodies
