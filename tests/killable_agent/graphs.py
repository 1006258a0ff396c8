"""Graphs of both organizations of a trial: `echo` is used, the others attack."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import time
from pathlib import Path
from typing import Any

from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    text: str
    seconds: float
    events: int


async def _echo(state: State) -> State:
    return {"text": f"echo {state['text']}"}


async def _sleep(state: State) -> State:
    await asyncio.sleep(state["seconds"])
    return {"text": "done"}


async def _flood(state: State) -> State:
    """Stream 100 KB events as fast as they are taken: for some time, or a number of them."""
    write = get_stream_writer()
    ends_at = time.monotonic() + state["seconds"]
    count = 0
    while count < state.get("events", 0) or time.monotonic() < ends_at:
        write("x" * 100_000)
        count += 1
        await asyncio.sleep(0)
    return {"text": f"{count} events"}


def _frames(_: State) -> State:
    """Send the worker a frame of 8 MB of empty maps, past the platform's own code."""
    frame = b"\x92\xa6result\xdd" + struct.pack(">I", 8_000_000) + b"\x80" * 8_000_000
    for path in list(Path("/proc/self/fd").iterdir()):
        if not _is_socket(path):
            continue
        with socket.socket(fileno=os.dup(int(path.name))) as link:
            is_stream = link.family == socket.AF_UNIX and link.type == socket.SOCK_STREAM
            if is_stream and not _is_own(link):
                link.setblocking(True)
                link.sendall(struct.pack(">I", len(frame)) + frame)
    return {"text": "sent"}


def _is_own(link: socket.socket) -> bool:
    """Whether both ends are here: event loops wake up by such a pair, which nothing empties."""
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[0] == os.getpid())


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _graph(node: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


echo, sleep, flood, frames = map(_graph, (_echo, _sleep, _flood, _frames))
