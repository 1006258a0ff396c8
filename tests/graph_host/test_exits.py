"""An agent whose code calls `sys.exit` ends its run, and nothing else."""

from __future__ import annotations

import pytest

CODE = """
import asyncio
import sys
from typing_extensions import TypedDict
from langgraph.graph import START, StateGraph

class State(TypedDict, total=False):
    leave: bool
    done: bool

def one(node):
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile()

def leave_or_work(state):
    if state.get("leave"):
        sys.exit(3)
    return {"done": True}

async def leave_or_wait(state):
    await asyncio.sleep(0)
    return leave_or_work(state)

def made(config):
    if config["configurable"].get("leave"):
        sys.exit("enough")
    return one(leave_or_wait)

on_a_thread, on_the_loop = one(leave_or_work), one(leave_or_wait)
"""
GRAPHS = {name: f"./a.py:{name}" for name in ("on_a_thread", "on_the_loop", "made")}


@pytest.fixture
def agent(host):
    return host({"a.py": CODE}, graphs=GRAPHS)


@pytest.mark.parametrize("graph", ["on_a_thread", "on_the_loop"])
def test_a_node_that_exits_fails_its_run_and_the_next_one_runs(agent, graph):
    _, ended = agent.run(graph, {"input": {"leave": True}})

    assert ended["status"] == "error"
    assert ended["error"] == {"error": "SystemExit", "message": "3"}
    _, ended = agent.run(graph, {"input": {}})
    assert ended["status"] == "success"


def test_a_factory_that_exits_fails_its_run_and_the_next_one_runs(agent):
    leaving = {"input": {}, "config": {"configurable": {"leave": True}}}

    _, ended = agent.run("made", leaving)

    assert ended["error"] == {"error": "SystemExit", "message": "enough"}
    _, ended = agent.run("made", {"input": {}})
    assert ended["status"] == "success"
