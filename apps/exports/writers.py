"""Writers of export files: the platform's object storage or an S3 bucket."""

from __future__ import annotations

from typing import Protocol

from apps.core import objects
from apps.core.ids import uuid7
from apps.exports.models import Destination, DestinationKind


class Writer(Protocol):
    def path(self, key: str) -> str:
        """Return the path of the file as users see it."""

    def put(self, key: str, content: bytes) -> None:
        """Write the file atomically, replacing an existing one; raise `WriteFailed`."""

    def remove(self, key: str) -> None:
        """Delete the file if the credentials permit it."""


def create_writer(destination: Destination) -> Writer:
    if destination.kind == DestinationKind.PLATFORM:
        return _PlatformWriter(destination)
    # Importing boto3 takes 200 ms, and few processes need it.
    from apps.exports.s3_writer import BucketWriter  # noqa: PLC0415

    return BucketWriter(destination)


def test_write(destination: Destination) -> None:
    """Write and delete a test file; raise `WriteFailed` with the reason."""
    writer = create_writer(destination)
    key = "/".join(part for part in (destination.prefix, f"slipway-test-{uuid7()}") if part)
    writer.put(key, b"Slipway wrote this file to test the destination.\n")
    writer.remove(key)


class _PlatformWriter:
    """Writes to the platform's object storage, in one folder per workspace."""

    def __init__(self, destination: Destination) -> None:
        self._folder = f"exports/{destination.workspace_id}"

    def path(self, key: str) -> str:
        return f"{self._folder}/{key}"

    def put(self, key: str, content: bytes) -> None:
        objects.put(self.path(key), content)

    def remove(self, key: str) -> None:
        objects.remove([self.path(key)])
