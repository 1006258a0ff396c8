"""Object storage of large payloads and attachments: local files by default, or S3.

An object is written before the row that references it and removed after the row: a crash leaves an
orphaned object, never a dangling reference. The same path always has the same content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol, cast

from django.core.files.storage import default_storage

from apps.core import errors


class ObjectStorage(Protocol):
    """The methods required of a Django storage; failures are `OSError`."""

    def put(self, path: str, content: bytes) -> None:
        """Write atomically and durably; no effect if the path exists."""

    def get(self, path: str) -> bytes:
        """Return the content. Raises `FileNotFoundError`."""

    def reader(self, path: str) -> BinaryIO:
        """Open the object for reading, without loading it into memory."""

    def remove(self, paths: Iterable[str]) -> None:
        """Remove the objects that exist."""

    def remove_folder(self, path: str) -> None:
        """Remove all objects below the path."""


def put(path: str, content: bytes) -> None:
    """Store the content durably. Raises `Unavailable`."""
    with _as_unavailable():
        _storage().put(path, content)


def get(path: str) -> bytes:
    """Return the content. Raises `FileNotFoundError` or `Unavailable`."""
    with _as_unavailable():
        return _storage().get(path)


def reader(path: str) -> BinaryIO:
    """Open the object. Raises `FileNotFoundError` or `Unavailable`."""
    with _as_unavailable():
        return _storage().reader(path)


def remove(paths: Iterable[str]) -> None:
    """Remove the objects; missing ones are ignored."""
    _storage().remove(paths)


def remove_folder(path: str) -> None:
    """Remove every object below the path."""
    _storage().remove_folder(path)


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Convert a failure of the storage to `Unavailable`, which clients retry."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise errors.Unavailable("Object storage is unavailable.") from error


def _storage() -> ObjectStorage:
    return cast("ObjectStorage", default_storage)
