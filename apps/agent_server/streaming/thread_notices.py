"""What readers of a whole thread are told beside the streams of its runs.

A thread has a channel `slipway:thread:<key of its row>`. It says which run begins and what state
somebody gave the thread. Nothing is kept of it: after a loss, PostgreSQL is asked for the runs.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from apps.agent_server.messaging.redis_connection import Command


class RunStarted(NamedTuple):
    """A worker has begun an attempt of the run."""

    run_id: UUID
    graph_id: str
    is_resumable: bool
    """Whether what it says is kept in PostgreSQL."""


class StateUpdated(NamedTuple):
    """Somebody changed the thread's state, not a run; `state` is the snapshot's JSON."""

    state: bytes


class ThreadDeleted(NamedTuple):
    """The thread was deleted."""


Notice = RunStarted | StateUpdated | ThreadDeleted


def channel(thread_pk: UUID) -> str:
    return f"slipway:thread:{thread_pk}"


def run_started(thread_pk: UUID, run: RunStarted) -> Command:
    kept = b"\1" if run.is_resumable else b"\0"
    return ("PUBLISH", channel(thread_pk), b"r" + run.run_id.bytes + kept + run.graph_id.encode())


def state_updated(thread_pk: UUID, state: bytes) -> Command:
    return ("PUBLISH", channel(thread_pk), b"s" + state)


def thread_deleted(thread_pk: UUID) -> Command:
    return ("PUBLISH", channel(thread_pk), b"g")


def read(payload: bytes) -> Notice:
    kind, said = payload[:1], payload[1:]
    if kind == b"s":
        return StateUpdated(said)
    if kind == b"g":
        return ThreadDeleted()
    return RunStarted(UUID(bytes=said[:16]), said[17:].decode(), said[16:17] == b"\1")
