"""Lasting database connections that survive a restart of the server."""

from __future__ import annotations

import select

import psycopg
from django.db import connections


def close_dead(**_: object) -> None:
    """Close this thread's connections whose server has hung up; the next query opens new ones.

    A look costs a system call, where Django's own health check costs a round trip per request.
    """
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or connection.in_atomic_block:
            continue
        try:
            hung_up = has_hung_up(connection.connection.fileno())
        except (OSError, ValueError, psycopg.Error):
            hung_up = True
        if hung_up:
            connection.close()


def has_hung_up(fd: int) -> bool:
    """Whether the server ended an idle connection: it has nothing to say, so what it says is that.

    By `poll`, as a process with many streams has descriptors that `select` does not take.
    """
    look = select.poll()
    look.register(fd, select.POLLIN)
    return bool(look.poll(0))
