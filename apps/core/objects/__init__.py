"""Object storage: what is too large for a row, and people's files. Folders by default, or S3.

An object is put before the row that names it, and removed after the row: a crash leaves waste,
never a row without its object. A path tells what it holds, so the same path is the same content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol, cast

from django.core.files.storage import default_storage

from apps.core import errors


class ObjectStorage(Protocol):
    """What this needs of a Django storage; failures of the medium are `OSError`."""

    def put(self, path: str, content: bytes) -> None:
        """Durable on return, whole or not at all; free when it is there already."""

    def get(self, path: str) -> bytes:
        """`FileNotFoundError` when there is no such object."""

    def reader(self, path: str) -> BinaryIO:
        """The object as a file to read from, not held in memory as a whole."""

    def remove(self, paths: Iterable[str]) -> None:
        """Those that are there."""

    def remove_folder(self, path: str) -> None:
        """All objects whose path begins with this one and a slash."""


def put(path: str, content: bytes) -> None:
    """Keep the content under the path; durable on return. `Unavailable` when that fails."""
    with _telling():
        _storage().put(path, content)


def get(path: str) -> bytes:
    """The content; `FileNotFoundError` when there is none, `Unavailable` when nobody answers."""
    with _telling():
        return _storage().get(path)


def reader(path: str) -> BinaryIO:
    """The object as a file; `FileNotFoundError` when there is none."""
    with _telling():
        return _storage().reader(path)


def remove(paths: Iterable[str]) -> None:
    """Remove these objects; one that is gone already is no failure."""
    _storage().remove(paths)


def remove_folder(path: str) -> None:
    """Remove every object below the path."""
    _storage().remove_folder(path)


@contextmanager
def _telling() -> Iterator[None]:
    """What fails for no reason of the caller's may be tried again."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise errors.Unavailable("Object storage does not answer.") from error


def _storage() -> ObjectStorage:
    return cast("ObjectStorage", default_storage)
