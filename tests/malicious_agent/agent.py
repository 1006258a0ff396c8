"""An agent that attacks the platform it runs on. The tests deploy it as a repository of its own.

Each attack returns what it got; an attack that is refused returns the refusal's class name.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    attack: str
    target: str
    got: Any


def read(target: str) -> str:
    return Path(target).read_text(errors="replace")[:200]


def listing(target: str) -> list[str]:
    return sorted(path.name for path in Path(target).iterdir())


def processes(_: str) -> list[str]:
    """Command lines of all processes that can be seen."""
    return [
        (entry / "cmdline").read_text().replace("\0", " ")
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
    ]


def environments(_: str) -> str:
    """The environments of all processes but this one's own."""
    return "".join(
        (entry / "environ").read_text()
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and entry.name != str(os.getpid())
    )


def connect(target: str) -> str:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(target)
    return "connected"


def write(target: str) -> str:
    Path(target).write_text("owned")
    return "written"


def become_root(_: str) -> int:
    os.setuid(0)
    return os.getuid()


def fork_without_end(_: str) -> str:
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def fill_memory(_: str) -> str:
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1024) * 16 * 1024))


ATTACKS = {
    attack.__name__: attack
    for attack in (
        read, listing, processes, environments, connect, write, become_root,
        fork_without_end, fill_memory,
    )
}  # fmt: skip


def attack(state: State) -> State:
    try:
        return {"got": ATTACKS[state["attack"]](state.get("target", ""))}
    except OSError as refusal:
        return {"got": type(refusal).__name__}


_builder = StateGraph(State)
_builder.add_node("attack", attack)
_builder.add_edge(START, "attack")
_builder.add_edge("attack", END)
graph = _builder.compile()
