#!/usr/bin/env python3
"""Connect standard input and output to a server through the sandbox's proxy. Runs in the sandbox.

    git_tunnel.py HOST PORT

Git executes it for git:// and SSH addresses, for which Git supports no HTTP proxy.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from urllib.parse import urlsplit

_CHUNK_BYTES = 65_536


def connect(host: str, port: str) -> socket.socket:
    proxy = urlsplit(os.environ["HTTPS_PROXY"])
    connection = socket.create_connection((proxy.hostname, proxy.port or 80), timeout=60)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    head = b""
    # Byte by byte, since what follows belongs to the server.
    while not head.endswith(b"\r\n\r\n"):
        if not (part := connection.recv(1)):
            break
        head += part
    if b" 200 " not in head[:16]:
        sys.exit(f"fatal: unable to look up or connect to {host}: Connection refused")
    connection.settimeout(None)
    return connection


def relay(connection: socket.socket) -> None:
    is_sending = True
    while True:
        sources = [connection.fileno(), *([0] if is_sending else [])]
        ready, _, _ = select.select(sources, [], [])
        if connection.fileno() in ready:
            if not (data := connection.recv(_CHUNK_BYTES)):
                return
            while data:
                data = data[os.write(1, data) :]
        if 0 in ready:
            if data := os.read(0, _CHUNK_BYTES):
                connection.sendall(data)
            else:
                is_sending = False
                connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    relay(connect(*sys.argv[1:]))
