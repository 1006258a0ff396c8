"""Long-lived database connections that survive a restart of the server."""

from __future__ import annotations

import select

import psycopg
from django.db import connections


def close_dead(**_: object) -> None:
    """Close this thread's connections that the server has closed; the next query reconnects.

    The check costs one system call; Django's own health check costs a round trip per request.
    """
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or connection.in_atomic_block:
            continue
        try:
            is_closed = is_closed_by_server(connection.connection.fileno())
        except (OSError, ValueError, psycopg.Error):
            is_closed = True
        if is_closed:
            connection.close()


def is_closed_by_server(fd: int) -> bool:
    """Return whether the server closed an idle connection.

    Readable data on an idle socket means that the server closed it. `poll`, unlike `select`,
    accepts descriptors above 1023, which a process with many streams has.
    """
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))
