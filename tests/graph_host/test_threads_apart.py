"""A graph that is called with a thread id of its own inside a run."""

from __future__ import annotations

import json

GRAPH = """
import operator
from typing import Annotated
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    said: Annotated[list[str], operator.add]
    kept: list

inner = (
    StateGraph(State).add_node("say", lambda state: {"said": ["inner"]}).add_edge(START, "say")
).compile()

async def call(state, config):
    own = {"thread_id": "the user's", "checkpoint_ns": "", "checkpoint_id": None}
    apart = {**config["configurable"], **own}
    config = {**config, "configurable": apart}
    said = await inner.ainvoke({"said": ["asked"]}, config)
    return {"said": ["outer"], "kept": said["said"]}

graph = StateGraph(State).add_node("call", call).add_edge(START, "call").compile()
"""


def test_its_states_are_kept_with_the_runs_thread_apart_from_it(host):
    here = host({"agent.py": GRAPH}, graphs={"agent": "./agent.py:graph"})
    thread_id = "00000000-0000-0000-0000-000000000002"
    start = {
        "run_id": "00000000-0000-0000-0000-000000000001", "attempt": 1, "metadata": {},
        "thread_id": thread_id, "graph_id": "agent", "head": None,
        "assistant_id": "00000000-0000-0000-0000-000000000003",
        "kwargs": json.dumps({"input": {"said": ["in"]}}).encode(),
    }  # fmt: skip
    here.send("start", 1, start)

    places, done = set(), None
    while done is None:
        kind, _, number, *rest = here.next("put", "writes", "get", "done")
        if kind == "done":
            done = rest[0]
            continue
        if kind == "get":
            here.send("answer", number, True, None)
        places.add((rest[0], rest[1].partition("|")[0]))

    assert done["status"] == "success", done
    assert {thread for thread, _ in places} == {thread_id}
    assert {name for _, name in places} == {"", "thread=the%20user%27s"}
    assert json.loads(done["values"])["said"] == ["in", "outer"]
