"""Objects as files on this machine or a shared volume."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from django.core.files.storage import FileSystemStorage


class FileObjectStorage(FileSystemStorage):
    """File storage whose writes survive a power failure. See `ObjectStorage`."""

    def put(self, path: str, content: bytes) -> None:
        target = Path(self.path(path))
        if target.exists():
            return
        _make_folder(target.parent)
        draft = target.with_name(f".{target.name}.{uuid4().hex}")
        try:
            with open(draft, "xb", opener=_open_private) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _fsync_folder(target.parent)

    def get(self, path: str) -> bytes:
        return Path(self.path(path)).read_bytes()

    def reader(self, path: str) -> BinaryIO:
        return Path(self.path(path)).open("rb")

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            target = Path(self.path(path))
            target.unlink(missing_ok=True)
            with suppress(OSError):  # not empty, or already removed
                target.parent.rmdir()

    def remove_folder(self, path: str) -> None:
        shutil.rmtree(self.path(path), ignore_errors=True)

    def _save(self, name: str, content: Any) -> str:
        self.put(name, content.read())
        return name

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return name


def _make_folder(folder: Path) -> None:
    """Create the folder and its parents durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
