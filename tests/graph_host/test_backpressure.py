"""Nodes that stream faster than the worker reads are blocked, on the host's loop and elsewhere."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import psutil
import pytest

from apps.graph_host import backpressure
from apps.graph_host.backpressure import Backpressure
from apps.graph_host.event_loop import Loop
from tests.installation import wait_until

KB, MB = 1024, 1024 * 1024
EVENTS = 3_000
GRAPHS = """
import asyncio
import os
from pathlib import Path
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    events: int
    text: str

def written(count):
    Path("written").write_text(str(count))

async def on_loop(state):
    write = get_stream_writer()
    for number in range(state["events"]):
        write(f"{number} " + "x" * 100_000)
        written(number)
        await asyncio.sleep(0)

def in_thread(state):
    write = get_stream_writer()
    for number in range(state["events"]):
        write(f"{number} " + "x" * 100_000)
        written(number)

def compiled(node):
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile()

on_loop, in_thread = map(compiled, (on_loop, in_thread))
"""
KWARGS = {"input": {"events": EVENTS}, "stream_mode": ["custom"]}


@pytest.fixture
def flooding(host):
    names = ("on_loop", "in_thread")
    return host({"agent.py": GRAPHS}, graphs={name: f"./agent.py:{name}" for name in names})


def read_count(tmp_path: Path) -> int:
    text = (tmp_path / "written").read_text() if (tmp_path / "written").exists() else ""
    return int(text or 0)


def wait_until_blocked(tmp_path: Path) -> int:
    """Return how many events the node has written when it writes no more."""
    counts = [0]

    def is_blocked() -> bool:
        time.sleep(0.5)
        counts.append(read_count(tmp_path))
        return counts[-1] > 0 and counts[-1] == counts[-2]

    wait_until(is_blocked, "the node to block")
    return counts[-1]


@pytest.mark.parametrize("graph", ["on_loop", "in_thread"])
def test_node_blocks_until_the_worker_reads(flooding, tmp_path, graph):
    before = psutil.Process(flooding.process.pid).memory_info().rss
    flooding.start_run(1, graph, KWARGS)

    count = wait_until_blocked(tmp_path)
    grown = psutil.Process(flooding.process.pid).memory_info().rss - before

    assert count < 100  # 10 MB of 300
    assert grown < 40 * MB
    numbers = []
    while (frame := flooding.next("events", "done"))[0] == "events":
        numbers += [int(data[1:].split()[0]) for _, data in frame[3]]
    assert frame[3]["status"] == "success"
    assert numbers == list(range(EVENTS))


def test_blocked_host_is_not_reported_as_blocking_code(flooding, tmp_path):
    flooding.start_run(1, "on_loop", KWARGS)
    wait_until_blocked(tmp_path)
    time.sleep(2)  # the host reports code that blocks its loop for a second

    while flooding.next("events", "done")[0] == "events":
        pass
    flooding.socket.close()

    assert "blocking code" not in flooding.process.stdout.read().decode()


def test_run_of_a_host_that_was_blocked_can_be_cancelled(flooding, tmp_path):
    flooding.start_run(1, "on_loop", KWARGS)
    wait_until_blocked(tmp_path)
    flooding.send("cancel", 1, "interrupt")

    assert flooding.next("done")[3]["status"] == "cancelled"
    assert read_count(tmp_path) < 200


class FullLink:
    """A link whose worker never reads."""

    is_full = True
    unsent_bytes = 2 * MB

    async def drain(self) -> None:
        await asyncio.Event().wait()


def test_writer_is_let_go_if_the_loop_waits_for_it(monkeypatch):
    monkeypatch.setattr(backpressure, "MAX_BLOCK_SECONDS", 0.2)
    seconds = []

    def write(held: Backpressure) -> None:
        for _ in range(3):
            started_at = time.monotonic()
            held.delay_writer(backpressure.MAX_WAITING_PARTS)
            seconds.append(time.monotonic() - started_at)

    async def block_loop() -> None:
        held = Backpressure(FullLink(), asyncio.get_running_loop())
        writer = threading.Thread(target=write, args=[held])
        writer.start()
        writer.join()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(block_loop())

    assert seconds[0] >= 0.2
    assert max(seconds[1:]) < 0.2
