"""Checkpoints as the worker stores them, and the caches of them in this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

_MAX_CACHED_NAMESPACES = 32


class Blob(NamedTuple):
    """A serialised channel value."""

    channel: str
    version: str
    kind: str
    data: bytes


class Write(NamedTuple):
    """A serialised write of a task, not yet part of a checkpoint."""

    task_id: str
    slot: int
    channel: str
    kind: str
    data: bytes
    task_path: str


class StoredCheckpoint(NamedTuple):
    """A checkpoint as the worker stores and sends it."""

    namespace: str
    id: str
    parent_id: str | None
    kind: str
    data: bytes
    metadata: bytes
    blobs: list[Blob]
    writes: list[Write]

    @classmethod
    def parse(cls, parts: Sequence[Any]) -> StoredCheckpoint:
        """Parse the list of a frame."""
        namespace, id_, parent_id, kind, data, metadata, blobs, writes = parts
        return cls(
            namespace,
            id_,
            parent_id,
            kind,
            data,
            metadata,
            [Blob(*blob) for blob in blobs],
            [Write(*write) for write in writes],
        )

    def merge_writes(self, rows: Sequence[Write]) -> None:
        """Merge like the database: the first write of a slot stays, negative slots are replaced."""
        write_by_slot = {(write.task_id, write.slot): write for write in self.writes}
        for row in rows:
            if row.slot < 0 or (row.task_id, row.slot) not in write_by_slot:
                write_by_slot[row.task_id, row.slot] = row
        self.writes[:] = sorted(
            write_by_slot.values(), key=lambda write: (write.task_path, write.task_id, write.slot)
        )


class CheckpointCache(Protocol):
    """The interface by which a saver updates its cache and reads from it."""

    def find(
        self, namespace: str, checkpoint_id: str | None
    ) -> tuple[bool, StoredCheckpoint | None]:
        """Return whether the result of a read is known, and the checkpoint, if one exists."""

    def add_read(
        self, namespace: str, checkpoint_id: str | None, checkpoint: StoredCheckpoint | None
    ) -> None:
        """Cache the result of a read."""

    def add_checkpoint(
        self, checkpoint: StoredCheckpoint, outside: Sequence[tuple[str, str]]
    ) -> None:
        """Cache a written checkpoint; `outside`: channel and version of each value in blobs."""

    def add_writes(self, namespace: str, checkpoint_id: str, rows: Sequence[Write]) -> None:
        """Cache the writes of a task on top of a checkpoint."""


class RunCache:
    """The newest checkpoints of a run's thread, which no other writer changes meanwhile."""

    def __init__(self) -> None:
        self._heads: OrderedDict[str, StoredCheckpoint | None] = OrderedDict()
        self._has_no_older_subgraphs = False
        self._starts_from_head = False

    def prime_head(self, head: StoredCheckpoint | None) -> None:
        """Cache the thread's newest root checkpoint, which the worker sent with `start`."""
        self._put("", head)

    @property
    def head(self) -> StoredCheckpoint | None:
        """The newest root checkpoint in the cache."""
        return self._heads.get("")

    @property
    def is_empty(self) -> bool:
        """Whether the thread is known to have no checkpoint."""
        return "" in self._heads and self._heads[""] is None

    def mark_starts_from_head(self) -> None:
        """Record that this run starts from the newest checkpoint.

        After its first root checkpoint its tasks have new ids, so no earlier checkpoint of a
        subgraph can match and such reads need no request.
        """
        self._starts_from_head = True

    def find(
        self, namespace: str, checkpoint_id: str | None
    ) -> tuple[bool, StoredCheckpoint | None]:
        if namespace in self._heads:
            checkpoint = self._heads[namespace]
            if checkpoint_id is None or (checkpoint is not None and checkpoint.id == checkpoint_id):
                return True, checkpoint
        elif (
            checkpoint_id is None
            and self._has_no_older_subgraphs
            and namespace
            and all(":" in part for part in namespace.split("|"))
        ):
            return True, None
        return False, None

    def add_read(
        self, namespace: str, checkpoint_id: str | None, checkpoint: StoredCheckpoint | None
    ) -> None:
        if checkpoint_id is None:
            self._put(namespace, checkpoint)

    def add_checkpoint(
        self, checkpoint: StoredCheckpoint, outside: Sequence[tuple[str, str]]
    ) -> None:
        if self._starts_from_head and checkpoint.namespace == "":
            self._has_no_older_subgraphs = True
        parent = self._heads.get(checkpoint.namespace)
        new_channels = {blob.channel for blob in checkpoint.blobs}
        inherited_channels = [name for name, _ in outside if name not in new_channels]
        if inherited_channels:
            if parent is None or parent.id != checkpoint.parent_id:
                # A branch from an uncached checkpoint: inherited values are only in the database.
                self._heads.pop(checkpoint.namespace, None)
                return
            parent_blobs = {blob.channel: blob for blob in parent.blobs}
            inherited = [parent_blobs[name] for name in inherited_channels if name in parent_blobs]
            checkpoint = checkpoint._replace(blobs=[*checkpoint.blobs, *inherited])
        self._put(checkpoint.namespace, checkpoint)

    def add_writes(self, namespace: str, checkpoint_id: str, rows: Sequence[Write]) -> None:
        head = self._heads.get(namespace)
        if head is not None and head.id == checkpoint_id:
            head.merge_writes(rows)

    def _put(self, namespace: str, checkpoint: StoredCheckpoint | None) -> None:
        self._heads[namespace] = checkpoint
        self._heads.move_to_end(namespace)
        while len(self._heads) > _MAX_CACHED_NAMESPACES:
            oldest = next(iter(self._heads))
            if oldest == "":
                self._heads.move_to_end("")
                oldest = next(iter(self._heads))
            # The evicted namespace may have checkpoints now.
            self._has_no_older_subgraphs = False
            del self._heads[oldest]


