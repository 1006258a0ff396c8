"""The checkpointer of an edit: what it saves counts only once the whole edit has succeeded.

The worker keeps what is saved until the call answers, so it cannot be read back from there; it is
kept here as well, with whatever it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence

from .rpc import Door
from .saver import Blob, SocketSaver, Stored, Write


class DraftSaver(SocketSaver):
    """Reads the thread as it will be once the edit is committed."""

    def __init__(self, door: Door, thread_id: str) -> None:
        super().__init__(door, thread_id, keeps=True, durable=True)
        self._met: dict[tuple[str, str], Stored] = {}
        self._newest: dict[str, Stored | None] = {}
        self._blobs: dict[tuple[str, str, str], Blob] = {}

    def _known(self, namespace: str, checkpoint_id: str | None) -> tuple[bool, Stored | None]:
        if checkpoint_id is None:
            return namespace in self._newest, self._newest.get(namespace)
        stored = self._met.get((namespace, checkpoint_id))
        return stored is not None, stored

    def _learn(self, namespace: str, checkpoint_id: str | None, stored: Stored | None) -> None:
        if checkpoint_id is None:
            self._newest[namespace] = stored
        if stored is not None:
            self._met[namespace, stored.id] = stored
            for blob in stored.blobs:
                self._blobs[namespace, blob.channel, blob.version] = blob

    def _remember_checkpoint(self, stored: Stored, outside: Sequence[tuple[str, str]]) -> None:
        for blob in stored.blobs:
            self._blobs[stored.namespace, blob.channel, blob.version] = blob
        places = [(stored.namespace, channel, version) for channel, version in outside]
        blobs = [self._blobs[place] for place in places if place in self._blobs]
        self._learn(stored.namespace, None, stored._replace(blobs=blobs))

    def _remember_writes(self, namespace: str, checkpoint_id: str, rows: Sequence[Write]) -> None:
        known = self._met.get((namespace, checkpoint_id))
        if known is not None:
            known.take_writes(rows)
