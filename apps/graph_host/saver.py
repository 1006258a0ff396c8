"""LangGraph checkpointer that stores checkpoints through the worker.

It serialises with LangGraph's serde; the worker stores the bytes unchanged. During a run, which has
exclusive write access to its thread, the newest checkpoints are cached here, so that reading them
back needs no round trip.
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
from .rpc import RunChannel

_OTHER_THREAD_PREFIX = "thread="
"""Namespace prefix of checkpoints that a nested graph saves under a thread id of its own."""
INLINE_BYTES = 64
"""Strings up to this length are stored in the checkpoint, which is cheaper than a separate row."""

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
    def of(cls, parts: Sequence[Any]) -> StoredCheckpoint:
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

    def take_writes(self, rows: Sequence[Write]) -> None:
        """Merge like the database: the first write of a slot stays, negative slots are replaced."""
        kept = {(write.task_id, write.slot): write for write in self.writes}
        for row in rows:
            if row.slot < 0 or (row.task_id, row.slot) not in kept:
                kept[row.task_id, row.slot] = row
        self.writes[:] = sorted(
            kept.values(), key=lambda write: (write.task_path, write.task_id, write.slot)
        )


class ForeignThread(ValueError):
    """A run may list the checkpoints of its own thread only."""


def _stays_inline(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= INLINE_BYTES
    return value is None or kind is bool or kind is float or (kind is int and abs(value) < 2**53)


class SocketSaver(BaseCheckpointSaver[str]):
    """The checkpointer of one run or call.

    `thread_id` is the only accessible thread; None allows all, for tests of the platform.
    `caches`: no other writer uses the thread meanwhile. `durable`: every write waits for its
    commit; otherwise the worker commits it within milliseconds, even if this process dies.
    """

    def __init__(
        self,
        channel: RunChannel,
        thread_id: str | None,
        *,
        caches: bool = False,
        durable: bool = False,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._thread_id = thread_id
        self._caches = caches
        self._durable = durable
        self._heads: OrderedDict[str, StoredCheckpoint | None] = OrderedDict()
        self._has_no_older_subgraphs = False
        self._starts_from_head = False

    # Cache

    def prime_head(self, head: StoredCheckpoint | None) -> None:
        """Cache the thread's newest root checkpoint, which the worker sent with `start`."""
        self._cache("", head)

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

    def _cache(self, namespace: str, stored: StoredCheckpoint | None) -> None:
        if not self._caches:
            return
        self._heads[namespace] = stored
        self._heads.move_to_end(namespace)
        while len(self._heads) > _MAX_CACHED_NAMESPACES:
            oldest = next(iter(self._heads))
            if oldest == "":
                self._heads.move_to_end("")
                oldest = next(iter(self._heads))
            # The evicted namespace may have checkpoints now.
            self._has_no_older_subgraphs = False
            del self._heads[oldest]

    def _cache_read(
        self, namespace: str, checkpoint_id: str | None, stored: StoredCheckpoint | None
    ) -> None:
        """Cache the result of a read."""
        if checkpoint_id is None:
            self._cache(namespace, stored)

    def _find_cached(
        self, namespace: str, checkpoint_id: str | None
    ) -> tuple[bool, StoredCheckpoint | None]:
        if namespace in self._heads:
            stored = self._heads[namespace]
            if checkpoint_id is None or (stored is not None and stored.id == checkpoint_id):
                return True, stored
        elif (
            checkpoint_id is None
            and self._has_no_older_subgraphs
            and namespace
            and all(":" in part for part in namespace.split("|"))
        ):
            return True, None
        return False, None

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, namespace, checkpoint_id = self._parse_config(config)
        known, stored = self._find_cached(namespace, checkpoint_id)
        if not known:
            parts = await self._channel.request("get", thread_id, namespace, checkpoint_id)
            stored = StoredCheckpoint.of(parts) if parts is not None else None
            self._cache_read(namespace, checkpoint_id, stored)
        return self._tuple(thread_id, stored) if stored is not None else None

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, namespace, checkpoint_id = self._parse_config(config)
        known, stored = self._find_cached(namespace, checkpoint_id)
        if not known:
            parts = self._channel.request_blocking("get", thread_id, namespace, checkpoint_id)
            stored = StoredCheckpoint.of(parts) if parts is not None else None
            self._cache_read(namespace, checkpoint_id, stored)
        return self._tuple(thread_id, stored) if stored is not None else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangGraph's word)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        thread_id, *filters = self._list_filters(config, filter, before, limit)
        for parts in await self._channel.request("list", thread_id, *filters):
            yield self._tuple(thread_id, StoredCheckpoint.of(parts))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangGraph's word)
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        thread_id, *filters = self._list_filters(config, filter, before, limit)
        for parts in self._channel.request_blocking("list", thread_id, *filters):
            yield self._tuple(thread_id, StoredCheckpoint.of(parts))

    def _list_filters(
        self,
        config: RunnableConfig | None,
        metadata_filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> tuple[str, str | None, str | None, bytes | None, str | None, int | None]:
        if config is None:
            if self._thread_id is None:
                raise ForeignThread("`list` needs a config with a thread id.")
            config = {"configurable": {"thread_id": self._thread_id}}
        configurable = config["configurable"]
        thread_id, namespace = self._map_thread(configurable)
        return (
            thread_id,
            namespace if namespace or configurable.get("checkpoint_ns") is not None else None,
            configurable.get("checkpoint_id"),
            encoding.dumps(metadata_filter) if metadata_filter else None,
            before["configurable"].get("checkpoint_id") if before else None,
            limit,
        )

    def _tuple(self, thread_id: str, stored: StoredCheckpoint) -> CheckpointTuple:
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
            await self._channel.request("put", *frame)
        else:
            self._channel.notify("put", *frame)
            await self._channel.drain()
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
            self._channel.request_blocking("put", *frame)
        else:
            self._channel.notify("put", *frame)
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
            await self._channel.request("writes", *frame)
        else:
            self._channel.notify("writes", *frame)
            await self._channel.drain()

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        frame = self._writes_frame(config, writes, task_id, task_path)
        if self._durable:
            self._channel.request_blocking("writes", *frame)
        else:
            self._channel.notify("writes", *frame)

    def _checkpoint_frame(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[str, tuple[Any, ...]]:
        configurable = config["configurable"]
        thread_id, namespace = self._map_thread(configurable)
        parent_id = configurable.get("checkpoint_id")
        values = checkpoint["channel_values"]
        inline = {name: value for name, value in values.items() if _stays_inline(value)}
        blobs = [
            Blob(name, str(version), *self.serde.dumps_typed(values[name]))
            for name, version in new_versions.items()
            if name in values and name not in inline
        ]
        without_blobs = {**checkpoint, "channel_values": inline}
        kind, data = self.serde.dumps_typed(without_blobs)
        metadata_json = encoding.dumps(get_checkpoint_metadata(config, metadata))
        versions = checkpoint["channel_versions"]
        # Values outside the checkpoint are found by their version.
        outside = [(n, str(versions[n])) for n in values if n not in inline and n in versions]
        for name, version in versions.items():
            if name not in values and name not in new_versions:
                outside.append((name, str(version)))
        if self._caches:
            self._has_no_older_subgraphs = self._has_no_older_subgraphs or (
                self._starts_from_head and namespace == ""
            )
            self._remember_checkpoint(
                StoredCheckpoint(
                    namespace, checkpoint["id"], parent_id, kind, data, metadata_json, blobs, []
                ),
                outside,
            )
        frame = (
            thread_id,
            namespace,
            checkpoint["id"],
            parent_id,
            kind,
            data,
            metadata_json,
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
        thread_id, namespace = self._map_thread(configurable)
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

    def _remember_checkpoint(
        self, stored: StoredCheckpoint, outside: Sequence[tuple[str, str]]
    ) -> None:
        """Cache a written checkpoint; `outside`: channel and version of each value in blobs."""
        parent = self._heads.get(stored.namespace)
        new_channels = {blob.channel for blob in stored.blobs}
        missing = [name for name, _ in outside if name not in new_channels]
        if missing:
            older = {blob.channel: blob for blob in parent.blobs} if parent is not None else {}
            inherited = [older[name] for name in missing if name in older]
            if parent is None or parent.id != stored.parent_id:
                # A branch from an uncached checkpoint: inherited values are only in the database.
                self._heads.pop(stored.namespace, None)
                return
            stored = stored._replace(blobs=[*stored.blobs, *inherited])
        self._cache(stored.namespace, stored)

    def _remember_writes(self, namespace: str, checkpoint_id: str, rows: Sequence[Write]) -> None:
        head = self._heads.get(namespace)
        if head is None or head.id != checkpoint_id:
            return
        head.take_writes(rows)

    # Operations on whole threads, which the worker rejects for runs

    async def adelete_thread(self, thread_id: str) -> None:
        await self._channel.request("thread", "delete", [thread_id])

    def delete_thread(self, thread_id: str) -> None:
        self._channel.request_blocking("thread", "delete", [thread_id])

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._channel.request("thread", "copy", [source_thread_id, target_thread_id])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._channel.request_blocking("thread", "copy", [source_thread_id, target_thread_id])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._channel.request("thread", "delete_for_runs", list(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._channel.request_blocking("thread", "delete_for_runs", [*run_ids])

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._channel.request("thread", f"prune_{strategy}", [*thread_ids])

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._channel.request_blocking("thread", f"prune_{strategy}", [*thread_ids])

    # Versions

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        """A version that is greater than `current` as text.

        The random suffix prevents two branches of a thread from sharing a version, and thus a blob.
        """
        if current is None:
            number = 0
        elif isinstance(current, str):
            number = int(current.partition(".")[0])
        else:
            number = int(current)
        return f"{number + 1:010d}.{random.getrandbits(40):010x}"

    # Thread ids and namespaces

    def _map_thread(self, configurable: Mapping[str, Any]) -> tuple[str, str]:
        """Map the graph's thread id and namespace to those under which the worker stores them.

        If a nested graph uses a thread id of its own, its checkpoints are stored in the run's
        thread under a separate namespace, so that they are fenced, copied and deleted with it.
        """
        thread_id = str(configurable["thread_id"])
        namespace: str = configurable.get("checkpoint_ns") or ""
        if self._thread_id is None or thread_id == self._thread_id:
            return thread_id, namespace
        prefix = f"{_OTHER_THREAD_PREFIX}{quote(thread_id, safe='')}"
        return self._thread_id, f"{prefix}|{namespace}" if namespace else prefix

    def _config(self, thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
        """The config for the graph: the inverse of `_map_thread`."""
        if namespace.startswith(_OTHER_THREAD_PREFIX):
            prefix, _, namespace = namespace.partition("|")
            thread_id = unquote(prefix.removeprefix(_OTHER_THREAD_PREFIX))
        return {
            "configurable": {
                "thread_id": thread_id,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
            }
        }

    def _parse_config(self, config: RunnableConfig) -> tuple[str, str, str | None]:
        configurable = config["configurable"]
        return (*self._map_thread(configurable), configurable.get("checkpoint_id") or None)


# LangGraph inspects this signature for every run; setting it avoids the cost.
SocketSaver.aput_writes.__signature__ = inspect.signature(SocketSaver.aput_writes)  # type: ignore[attr-defined]
