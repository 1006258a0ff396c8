from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from apps.deployments.builds.build_context import BuildFailed
from apps.deployments.builds.host_client import HostClient


def _host_that_printed(output: bytes) -> SimpleNamespace:
    """Return a host process that printed `output` and exited."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, output)
    os.close(write_fd)
    builder_end, host_end = socket.socketpair()
    host_end.close()
    process = SimpleNamespace(wait=lambda _: 1, stopped_because=None)
    return SimpleNamespace(socket=builder_end, logs=os.fdopen(read_fd, "rb"), process=process)


def _context(lines: list[str]) -> Any:
    return SimpleNamespace(tick=lambda: None, log=SimpleNamespace(write=lines.append))


@pytest.mark.parametrize("output", [b"first\nFatal error", b"first\nFatal error\n"])
def test_last_line_of_an_exited_host_is_logged_with_or_without_newline(output):
    lines: list[str] = []
    host = _host_that_printed(output)

    with host.socket, host.logs, pytest.raises(BuildFailed, match="first\nFatal error"):
        HostClient(_context(lines), host).handshake()

    assert lines == ["first", "Fatal error"]
