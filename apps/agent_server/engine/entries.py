"""What the engine has to write, and what it gets back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID


class Token(NamedTuple):
    """The right to write for a run: good until somebody else claims it."""

    run_id: UUID
    attempt: int


STATE_UNKNOWN = "null"


class Stale(Exception):
    """The run belongs to a later attempt, or has ended: nothing was written."""


@dataclass(slots=True, frozen=True)
class Claimed:
    """A run that this worker now executes, with what the graph host is to be told."""

    run_id: UUID
    attempt: int
    thread: UUID
    """The row's key; `thread_id` is what clients and graphs see."""
    thread_id: UUID
    workspace_id: UUID
    deployment_id: UUID
    revision_id: UUID | None
    assistant_id: UUID
    graph_id: str
    metadata: str
    kwargs: str
    resumable: bool
    temporary: bool = False
    """Its thread goes with it: nobody can ask for its checkpoints afterwards."""

    @property
    def token(self) -> Token:
        return Token(self.run_id, self.attempt)


@dataclass(slots=True)
class Put:
    """A checkpoint with the channel values that are new in it."""

    token: Token
    namespace: str
    id: UUID
    parent_id: UUID | None
    kind: str
    blob: bytes
    metadata: str
    versions: str
    blobs: Sequence[tuple[str, str, str, bytes]]
    """`(channel, version, kind, bytes)`"""
    size: int
    done: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Writes:
    """What one task wrote on top of a checkpoint."""

    token: Token
    namespace: str
    id: UUID
    rows: Sequence[tuple[str, int, str, str, bytes, str]]
    """`(task id, index, channel, kind, bytes, task path)`"""
    size: int
    done: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Ending:
    """How an attempt ended.

    `state` and its like are absent when it wrote no checkpoint; `STATE_UNKNOWN` says that it may
    have written some and nobody could look.
    """

    token: Token
    thread: UUID
    status: str
    thread_status: str
    error: str | None = None
    values: str | None = None
    state: str | None = None
    interrupts: str | None = None
    is_last: bool = False
    """Nothing comes after it on the thread, so checkpoints that still wait need not be written."""
    size: int = 0
    done: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Release:
    """Gives a run back to be claimed again."""

    token: Token
    size: int = 0
    done: asyncio.Future[None] | None = None


Entry = Put | Writes | Ending | Release


@dataclass(slots=True)
class Batch:
    """What goes into one transaction: in the order in which it came, per run."""

    puts: list[Put] = field(default_factory=list)
    writes: list[Writes] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    claims: set[UUID] = field(default_factory=set)
    settled: list[asyncio.Future[None]] = field(default_factory=list)
    size: int = 0

    def add(self, entry: Entry) -> None:
        self.size += entry.size
        if isinstance(entry, Put):
            self.puts.append(entry)
        elif isinstance(entry, Writes):
            self.writes.append(entry)
        elif isinstance(entry, Ending):
            self.endings.append(entry)
            # The thread's next run is claimed in the same transaction.
            self.claims.add(entry.thread)
        else:
            self.releases.append(entry)

    def drop_what_nobody_reads(self) -> None:
        """Forget the checkpoints of runs that end for good in this very batch."""
        over = {entry.token for entry in self.endings if entry.is_last}
        if over:
            self.puts = [entry for entry in self.puts if entry.done or entry.token not in over]
            self.writes = [entry for entry in self.writes if entry.done or entry.token not in over]

    @property
    def entries(self) -> list[Entry]:
        return [*self.puts, *self.writes, *self.endings, *self.releases]

    @property
    def tokens(self) -> list[Token]:
        """Every token once, in the order of locking."""
        return sorted({entry.token for entry in self.entries})

    @property
    def threads(self) -> list[UUID]:
        """Every thread whose status may change, once, in the order of locking."""
        return sorted(self.claims.union(entry.thread for entry in self.endings))

    def __bool__(self) -> bool:
        return bool(self.puts or self.writes or self.endings or self.releases or self.claims)


def stored(row: Sequence[Any]) -> list[Any]:
    """A row of a checkpoint, as a frame carries it to the graph host."""
    (
        _,
        namespace,
        id_,
        parent_id,
        kind,
        blob,
        metadata,
        channels,
        versions,
        kinds,
        blobs,
        tasks,
        indexes,
        write_channels,
        write_kinds,
        write_blobs,
        paths,
    ) = row
    return [
        namespace,
        id_,
        parent_id,
        kind,
        blob,
        metadata.encode(),
        list(zip(channels or (), versions or (), kinds or (), blobs or (), strict=True)),
        list(
            zip(
                tasks or (),
                indexes or (),
                write_channels or (),
                write_kinds or (),
                write_blobs or (),
                paths or (),
                strict=True,
            )
        ),
    ]
