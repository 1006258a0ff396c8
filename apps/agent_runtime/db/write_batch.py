"""What the engine has to write, and what it gets back."""

from __future__ import annotations

import asyncio
import time
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


class Unwanted(Exception):
    """The run is not to be ended but to be undone: its row stayed as it was."""


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
    cancel_action: str = ""
    """It was to stop when its last attempt was lost."""
    losses: int = 0
    company: int = 0
    claimed_at: float = field(default_factory=time.monotonic)

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
class Said:
    """A stretch of a resumable run's stream."""

    token: Token
    position: int
    batches: bytes
    forgotten: int | None
    """The run's stretches up to this position are more than is kept."""
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
    has_webhook: bool = False
    """It may have: the statement knows."""
    size: int = 0
    done: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Undoing:
    """Takes the run away with everything that it saved."""

    token: Token
    thread: UUID
    size: int = 0
    done: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Release:
    """Gives a run back to be claimed again."""

    token: Token
    lost: bool = False
    """Its attempt ended with the process, perhaps by its own doing."""
    company: int = 0
    """With how many runs it may share its next graph host."""
    delay: float = 0.0
    """Its next attempt begins after so many seconds, at the earliest."""
    size: int = 0
    done: asyncio.Future[None] | None = None


Entry = Put | Writes | Said | Ending | Undoing | Release


@dataclass(slots=True)
class Batch:
    """What goes into one transaction: in the order in which it came, per run."""

    puts: list[Put] = field(default_factory=list)
    writes: list[Writes] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    undoings: list[Undoing] = field(default_factory=list)
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
        elif isinstance(entry, Said):
            self.said.append(entry)
        elif isinstance(entry, Ending):
            self.endings.append(entry)
            # The thread's next run is claimed in the same transaction.
            self.claims.add(entry.thread)
        elif isinstance(entry, Undoing):
            self.undoings.append(entry)
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
        written: list[Entry] = [*self.puts, *self.writes, *self.said]
        return [*written, *self.endings, *self.undoings, *self.releases]

    @property
    def tokens(self) -> list[Token]:
        """Every token once, in the order of locking."""
        return sorted({entry.token for entry in self.entries})

    @property
    def threads(self) -> list[UUID]:
        """Every thread whose status may change, once, in the order of locking."""
        ended: list[Ending | Undoing] = [*self.endings, *self.undoings]
        return sorted(self.claims.union(entry.thread for entry in ended))

    def __bool__(self) -> bool:
        written = self.puts or self.writes or self.said
        return bool(self.claims or written or self.endings or self.undoings or self.releases)


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
