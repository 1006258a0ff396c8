"""A graph that is called with its own thread id inside a run."""

from __future__ import annotations

import json

GRAPH = """
import operator
from typing import Annotated
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    words: Annotated[list[str], operator.add]
    inner_words: list

inner = (
    StateGraph(State).add_node("say", lambda state: {"words": ["inner"]}).add_edge(START, "say")
).compile()

async def call(state, config):
    own = {"thread_id": "the user's", "checkpoint_ns": "", "checkpoint_id": None}
    configurable = {**config["configurable"], **own}
    config = {**config, "configurable": configurable}
    result = await inner.ainvoke({"words": ["input"]}, config)
    return {"words": ["outer"], "inner_words": result["words"]}

graph = StateGraph(State).add_node("call", call).add_edge(START, "call").compile()
"""


def test_checkpoints_of_an_inner_thread_get_their_own_namespace(host):
    agent_host = host({"agent.py": GRAPH}, graphs={"agent": "./agent.py:graph"})
    thread_id = "00000000-0000-0000-0000-000000000002"
    start = {
        "run_id": "00000000-0000-0000-0000-000000000001",
        "trace_id": "00000000-0000-0000-0000-000000000001", "attempt": 1, "metadata": {},
        "thread_id": thread_id, "graph_id": "agent", "head": None,
        "assistant_id": "00000000-0000-0000-0000-000000000003",
        "kwargs": json.dumps({"input": {"words": ["in"]}}).encode(),
    }  # fmt: skip
    agent_host.send("start", 1, start)

    namespaces, end = set(), None
    while end is None:
        kind, _, number, *rest = agent_host.next("put", "writes", "get", "done")
        if kind == "done":
            end = rest[0]
            continue
        if kind == "get":
            agent_host.send("answer", number, True, None)
        namespaces.add((rest[0], rest[1].partition("|")[0]))

    assert end["status"] == "success", end
    assert {thread for thread, _ in namespaces} == {thread_id}
    assert {name for _, name in namespaces} == {"", "thread=the%20user%27s"}
    assert json.loads(end["values"])["words"] == ["in", "outer"]
