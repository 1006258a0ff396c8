"""Keeping what resumable runs say in PostgreSQL, with whatever else the ledger commits."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

import msgpack

from apps.agent_runtime.db.group_commit import Ledger
from apps.agent_runtime.db.write_batch import Said, Token
from apps.agent_server.streaming.streams import BEGINNING, EventId

LINGER_SECONDS = 0.1
"""How far PostgreSQL may be behind Redis, so that many batches become one row."""
STRETCH_BYTES = 256 * 1024
MOST_BYTES = 64 * 1024 * 1024
"""Of one run; beyond it, the oldest are forgotten."""


@dataclass(slots=True)
class _Stretch:
    """What a run has said since its last row."""

    token: Token
    batches: list[bytes] = field(default_factory=list)
    last: EventId = BEGINNING
    size: int = 0
    rows: deque[tuple[EventId, int]] = field(default_factory=deque)
    kept: int = 0


class StreamKeeper:
    """The resumable runs of one worker. Runs that were not `opened` cost nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._stretches: dict[UUID, _Stretch] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def open(self, token: Token) -> None:
        """Keep what this attempt says from now on."""
        self._stretches[token.run_id] = _Stretch(token)

    def keep(self, run_id: UUID, last: EventId, packed: bytes) -> None:
        """Take one batch of a run; it is on its way to PostgreSQL within a tenth of a second."""
        stretch = self._stretches.get(run_id)
        if stretch is None:
            return
        stretch.batches.append(packed)
        stretch.last = last
        stretch.size += len(packed)
        if stretch.size >= STRETCH_BYTES:
            self._write(stretch)
        elif self._timer is None:
            self._timer = self._loop.call_later(LINGER_SECONDS, self._write_all)

    def close(self, token: Token) -> None:
        """Write the rest, to be committed with the end of the run that comes next."""
        stretch = self._stretches.get(token.run_id)
        if stretch is not None and stretch.token == token:
            self._write(stretch)
            del self._stretches[token.run_id]

    def _write_all(self) -> None:
        self._timer = None
        for stretch in self._stretches.values():
            self._write(stretch)

    def _write(self, stretch: _Stretch) -> None:
        if not stretch.batches:
            return
        packed: bytes = msgpack.packb(stretch.batches)
        stretch.rows.append((stretch.last, stretch.size))
        stretch.kept += stretch.size
        forgotten: EventId | None = None
        while stretch.kept > MOST_BYTES:
            forgotten, size = stretch.rows.popleft()
            stretch.kept -= size
        self._ledger.put(
            Said(
                stretch.token,
                stretch.last.position,
                packed,
                forgotten.position if forgotten is not None else None,
                len(packed),
            )
        )
        stretch.batches, stretch.size = [], 0
