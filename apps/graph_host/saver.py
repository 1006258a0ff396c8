"""LangGraph checkpointer that stores checkpoints through the worker.

It serialises with LangGraph's serde; the worker stores the bytes unchanged. During a run, which has
exclusive write access to its thread, the newest checkpoints are cached in this process, so that
reading them back needs no round trip.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
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
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from . import encoding
from .checkpoint_cache import Blob, CheckpointCache, StoredCheckpoint, Write
from .project import AgentProject, ProjectError
from .rpc import RunChannel

_OTHER_THREAD_PREFIX = "thread="
"""Namespace prefix of checkpoints that a nested graph saves under another thread id."""
INLINE_BYTES = 64
"""Strings up to this length are stored in the checkpoint, which is cheaper than a separate row."""

_Key = tuple[str, str, str | None]
"""The thread id, namespace and checkpoint id of a read; without a checkpoint id, the newest."""

_MODULE_OPTIONS = ("allowed_json_modules", "allowed_msgpack_modules")


class ForeignThread(ValueError):
    """A run may list the checkpoints of its own thread only."""


class CheckpointNotFound(LookupError):
    """The thread has no checkpoint with the id of a reference."""


async def require_checkpoint(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> None:
    """Raise `CheckpointNotFound` unless the checkpoint of the config exists."""
    if await saver.aget_tuple(config) is None:
        configurable = config["configurable"]
        raise CheckpointNotFound(
            f"Thread {configurable['thread_id']} has no checkpoint {configurable['checkpoint_id']}."
        )


def _is_inline(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= INLINE_BYTES
    return value is None or kind is bool or kind is float or (kind is int and abs(value) < 2**53)


def _is_plain(value: Any) -> bool:
    """Whether JSON of the value is read back equal; the serde makes objects of keys `lc`."""
    kind = type(value)
    if kind is list:
        return all(map(_is_plain, value))
    if kind is dict:
        return "lc" not in value and all(
            type(name) is str and _is_plain(member) for name, member in value.items()
        )
    return value is None or kind in {str, int, float, bool}


class SocketSaver(BaseCheckpointSaver[str]):
    """The checkpointer of one run or call.

    `thread_id` is the only accessible thread; None allows all, for tests of the platform.
    Without a `cache`, every read is a request. `durable`: every write waits for its commit;
    otherwise the worker commits it within milliseconds, even if this process dies.
    """

    def __init__(
        self,
        channel: RunChannel,
        thread_id: str | None,
        *,
        cache: CheckpointCache | None = None,
        durable: bool = False,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._thread_id = thread_id
        self._cache = cache
        self._durable = durable

    def hide_head(self) -> None:
        """Make the graph see an empty thread. Requires a cache; stored checkpoints stay."""
        if self._cache is not None:
            self._cache.add_read("", None, None)

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        key = self._parse_config(config)
        is_known, checkpoint = self._find_cached(key)
        if not is_known:
            checkpoint = self._add_read(key, await self._channel.request("get", *key))
        return self._tuple(key[0], checkpoint) if checkpoint is not None else None

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        key = self._parse_config(config)
        is_known, checkpoint = self._find_cached(key)
        if not is_known:
            checkpoint = self._add_read(key, self._channel.request_blocking("get", *key))
        return self._tuple(key[0], checkpoint) if checkpoint is not None else None

    def _find_cached(self, key: _Key) -> tuple[bool, StoredCheckpoint | None]:
        return (False, None) if self._cache is None else self._cache.find(*key[1:])

    def _add_read(self, key: _Key, parts: Sequence[Any] | None) -> StoredCheckpoint | None:
        checkpoint = StoredCheckpoint.parse(parts) if parts is not None else None
        if self._cache is not None:
            self._cache.add_read(*key[1:], checkpoint)
        return checkpoint

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
            yield self._tuple(thread_id, StoredCheckpoint.parse(parts))

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
            yield self._tuple(thread_id, StoredCheckpoint.parse(parts))

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
        frame = self._checkpoint_frame(config, checkpoint, metadata, new_versions)
        await self._send("put", frame)
        return self._config(*frame[:3])

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        frame = self._checkpoint_frame(config, checkpoint, metadata, new_versions)
        self._send_blocking("put", frame)
        return self._config(*frame[:3])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self._send("writes", self._writes_frame(config, writes, task_id, task_path))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._send_blocking("writes", self._writes_frame(config, writes, task_id, task_path))

    async def _send(self, kind: str, frame: tuple[Any, ...]) -> None:
        if self._durable:
            await self._channel.request(kind, *frame)
        else:
            self._channel.notify(kind, *frame)
            await self._channel.drain()

    def _send_blocking(self, kind: str, frame: tuple[Any, ...]) -> None:
        if self._durable:
            self._channel.request_blocking(kind, *frame)
        else:
            self._channel.notify(kind, *frame)

    def _checkpoint_frame(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[Any, ...]:
        configurable = config["configurable"]
        thread_id, namespace = self._map_thread(configurable)
        parent_id = configurable.get("checkpoint_id")
        values = checkpoint["channel_values"]
        inline = {name: value for name, value in values.items() if _is_inline(value)}
        blobs = [
            Blob(name, str(version), *self._serialize(values[name]))
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
        if self._cache is not None:
            self._cache.add_checkpoint(
                StoredCheckpoint(
                    namespace, checkpoint["id"], parent_id, kind, data, metadata_json, blobs, []
                ),
                outside,
            )
        return (
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

    def _serialize(self, value: Any) -> tuple[str, bytes]:
        """Return the serde's name and bytes; JSON for plain values with integers above 64 bits."""
        try:
            return self.serde.dumps_typed(value)
        except TypeError:
            if not _is_plain(value):
                raise
            return "json", json.dumps(value).encode()

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
                *self._serialize(value),
                task_path,
            )
            for index, (channel, value) in enumerate(writes)
        ]
        if self._cache is not None:
            self._cache.add_writes(namespace, checkpoint_id, rows)
        return thread_id, namespace, checkpoint_id, [tuple(row) for row in rows]

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
        """Return a version that is greater than `current` in text order.

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

        If a nested graph uses another thread id, its checkpoints are stored in the run's
        thread under a separate namespace, so that they are fenced, copied and deleted with it.
        """
        thread_id = str(configurable["thread_id"])
        namespace: str = configurable.get("checkpoint_ns") or ""
        if self._thread_id is None or thread_id == self._thread_id:
            return thread_id, namespace
        prefix = f"{_OTHER_THREAD_PREFIX}{quote(thread_id, safe='')}"
        return self._thread_id, f"{prefix}|{namespace}" if namespace else prefix

    def _config(self, thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
        """Return the config for the graph; the inverse of `_map_thread`."""
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

    def _parse_config(self, config: RunnableConfig) -> _Key:
        configurable = config["configurable"]
        return (*self._map_thread(configurable), configurable.get("checkpoint_id") or None)


# LangGraph inspects this signature for every run; setting it avoids the cost.
SocketSaver.aput_writes.__signature__ = inspect.signature(SocketSaver.aput_writes)  # type: ignore[attr-defined]


def configure_serde(project: AgentProject) -> None:
    """Apply the project's `checkpointer.serde` to all savers; a host serves one project."""
    serde_config = (project.config.get("checkpointer") or {}).get("serde")
    if not serde_config:
        return
    options: dict[str, Any] = {}
    for name, value in serde_config.items():
        if value is None:
            continue
        is_list = name in _MODULE_OPTIONS and isinstance(value, list)
        options[name] = [tuple(part) for part in value] if is_list else value
    supported = inspect.signature(JsonPlusSerializer).parameters
    if unknown := sorted(options.keys() - supported.keys()):
        raise ProjectError(
            f"`checkpointer.serde.{unknown[0]}` is not supported by the installed version"
            " of LangGraph."
        )
    SocketSaver.serde = JsonPlusSerializer(**options)
