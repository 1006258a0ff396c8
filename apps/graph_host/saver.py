"""A checkpointer whose database is at the other end of the socket.

It serialises with LangGraph's serde and sends bytes, which the worker stores as they are. While a
run has its thread to itself, the newest checkpoints are also kept here, so that reading back what
this run has just written costs no round trip.
"""

from __future__ import annotations

import inspect
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)

from . import encoding
from .rpc import Door

_APART = "thread="
"""How the namespace begins of what a graph inside a run keeps under a thread id of its own."""
INLINE_BYTES = 64
"""A text up to this length stays inside the checkpoint: cheaper than a row of its own."""

_KEPT_NAMESPACES = 32


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


class Stored(NamedTuple):
    """A checkpoint as the worker stores it; also the form in which it travels."""

    namespace: str
    id: str
    parent_id: str | None
    kind: str
    data: bytes
    metadata: bytes
    blobs: list[Blob]
    writes: list[Write]

    @classmethod
    def of(cls, parts: Sequence[Any]) -> Stored:
        """From the list that a frame holds."""
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

    def take_writes(self, rows: Sequence[Write]) -> None:
        """Add writes as the database does: the first of a slot stays, marks are replaced."""
        kept = {(write.task_id, write.slot): write for write in self.writes}
        for row in rows:
            if row.slot < 0 or (row.task_id, row.slot) not in kept:
                kept[row.task_id, row.slot] = row
        self.writes[:] = sorted(
            kept.values(), key=lambda write: (write.task_path, write.task_id, write.slot)
        )


class ForeignThread(ValueError):
    """A run may list its own thread only."""


