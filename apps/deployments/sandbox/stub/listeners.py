"""Sockets that listen inside a sandbox's network namespace and belong to the platform."""

from __future__ import annotations

import _socket  # `socket` would double the time to start
import struct

from . import syscalls

_IP_FREEBIND = 15
_BACKLOG = 128


def open_and_send(pid: int, ports: list[int], status: int) -> None:
    """Enter the namespaces of the process, listen on its loopback address, and send the sockets.

    This process created the sandbox's user namespace, as the same user, and may therefore enter it.
    """
    syscalls.enter_network(pid)
    sockets = []
    for port in ports:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        # bubblewrap may not have brought the loopback interface up yet.
        listener.setsockopt(_socket.IPPROTO_IP, _IP_FREEBIND, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        sockets.append(listener)
    numbers = struct.pack(f"{len(sockets)}i", *[listener.fileno() for listener in sockets])
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)
    _socket.socket(fileno=status).sendmsg([b"1"], [rights])
