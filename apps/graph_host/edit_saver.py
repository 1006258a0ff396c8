"""The checkpointer of a thread edit, whose writes are committed after the call has succeeded.

The worker buffers the writes until then, so this process cannot read them back from it and caches
them, together with the checkpoints that they are based on.
"""

from __future__ import annotations

from collections.abc import Sequence

from .rpc import RunChannel
from .saver import Blob, SocketSaver, StoredCheckpoint, Write


class EditSaver(SocketSaver):
    """Reads the thread as it will be once the edit is committed."""

    def __init__(self, channel: RunChannel, thread_id: str) -> None:
        super().__init__(channel, thread_id, caches=True, durable=True)
        self._read_checkpoints: dict[tuple[str, str], StoredCheckpoint] = {}
        self._newest: dict[str, StoredCheckpoint | None] = {}
        self._blobs: dict[tuple[str, str, str], Blob] = {}

    def _find_cached(
        self, namespace: str, checkpoint_id: str | None
    ) -> tuple[bool, StoredCheckpoint | None]:
        if checkpoint_id is None:
            return namespace in self._newest, self._newest.get(namespace)
        stored = self._read_checkpoints.get((namespace, checkpoint_id))
        return stored is not None, stored

    def _cache_read(
        self, namespace: str, checkpoint_id: str | None, stored: StoredCheckpoint | None
    ) -> None:
        if checkpoint_id is None:
            self._newest[namespace] = stored
        if stored is not None:
            self._read_checkpoints[namespace, stored.id] = stored
            for blob in stored.blobs:
                self._blobs[namespace, blob.channel, blob.version] = blob

    def _remember_checkpoint(
        self, stored: StoredCheckpoint, outside: Sequence[tuple[str, str]]
    ) -> None:
        for blob in stored.blobs:
            self._blobs[stored.namespace, blob.channel, blob.version] = blob
        keys = [(stored.namespace, channel, version) for channel, version in outside]
        blobs = [self._blobs[place] for place in keys if place in self._blobs]
        self._cache_read(stored.namespace, None, stored._replace(blobs=blobs))

    def _remember_writes(self, namespace: str, checkpoint_id: str, rows: Sequence[Write]) -> None:
        known = self._read_checkpoints.get((namespace, checkpoint_id))
        if known is not None:
            known.take_writes(rows)
