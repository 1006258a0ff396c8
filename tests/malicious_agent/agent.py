"""An agent that attacks the platform on which it runs; the tests deploy it.

Each attack returns its loot; a refused attack returns the class name of the error.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    attack: str
    target: str
    loot: Any


def read(target: str) -> str:
    return Path(target).read_text(errors="replace")[:200]


def list_folder(target: str) -> list[str]:
    return sorted(path.name for path in Path(target).iterdir())


def list_processes(_: str) -> list[str]:
    """Command lines of all visible processes."""
    return [
        (entry / "cmdline").read_text().replace("\0", " ")
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
    ]


def read_environments(_: str) -> str:
    """The environments of all processes except this one."""
    return "".join(
        (entry / "environ").read_text()
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and entry.name != str(os.getpid())
    )


def connect(target: str) -> str:
    with socket.socket(socket.AF_UNIX) as unix_socket:
        unix_socket.connect(target)
    return "connected"


def connect_tcp(target: str) -> str:
    """Connect directly, past the proxy."""
    host, _, port = target.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return "connected"


def connect_abstract(target: str) -> str:
    return connect("\0" + target)


def send_datagram(target: str) -> str:
    host, _, port = target.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((host, int(port)))
        sender.settimeout(2)
        sender.send(b"attack")
        return sender.recv(10).decode()


def open_raw_socket(_: str) -> str:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "opened"


def tunnel(target: str) -> str:
    """Connect through the platform's proxy."""
    proxy = urlsplit(os.environ["HTTPS_PROXY"])
    with socket.create_connection((proxy.hostname, proxy.port), timeout=20) as connection:
        connection.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        status = connection.recv(4096).split(b" ")[1]
    if status != b"200":
        raise PermissionError(status)
    return "connected"


def write(target: str) -> str:
    Path(target).write_text("owned")
    return "written"


def become_root(_: str) -> int:
    os.setuid(0)
    return os.getuid()


def fork_forever(_: str) -> str:
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def fill_memory(_: str) -> str:
    blocks = []
    while True:
        blocks.append(bytearray(os.urandom(1024) * 16 * 1024))


ATTACKS = {
    attack.__name__: attack
    for attack in (
        read, list_folder, list_processes, read_environments, connect, write, become_root,
        connect_tcp, connect_abstract, send_datagram, open_raw_socket, tunnel,
        fork_forever, fill_memory,
    )
}  # fmt: skip


def attack(state: State) -> State:
    try:
        return {"loot": ATTACKS[state["attack"]](state.get("target", ""))}
    except OSError as refusal:
        return {"loot": type(refusal).__name__}


_builder = StateGraph(State)
_builder.add_node("attack", attack)
_builder.add_edge(START, "attack")
_builder.add_edge("attack", END)
graph = _builder.compile()
