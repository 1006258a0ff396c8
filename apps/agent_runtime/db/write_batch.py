"""Entries of a group commit, the batch that holds them, and the runs that it claims."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from apps.agent_runtime.run_slots import SlotOwner


class FencingToken(NamedTuple):
    """Permission to write for a run; invalid once another attempt claims the run."""

    run_id: UUID
    attempt: int


STATE_UNKNOWN = "null"
"""`RunEnd.state` of an attempt that may have written checkpoints which could not be read."""


class StaleToken(Exception):
    """The run belongs to a later attempt or has ended; nothing was written."""


class RollbackRequested(Exception):
    """The run must be rolled back instead of ended; its row is unchanged."""


@dataclass(slots=True, frozen=True)
class ClaimedRun:
    """A run that a commit assigned to this worker."""

    run_id: UUID
    attempt: int
    thread: UUID
    """Primary key; `thread_id` is the id that clients and graphs see."""
    thread_id: UUID
    organization_id: UUID
    workspace_id: UUID
    deployment_id: UUID
    revision_id: UUID | None
    assistant_id: UUID
    graph_id: str
    metadata: str
    kwargs: str
    resumable: bool
    temporary: bool = False
    """The thread is deleted after the run, so its checkpoints are never read."""
    cancel_action: str = ""
    """Set if a cancellation was requested before this attempt."""
    crash_count: int = 0
    """Earlier attempts that ended with their process."""
    isolation_group_size: int = 0
    """Maximum number of runs on its isolated host; 0 for the shared host."""
    claimed_at: float = field(default_factory=time.monotonic)

    @property
    def token(self) -> FencingToken:
        return FencingToken(self.run_id, self.attempt)

    @property
    def slot_owner(self) -> SlotOwner:
        return SlotOwner(self.organization_id, self.deployment_id)


@dataclass(slots=True)
class CheckpointEntry:
    """A checkpoint with its new channel values."""

    token: FencingToken
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
    committed: asyncio.Future[None] | None = None


@dataclass(slots=True)
class TaskWritesEntry:
    """Pending writes of one task on top of a checkpoint."""

    token: FencingToken
    namespace: str
    id: UUID
    rows: Sequence[tuple[str, int, str, str, bytes, str]]
    """`(task id, index, channel, kind, bytes, task path)`"""
    size: int
    committed: asyncio.Future[None] | None = None


@dataclass(slots=True)
class StreamChunk:
    """A part of a resumable run's event stream."""

    token: FencingToken
    position: int
    batches: bytes
    delete_up_to: int | None
    """Delete the run's chunks up to this position: they exceed the limit per run."""
    size: int
    committed: asyncio.Future[None] | None = None


@dataclass(slots=True)
class RunEnd:
    """The end of a run.

    `values`, `state` and `interrupts` are None if the attempt wrote no checkpoint.
    """

    token: FencingToken
    thread: UUID
    status: str
    thread_status: str
    error: str | None = None
    values: str | None = None
    state: str | None = None
    interrupts: str | None = None
    is_last: bool = False
    """The thread has no further run, so unwritten checkpoints can be dropped."""
    has_webhook: bool = False
    """The run may have a webhook; the SQL statement decides."""
    has_task: bool = False
    """The run may belong to an A2A task; the SQL statement decides."""
    is_unreported: bool = False
    """The host's process ended before it reported the end of the attempt."""
    size: int = 0
    committed: asyncio.Future[None] | None = None


@dataclass(slots=True)
class RunRollback:
    """Deletes a run with everything that it wrote."""

    token: FencingToken
    thread: UUID
    is_unreported: bool = False
    size: int = 0
    committed: asyncio.Future[None] | None = None


@dataclass(slots=True)
class RunRelease:
    """Returns a run to the queue."""

    token: FencingToken
    crashed: bool = False
    """The attempt ended with its process, so it counts as a crash."""
    isolation_group_size: int = 0
    delay_seconds: float = 0.0
    """Minimum delay of the next attempt."""
    size: int = 0
    committed: asyncio.Future[None] | None = None


Entry = CheckpointEntry | TaskWritesEntry | StreamChunk | RunEnd | RunRollback | RunRelease


@dataclass(slots=True)
class WriteBatch:
    """The entries of one transaction, in order of arrival per run."""

    checkpoints: list[CheckpointEntry] = field(default_factory=list)
    task_writes: list[TaskWritesEntry] = field(default_factory=list)
    stream_chunks: list[StreamChunk] = field(default_factory=list)
    run_ends: list[RunEnd] = field(default_factory=list)
    rollbacks: list[RunRollback] = field(default_factory=list)
    releases: list[RunRelease] = field(default_factory=list)
    claims: set[UUID] = field(default_factory=set)
    flush_waiters: list[asyncio.Future[None]] = field(default_factory=list)
    size: int = 0

    def add(self, entry: Entry) -> None:
        self.size += entry.size
        if isinstance(entry, CheckpointEntry):
            self.checkpoints.append(entry)
        elif isinstance(entry, TaskWritesEntry):
            self.task_writes.append(entry)
        elif isinstance(entry, StreamChunk):
            self.stream_chunks.append(entry)
        elif isinstance(entry, RunEnd):
            self.run_ends.append(entry)
            # The thread's next run is claimed in the same transaction.
            self.claims.add(entry.thread)
        elif isinstance(entry, RunRollback):
            self.rollbacks.append(entry)
            self.claims.add(entry.thread)
        else:
            self.releases.append(entry)

    def drop_unread_checkpoints(self) -> None:
        """Drop checkpoints of runs that end in this batch as the last run of their thread."""
        final_tokens = {entry.token for entry in self.run_ends if entry.is_last}
        if final_tokens:
            self.checkpoints = [
                entry
                for entry in self.checkpoints
                if entry.committed or entry.token not in final_tokens
            ]
            self.task_writes = [
                entry
                for entry in self.task_writes
                if entry.committed or entry.token not in final_tokens
            ]

    @property
    def entries(self) -> list[Entry]:
        entries: list[Entry] = [*self.checkpoints, *self.task_writes, *self.stream_chunks]
        return [*entries, *self.run_ends, *self.rollbacks, *self.releases]

    @property
    def tokens(self) -> list[FencingToken]:
        """All tokens in lock order."""
        return sorted({entry.token for entry in self.entries})

    @property
    def unreported(self) -> list[FencingToken]:
        """The tokens of attempts whose hosts may not report the end of their traces."""
        run_results: list[RunEnd | RunRollback] = [*self.run_ends, *self.rollbacks]
        tokens = {entry.token for entry in run_results if entry.is_unreported}
        return sorted(tokens.union(entry.token for entry in self.releases))

    @property
    def threads(self) -> list[UUID]:
        """All threads whose status may change, in lock order."""
        run_results: list[RunEnd | RunRollback] = [*self.run_ends, *self.rollbacks]
        return sorted(self.claims.union(entry.thread for entry in run_results))

    def __bool__(self) -> bool:
        entries = self.checkpoints or self.task_writes or self.stream_chunks
        return bool(self.claims or entries or self.run_ends or self.rollbacks or self.releases)
