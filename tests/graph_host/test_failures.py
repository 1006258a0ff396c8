"""What failed code held does not stay in the way of the next run."""

from __future__ import annotations

import pytest

CODE = """
import gc
import weakref
from typing import Any
from typing_extensions import TypedDict
from langgraph.graph import START, StateGraph

gc.disable()
HELD = []

class Hoard:
    pass

class State(TypedDict, total=False):
    fail: str
    left: int

def hoard(kind):
    hoard = Hoard()
    HELD.append(weakref.ref(hoard))
    error = {"memory": MemoryError, "value": ValueError}[kind]("full")
    error.itself = error  # as frameworks do: a cycle that only the collector would find
    raise error

def node(state):
    if state.get("fail"):
        try:
            hoard(state["fail"])
        except Exception as first:
            raise RuntimeError("later") from first
    return {"left": sum(ref() is not None for ref in HELD)}

builder = StateGraph(State)
builder.add_node("node", node)
builder.add_edge(START, "node")
graph = builder.compile()
"""


@pytest.mark.parametrize("kind", ["memory", "value"])
def test_what_a_failed_run_held_is_free_before_the_next_one(host, kind):
    agent = host({"a.py": CODE}, graphs={"graph": "./a.py:graph"})

    _, ended = agent.run("graph", {"input": {"fail": kind}})

    assert ended["error"] == {"error": "RuntimeError", "message": "later"}
    events, ended = agent.run("graph", {"input": {}, "stream_mode": ["values"]})
    assert ended["status"] == "success"
    assert events[-1][1]["left"] == 0
