"""The processes of an installation on this machine, by what they do."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import psutil

from config.supervisor.processes import MARK

# What a command line must contain.
_WORDS = {
    "web": "config.web",
    "worker": "worker@",
    "builder": "builder@",
    "beat": "beat",
    "postgres": "postgres",
    "redis": "redis",
}


def roots(data_dir: Path) -> dict[str, int]:
    """The topmost process of each role of the installation in that data folder."""
    found: dict[str, int] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) != str(data_dir.resolve()):
                continue
            words = " ".join(process.cmdline())
            role = next((name for name, word in _WORDS.items() if word in words), None)
            if role and (role not in found or process.pid < found[role]):
                found[role] = process.pid
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