class EditCache:
    """The checkpoints that a thread edit read and wrote: the thread's state after its commit.

    The worker buffers the writes until the call has succeeded, so this process cannot read them
    back from it.
    """

    def __init__(self) -> None:
        self._checkpoints: dict[tuple[str, str], StoredCheckpoint] = {}
        self._heads: dict[str, StoredCheckpoint | None] = {}
        self._blobs: dict[tuple[str, str, str], Blob] = {}

    def find(
        self, namespace: str, checkpoint_id: str | None
    ) -> tuple[bool, StoredCheckpoint | None]:
        if checkpoint_id is None:
            return namespace in self._heads, self._heads.get(namespace)
        checkpoint = self._checkpoints.get((namespace, checkpoint_id))
        return checkpoint is not None, checkpoint

    def add_read(
        self, namespace: str, checkpoint_id: str | None, checkpoint: StoredCheckpoint | None
    ) -> None:
        if checkpoint_id is None:
            self._heads[namespace] = checkpoint
        if checkpoint is not None:
            self._checkpoints[namespace, checkpoint.id] = checkpoint
            for blob in checkpoint.blobs:
                self._blobs[namespace, blob.channel, blob.version] = blob

    def add_checkpoint(
        self, checkpoint: StoredCheckpoint, outside: Sequence[tuple[str, str]]
    ) -> None:
        for blob in checkpoint.blobs:
            self._blobs[checkpoint.namespace, blob.channel, blob.version] = blob
        keys = [(checkpoint.namespace, channel, version) for channel, version in outside]
        blobs = [self._blobs[key] for key in keys if key in self._blobs]
        self.add_read(checkpoint.namespace, None, checkpoint._replace(blobs=blobs))

    def add_writes(self, namespace: str, checkpoint_id: str, rows: Sequence[Write]) -> None:
        checkpoint = self._checkpoints.get((namespace, checkpoint_id))
        if checkpoint is not None:
            checkpoint.merge_writes(rows)