def _stays_inline(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= INLINE_BYTES
    return value is None or kind is bool or kind is float or (kind is int and abs(value) < 2**53)


class SocketSaver(BaseCheckpointSaver[str]):
    """The checkpointer of one run or call.

    `thread_id` is the only thread it may touch; None lifts that, for the platform's own use.
    `keeps` says that nobody else writes to the thread meanwhile. `durable` makes every checkpoint
    wait until it is committed; else the worker has it when this process could still die, and
    commits it within milliseconds.
    """

    def __init__(
        self,
        door: Door,
        thread_id: str | None,
        *,
        keeps: bool = False,
        durable: bool = False,
    ) -> None:
        super().__init__()
        self._door = door
        self._thread_id = thread_id
        self._keeps = keeps
        self._durable = durable
        self._heads: OrderedDict[str, Stored | None] = OrderedDict()
        self._nothing_older = False
        self._forward = False

    # What this run knows without asking

    def know_head(self, head: Stored | None) -> None:
        """Take the thread's newest root checkpoint, which the worker read beforehand."""
        self._keep("", head)

    @property
    def head(self) -> Stored | None:
        """The newest root checkpoint that this run has seen or made."""
        return self._heads.get("")

    @property
    def is_empty(self) -> bool:
        """Whether the thread is known to have no checkpoint."""
        return "" in self._heads and self._heads[""] is None

    def goes_forward(self) -> None:
        """Take note that this run starts from the head and not from an older checkpoint.

        After its first root checkpoint it then meets no earlier checkpoint of a subgraph: its tasks
        have new ids.
        """
        self._forward = True

    def _keep(self, namespace: str, stored: Stored | None) -> None:
        if not self._keeps:
            return
        self._heads[namespace] = stored
        self._heads.move_to_end(namespace)
        while len(self._heads) > _KEPT_NAMESPACES:
            oldest = next(iter(self._heads))
            if oldest == "":
                self._heads.move_to_end("")
                oldest = next(iter(self._heads))
            # Its emptiness is no longer known either.
            self._nothing_older = False
            del self._heads[oldest]

    def _learn(self, namespace: str, checkpoint_id: str | None, stored: Stored | None) -> None:
        """Take note of what was read."""
        if checkpoint_id is None:
            self._keep(namespace, stored)

    def _known(self, namespace: str, checkpoint_id: str | None) -> tuple[bool, Stored | None]:
        if namespace in self._heads:
            stored = self._heads[namespace]
            if checkpoint_id is None or (stored is not None and stored.id == checkpoint_id):
                return True, stored
        elif (
            checkpoint_id is None
            and self._nothing_older
            and namespace
            and all(":" in part for part in namespace.split("|"))
        ):
            return True, None
        return False, None

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, namespace, checkpoint_id = self._place(config)
        known, stored = self._known(namespace, checkpoint_id)
        if not known:
            parts = await self._door.ask("get", thread_id, namespace, checkpoint_id)
            stored = Stored.of(parts) if parts is not None else None
            self._learn(namespace, checkpoint_id, stored)
        return self._tuple(thread_id, stored) if stored is not None else None

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, namespace, checkpoint_id = self._place(config)
        known, stored = self._known(namespace, checkpoint_id)
        if not known:
            parts = self._door.ask_blocking("get", thread_id, namespace, checkpoint_id)
            stored = Stored.of(parts) if parts is not None else None
            self._learn(namespace, checkpoint_id, stored)
        return self._tuple(thread_id, stored) if stored is not None else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangGraph's word)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        thread_id, *wanted = self._wanted(config, filter, before, limit)
        for parts in await self._door.ask("list", thread_id, *wanted):
            yield self._tuple(thread_id, Stored.of(parts))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangGraph's word)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        thread_id, *wanted = self._wanted(config, filter, before, limit)
        for parts in self._door.ask_blocking("list", thread_id, *wanted):
            yield self._tuple(thread_id, Stored.of(parts))

    def _wanted(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> tuple[str, str | None, str | None, bytes | None, str | None, int | None]:
        if config is None:
            if self._thread_id is None:
                raise ForeignThread("Checkpoints are listed thread by thread.")
            config = {"configurable": {"thread_id": self._thread_id}}
        configurable = config["configurable"]
        thread_id, namespace = self._own(configurable)
        return (
            thread_id,
            namespace if namespace or configurable.get("checkpoint_ns") is not None else None,
            configurable.get("checkpoint_id"),
            encoding.dumps(wanted) if wanted else None,
            before["configurable"].get("checkpoint_id") if before else None,
            limit,
        )

    def _tuple(self, thread_id: str, stored: Stored) -> CheckpointTuple:
        checkpoint: Checkpoint = self.serde.loads_typed((stored.kind, stored.data))
        values = checkpoint["channel_values"]
        for blob in stored.blobs:
            values[blob.channel] = self.serde.loads_typed((blob.kind, blob.data))
        return CheckpointTuple(
            config=self._config(thread_id, stored.namespace, stored.id),
            checkpoint=checkpoint,
            metadata=encoding.loads(stored.metadata),
            parent_config=(
                self._config(thread_id, stored.namespace, stored.parent_id)
                if stored.parent_id
                else None
            ),
            pending_writes=[
                (write.task_id, write.channel, self.serde.loads_typed((write.kind, write.data)))
                for write in stored.writes
            ],
        )

    # Writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, frame = self._checkpoint_frame(config, checkpoint, metadata, new_versions)
        if self._durable:
            await self._door.ask("put", *frame)
        else:
            self._door.tell("put", *frame)
            await self._door.give_way()
        return self._config(thread_id, frame[1], checkpoint["id"])

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, frame = self._checkpoint_frame(config, checkpoint, metadata, new_versions)
        if self._durable:
            self._door.ask_blocking("put", *frame)
        else:
            self._door.tell("put", *frame)
        return self._config(thread_id, frame[1], checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        frame = self._writes_frame(config, writes, task_id, task_path)
        if self._durable:
            await self._door.ask("writes", *frame)
        else:
            self._door.tell("writes", *frame)
            await self._door.give_way()

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        frame = self._writes_frame(config, writes, task_id, task_path)
        if self._durable:
            self._door.ask_blocking("writes", *frame)
        else:
            self._door.tell("writes", *frame)

    def _checkpoint_frame(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[str, tuple[Any, ...]]:
        configurable = config["configurable"]
        thread_id, namespace = self._own(configurable)
        parent_id = configurable.get("checkpoint_id")
        values = checkpoint["channel_values"]
        inline = {name: value for name, value in values.items() if _stays_inline(value)}
        blobs = [
            Blob(name, str(version), *self.serde.dumps_typed(values[name]))
            for name, version in new_versions.items()
            if name in values and name not in inline
        ]
        bare = {**checkpoint, "channel_values": inline}
        kind, data = self.serde.dumps_typed(bare)
        described = encoding.dumps(get_checkpoint_metadata(config, metadata))
        versions = checkpoint["channel_versions"]
        # Only values outside the checkpoint need their version to be found again.
        outside = [(n, str(versions[n])) for n in values if n not in inline and n in versions]
        for name, version in versions.items():
            if name not in values and name not in new_versions:
                outside.append((name, str(version)))
        if self._keeps:
            self._nothing_older = self._nothing_older or (self._forward and namespace == "")
            self._remember_checkpoint(
                Stored(namespace, checkpoint["id"], parent_id, kind, data, described, blobs, []),
                outside,
            )
        frame = (
            thread_id,
            namespace,
            checkpoint["id"],
            parent_id,
            kind,
            data,
            described,
            outside,
            [tuple(blob) for blob in blobs],
        )
        return thread_id, frame

    def _writes_frame(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> tuple[Any, ...]:
        configurable = config["configurable"]
        thread_id, namespace = self._own(configurable)
        checkpoint_id = configurable["checkpoint_id"]
        rows = [
            Write(
                task_id,
                WRITES_IDX_MAP.get(channel, index),
                channel,
                *self.serde.dumps_typed(value),
                task_path,
            )
            for index, (channel, value) in enumerate(writes)
        ]
        self._remember_writes(namespace, checkpoint_id, rows)
        return (
            thread_id,
            namespace,
            checkpoint_id,
            [tuple(row) for row in rows],
        )

    def _remember_checkpoint(self, stored: Stored, outside: Sequence[tuple[str, str]]) -> None:
        """Take note of what was written; `outside`: channel and version of each value in blobs."""
        before = self._heads.get(stored.namespace)
        fresh = {blob.channel for blob in stored.blobs}
        missing = [name for name, _ in outside if name not in fresh]
        if missing:
            older = {blob.channel: blob for blob in before.blobs} if before is not None else {}
            found = [older[name] for name in missing if name in older]
            if before is None or before.id != stored.parent_id:
                # A branch from elsewhere: what it inherits is in the database.
                self._heads.pop(stored.namespace, None)
                return
            stored = stored._replace(blobs=[*stored.blobs, *found])
        self._keep(stored.namespace, stored)

    def _remember_writes(self, namespace: str, checkpoint_id: str, rows: Sequence[Write]) -> None:
        head = self._heads.get(namespace)
        if head is None or head.id != checkpoint_id:
            return
        head.take_writes(rows)

    # Whole threads; the worker refuses these to runs

    async def adelete_thread(self, thread_id: str) -> None:
        await self._door.ask("thread", "delete", [thread_id])

    def delete_thread(self, thread_id: str) -> None:
        self._door.ask_blocking("thread", "delete", [thread_id])

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._door.ask("thread", "copy", [source_thread_id, target_thread_id])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._door.ask_blocking("thread", "copy", [source_thread_id, target_thread_id])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._door.ask("thread", "delete_for_runs", list(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._door.ask_blocking("thread", "delete_for_runs", [*run_ids])

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._door.ask("thread", f"prune_{strategy}", [*thread_ids])

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._door.ask_blocking("thread", f"prune_{strategy}", [*thread_ids])

    # Versions

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        """A version that is greater than `current` as text.

        It ends at random, so that two branches of a thread never share a version, and so a blob.
        """
        if current is None:
            number = 0
        elif isinstance(current, str):
            number = int(current.partition(".")[0])
        else:
            number = int(current)
        return f"{number + 1:010d}.{random.getrandbits(40):010x}"

    # Places

    def _own(self, configurable: Mapping[str, Any]) -> tuple[str, str]:
        """Thread and namespace of the worker's for a place that the graph names.

        A graph that is called with a thread id of its own inside a run has its states kept with the
        run's thread, apart from it: there they are fenced, copied and deleted like the rest.
        """
        thread_id = str(configurable["thread_id"])
        namespace: str = configurable.get("checkpoint_ns") or ""
        if self._thread_id is None or thread_id == self._thread_id:
            return thread_id, namespace
        apart = f"{_APART}{quote(thread_id, safe='')}"
        return self._thread_id, f"{apart}|{namespace}" if namespace else apart

    def _config(self, thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
        """The place as the graph names it."""
        if namespace.startswith(_APART):
            apart, _, namespace = namespace.partition("|")
            thread_id = unquote(apart.removeprefix(_APART))
        return {
            "configurable": {
                "thread_id": thread_id,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
            }
        }

    def _place(self, config: RunnableConfig) -> tuple[str, str, str | None]:
        configurable = config["configurable"]
        return (*self._own(configurable), configurable.get("checkpoint_id") or None)


# LangGraph reads this signature for every run; made once, it costs nothing.
SocketSaver.aput_writes.__signature__ = inspect.signature(SocketSaver.aput_writes)  # type: ignore[attr-defined]
