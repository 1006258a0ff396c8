"""Where the files of an export are put."""

from __future__ import annotations

from typing import Protocol

from apps.core import objects
from apps.core.ids import uuid7
from apps.exports.models import Destination, Kind


class Writer(Protocol):
    def path(self, key: str) -> str:
        """How people find the file of that key."""

    def put(self, key: str, content: bytes) -> None:
        """Put the file, whole or not at all; the same key again replaces it. `NotWritten`."""

    def remove(self, key: str) -> None:
        """Remove the file if that is allowed."""


def writer_to(destination: Destination) -> Writer:
    if destination.kind == Kind.PLATFORM:
        return _Platform(destination)
    # The client of S3 costs every process a fifth of a second to import; few ever need it.
    from apps.exports.buckets import Bucket  # noqa: PLC0415

    return Bucket(destination)


def try_out(destination: Destination) -> None:
    """Write a test file; `NotWritten` says why that is not possible."""
    writer = writer_to(destination)
    key = "/".join(part for part in (destination.prefix, f"slipway-test-{uuid7()}") if part)
    writer.put(key, b"This file shows that exports can be written here.\n")
    writer.remove(key)


class _Platform:
    """The installation's own object storage, a folder for each workspace."""

    def __init__(self, destination: Destination) -> None:
        self._folder = f"exports/{destination.workspace_id}"

    def path(self, key: str) -> str:
        return f"{self._folder}/{key}"

    def put(self, key: str, content: bytes) -> None:
        objects.put(self.path(key), content)

    def remove(self, key: str) -> None:
        objects.remove([self.path(key)])
