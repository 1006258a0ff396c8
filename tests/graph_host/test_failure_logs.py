"""What a host writes to its deployment's log: tracebacks and code that blocks the event loop."""

from __future__ import annotations

from uuid import uuid4

from tests.installation import wait_until

AGENT = """
import asyncio
import os
import threading
import time
from pathlib import Path
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    seconds: float
    word: str

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError

def look_up(state):
    return {}["missing"]

async def fail(state: State) -> State:
    return look_up(state)

async def block(state: State) -> State:
    time.sleep(state["seconds"])
    return {"word": threading.current_thread().name}

released = threading.Event()

async def hold(state: State) -> State:
    Path(state["word"]).touch()
    return {"word": f"released: {released.wait(state['seconds'])}"}

async def release(state: State) -> State:
    released.set()
    return {"word": threading.current_thread().name}

async def wait(state: State) -> State:
    await asyncio.sleep(state["seconds"])
    return {"word": threading.current_thread().name}

def raise_unprintable(state: State) -> State:
    raise Unprintable

def build(config):
    raise LookupError("no such tenant")

def compile_graph(node):
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile()

failing, blocking, waiting = map(compile_graph, (fail, block, wait))
holding, releasing = map(compile_graph, (hold, release))
unprintable = compile_graph(raise_unprintable)
"""
GRAPHS = {
    name: f"./agent.py:{name}"
    for name in (
        *("failing", "blocking", "waiting", "unprintable", "build"),
        *("holding", "releasing"),
    )
}


def read_log(agent_host) -> str:
    """End the host and return its whole output."""
    agent_host.send("exit", 0)
    agent_host.process.wait(60)
    return agent_host.process.stdout.read().decode()


def test_a_failed_run_writes_its_traceback(host):
    agent_host = host({"agent.py": AGENT}, graphs=GRAPHS)
    run_id = str(uuid4())

    _, done = agent_host.run("failing", {"input": {"seconds": 0}}, run_id=run_id, attempt=2)

    assert done["error"] == {"error": "KeyError", "message": "'missing'"}
    log = read_log(agent_host)
    assert f"ERROR: run {run_id} of graph `failing`, attempt 2 failed\n" in log
    assert 'in look_up\n    return {}["missing"]' in log
    assert "KeyError: 'missing'" in log


def test_a_run_whose_error_cannot_be_printed_fails(host):
    agent_host = host({"agent.py": AGENT}, graphs=GRAPHS)

    _, done = agent_host.run("unprintable", {"input": {"seconds": 0}})

    message = "The text of the error raised RuntimeError."
    assert done["error"] == {"error": "Unprintable", "message": message}
    assert "`unprintable` failed\n" in read_log(agent_host)


def test_a_call_whose_factory_raises_writes_its_traceback(host):
    agent_host = host({"agent.py": AGENT}, graphs=GRAPHS)

    assert agent_host.call_graph("build", "graph")[0] == "failed"

    log = read_log(agent_host)
    assert "ERROR: `graph` of graph `build` failed\n" in log
    assert "LookupError: no such tenant" in log


def test_code_that_blocks_the_event_loop_is_named_once(host):
    agent_host = host({"agent.py": AGENT}, graphs=GRAPHS)

    for _ in range(2):
        agent_host.run("blocking", {"input": {"seconds": 1.6}})
    agent_host.run("waiting", {"input": {"seconds": 1.6}})

    warnings = [line for line in read_log(agent_host).splitlines() if "WARNING" in line]
    line = AGENT.splitlines().index('    time.sleep(state["seconds"])') + 1
    assert len(warnings) == 1
    assert f"WARNING: blocking code in agent.py, line {line}, in block: " in warnings[0]


def hold_and_release(host, tmp_path, *, isolated: str, seconds: float) -> dict[int, dict]:
    """Run 1 blocks its loop until run 2 runs, or for those seconds; return the ends of both."""
    variables, held = {"BG_JOB_ISOLATED_LOOPS": isolated}, tmp_path / "held"
    agent_host = host({"agent.py": AGENT}, graphs=GRAPHS, env=variables)
    agent_host.start_run(1, "holding", {"input": {"seconds": seconds, "word": str(held)}})
    wait_until(held.exists, "the first run")
    agent_host.start_run(2, "releasing", {"input": {}})
    ends = {}
    for _ in range(2):
        _, key, _, done = agent_host.next("done")
        ends[key] = done
    assert [done["status"] for done in ends.values()] == ["success", "success"]
    return ends


def test_blocking_code_stalls_only_its_own_run_with_isolated_loops(host, tmp_path):
    ends = hold_and_release(host, tmp_path, isolated="true", seconds=60)

    assert b'"word":"released: True"' in ends[1]["values"]
    assert b'"word":"run_' in ends[2]["values"]


def test_blocking_code_stalls_other_runs_without_isolated_loops(host, tmp_path):
    ends = hold_and_release(host, tmp_path, isolated="false", seconds=2)

    assert b'"word":"released: False"' in ends[1]["values"]
    assert b'"word":"MainThread"' in ends[2]["values"]


def test_a_run_with_an_isolated_loop_can_be_cancelled(host):
    variables = {"BG_JOB_ISOLATED_LOOPS": "1"}
    agent_host = host({"agent.py": AGENT}, graphs=GRAPHS, env=variables)
    agent_host.start_run(7, "waiting", {"input": {"seconds": 60}, "stream_mode": ["values"]})
    agent_host.next("events")

    agent_host.send("cancel", 7, "interrupt")

    assert agent_host.next("done")[3]["status"] == "cancelled"
