"""Memory of a failed run is freed before the next run."""

from __future__ import annotations

import pytest

CODE = """
import gc
import weakref
from typing import Any
from typing_extensions import TypedDict
from langgraph.graph import START, StateGraph

gc.disable()
REFERENCES = []

class LargeObject:
    pass

class State(TypedDict, total=False):
    fail: str
    left: int

def fail_with_object(kind):
    large_object = LargeObject()
    REFERENCES.append(weakref.ref(large_object))
    error = {"memory": MemoryError, "value": ValueError}[kind]("full")
    error.itself = error  # a reference cycle, as frameworks make them
    raise error

def node(state):
    if state.get("fail"):
        try:
            fail_with_object(state["fail"])
        except Exception as first:
            raise RuntimeError("later") from first
    return {"left": sum(ref() is not None for ref in REFERENCES)}

builder = StateGraph(State)
builder.add_node("node", node)
builder.add_edge(START, "node")
graph = builder.compile()
"""


@pytest.mark.parametrize("kind", ["memory", "value"])
def test_objects_of_a_failed_run_are_freed_before_the_next_run(host, kind):
    agent = host({"a.py": CODE}, graphs={"graph": "./a.py:graph"})

    _, ended = agent.run("graph", {"input": {"fail": kind}})

    assert ended["error"] == {"error": "RuntimeError", "message": "later"}
    events, ended = agent.run("graph", {"input": {}, "stream_mode": ["values"]})
    assert ended["status"] == "success"
    assert events[-1][1]["left"] == 0
