"""Writes the events of resumable runs to PostgreSQL, in the transactions of the group commit."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

import msgpack

from apps.agent_runtime.db.group_commit import GroupCommitWriter
from apps.agent_runtime.db.write_batch import FencingToken, StreamChunk
from apps.agent_server.streaming.streams import BEGINNING, EventId

MAX_DELAY_SECONDS = 0.1
"""Maximum lag of PostgreSQL behind Redis, so that many batches share a row."""
MAX_CHUNK_BYTES = 256 * 1024
MAX_RUN_BYTES = 64 * 1024 * 1024
"""Per run; the oldest events above it are deleted."""


@dataclass(slots=True)
class _Buffer:
    """Events of a run that are not written yet, and the sizes of its written rows."""

    token: FencingToken
    batches: list[bytes] = field(default_factory=list)
    last: EventId = BEGINNING
    size: int = 0
    rows: deque[tuple[EventId, int]] = field(default_factory=deque)
    stored_bytes: int = 0


class StreamPersistence:
    """Event history of the resumable runs of one worker. Other runs have no cost here."""

    def __init__(self, writer: GroupCommitWriter) -> None:
        self._writer = writer
        self._buffers: dict[UUID, _Buffer] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def open(self, token: FencingToken) -> None:
        """Persist the events of this attempt."""
        self._buffers[token.run_id] = _Buffer(token)

    def append(self, run_id: UUID, last: EventId, packed: bytes) -> None:
        """Add a batch of events; it is written after at most `MAX_DELAY_SECONDS`."""
        buffer = self._buffers.get(run_id)
        if buffer is None:
            return
        buffer.batches.append(packed)
        buffer.last = last
        buffer.size += len(packed)
        if buffer.size >= MAX_CHUNK_BYTES:
            self._write(buffer)
        elif self._timer is None:
            self._timer = self._loop.call_later(MAX_DELAY_SECONDS, self._write_all)

    def close(self, token: FencingToken) -> None:
        """Write the rest, so that it is committed together with the end of the run."""
        buffer = self._buffers.get(token.run_id)
        if buffer is not None and buffer.token == token:
            self._write(buffer)
            del self._buffers[token.run_id]

    def _write_all(self) -> None:
        self._timer = None
        for buffer in self._buffers.values():
            self._write(buffer)

    def _write(self, buffer: _Buffer) -> None:
        if not buffer.batches:
            return
        packed: bytes = msgpack.packb(buffer.batches)
        buffer.rows.append((buffer.last, buffer.size))
        buffer.stored_bytes += buffer.size
        delete_up_to: EventId | None = None
        while buffer.stored_bytes > MAX_RUN_BYTES:
            delete_up_to, size = buffer.rows.popleft()
            buffer.stored_bytes -= size
        self._writer.put(
            StreamChunk(
                buffer.token,
                buffer.last.position,
                packed,
                delete_up_to.position if delete_up_to is not None else None,
                len(packed),
            )
        )
        buffer.batches, buffer.size = [], 0
