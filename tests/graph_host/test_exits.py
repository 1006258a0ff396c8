"""`sys.exit` in an agent's code ends its run but not its host."""

from __future__ import annotations

import pytest

CODE = """
import asyncio
import sys
from typing_extensions import TypedDict
from langgraph.graph import START, StateGraph

class State(TypedDict, total=False):
    exits: bool
    done: bool

def build_graph(node):
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile()

def exit_or_work(state):
    if state.get("exits"):
        sys.exit(3)
    return {"done": True}

async def exit_or_wait(state):
    await asyncio.sleep(0)
    return exit_or_work(state)

def factory(config):
    if config["configurable"].get("exits"):
        sys.exit("enough")
    return build_graph(exit_or_wait)

on_a_thread, on_the_loop = build_graph(exit_or_work), build_graph(exit_or_wait)
"""
GRAPHS = {name: f"./a.py:{name}" for name in ("on_a_thread", "on_the_loop", "factory")}


@pytest.fixture
def agent(host):
    return host({"a.py": CODE}, graphs=GRAPHS)


@pytest.mark.parametrize("graph", ["on_a_thread", "on_the_loop"])
def test_a_run_whose_node_exits_fails_and_the_next_run_succeeds(agent, graph):
    _, ended = agent.run(graph, {"input": {"exits": True}})

    assert ended["status"] == "error"
    assert ended["error"] == {"error": "SystemExit", "message": "3"}
    _, ended = agent.run(graph, {"input": {}})
    assert ended["status"] == "success"


def test_a_run_whose_factory_exits_fails_and_the_next_run_succeeds(agent):
    exiting = {"input": {}, "config": {"configurable": {"exits": True}}}

    _, ended = agent.run("factory", exiting)

    assert ended["error"] == {"error": "SystemExit", "message": "enough"}
    _, ended = agent.run("factory", {"input": {}})
    assert ended["status"] == "success"
