"""Writers of export files: the platform's object storage or an S3 bucket."""

from __future__ import annotations

import threading
from typing import Protocol

from apps.core import object_storage
from apps.core.errors import RateLimited
from apps.core.ids import uuid7
from apps.exports.deadline import limited
from apps.exports.models import Destination, DestinationKind


class Writer(Protocol):
    def path(self, key: str) -> str:
        """Return the path of the file as users see it."""

    def put(self, key: str, content: bytes) -> None:
        """Write the file atomically, replacing an existing one; raise `WriteFailed`."""

    def remove(self, key: str) -> None:
        """Delete the file if the credentials permit it."""


_WRITE_SECONDS = 60.0
_MIN_BYTES_PER_SECOND = 262_144


def write(writer: Writer, key: str, content: bytes) -> None:
    """Write a file of an export. Raises `WriteFailed`, also for a server that is too slow.

    It holds a thread of the worker.
    """
    with limited(_WRITE_SECONDS + len(content) / _MIN_BYTES_PER_SECOND):
        writer.put(key, content)


def create_writer(destination: Destination) -> Writer:
    if destination.kind == DestinationKind.PLATFORM:
        return _PlatformWriter(destination)
    # Importing boto3 takes 200 ms, and few processes need it.
    from apps.exports.s3_writer import BucketWriter  # noqa: PLC0415

    return BucketWriter(destination)


TEST_SECONDS = 15.0
_MAX_TESTS = 2
_test_slots = threading.BoundedSemaphore(_MAX_TESTS)


def test_write(destination: Destination) -> None:
    """Write and delete a test file; raise `WriteFailed` with the reason.

    It holds a web thread, so it takes at most `TEST_SECONDS`, and a process runs few at a time.
    Raises `RateLimited` if there are too many.
    """
    if not _test_slots.acquire(blocking=False):
        raise RateLimited("Other destinations are being tested. Retry in a moment.")
    try:
        _test_write(destination)
    finally:
        _test_slots.release()


def _test_write(destination: Destination) -> None:
    key = "/".join(part for part in (destination.prefix, f"slipway-test-{uuid7()}") if part)
    with limited(TEST_SECONDS):
        writer = create_writer(destination)
        writer.put(key, b"Slipway wrote this file to test the destination.\n")
        writer.remove(key)


class _PlatformWriter:
    """Writes to the platform's object storage, in one folder per workspace."""

    def __init__(self, destination: Destination) -> None:
        self._folder = f"exports/{destination.workspace_id}"

    def path(self, key: str) -> str:
        return f"{self._folder}/{key}"

    def put(self, key: str, content: bytes) -> None:
        object_storage.put(self.path(key), content)

    def remove(self, key: str) -> None:
        object_storage.remove([self.path(key)])
