"""Folders of revisions on disk, and safe reads of files that agent code may have placed there.

    DATA_DIR/revisions/<revision>/<attempt>/source    the repository
    DATA_DIR/revisions/<revision>/<attempt>/venv      its environment
    DATA_DIR/package-cache/<organization number>      uv's cache, shared by an organization's builds
    DATA_DIR/package-cache/<number>/compiled          modules of Python that its builds compiled

Each attempt has its own folder, so that a builder that lost its lease cannot change the files of
its successor. If the platform runs as root, an unprivileged user per organization owns them.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import UUID

from django.conf import settings

from apps.deployments import sandbox

_MAX_READ_BYTES = 1024 * 1024


class FileNotReadable(Exception):
    """A file of the repository cannot be read; the text states the reason for its author."""


def organization_uid(number: int) -> int | None:
    """Return the uid that runs the organization's code, or None for the platform's own user."""
    return settings.SANDBOX_UID_BASE + number if os.geteuid() == 0 else None


@dataclass(frozen=True, slots=True)
class RevisionDir:
    """The folder of one build attempt of a revision."""

    folder: Path
    uid: int | None
    owner: str
    """The organization's name for its sandboxes."""

    @classmethod
    def for_attempt(cls, revision_id: UUID, attempt: int, organization_number: int) -> RevisionDir:
        folder = _revisions_folder() / str(revision_id) / str(attempt)
        uid = organization_uid(organization_number)
        return cls(folder, uid, f"organization-{organization_number}")

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def create(self) -> None:
        """Create the folder with empty `source` and `venv` folders; remove an existing one."""
        _make_private_folder(_revisions_folder())
        _make_private_folder(self.folder.parent)
        remove_tree(self.folder)
        for folder in (self.folder, self.source, self.venv):
            folder.mkdir(mode=0o700)
            if self.uid is not None:
                os.chown(folder, self.uid, self.uid)

    def remove_older(self) -> None:
        """Remove the folders of earlier attempts."""
        for sibling in self.folder.parent.iterdir():
            if sibling.name.isdecimal() and int(sibling.name) < int(self.folder.name):
                remove_tree(sibling)

    def read_text(self, path: str) -> str:
        """Return the text of a source file without following links, or raise `FileNotReadable`."""
        try:
            return _read_file_below(self.source, PurePosixPath(path))
        except FileNotFoundError:
            raise FileNotReadable(f"There is no file {path} in the repository.") from None
        except UnicodeDecodeError:
            raise FileNotReadable(f"{path} is not a UTF-8 text file.") from None
        except OSError:
            raise FileNotReadable(
                f"{path} cannot be read: it must be a regular file of at most 1 MiB, and its path"
                " must not have symbolic links."
            ) from None

    def file_type(self, path: str) -> str:
        """Return the type of a path in the source: `file`, `folder`, `link` or `missing`.

        A path through a symbolic link is a `link`: only the sandbox resolves it.
        """
        fd = os.open(self.source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            parts = PurePosixPath(path).parts
            for depth, part in enumerate(parts, start=1):
                try:
                    mode = os.lstat(part, dir_fd=fd).st_mode
                except (FileNotFoundError, NotADirectoryError):
                    return "missing"
                if stat.S_ISLNK(mode):
                    return "link"
                if not stat.S_ISDIR(mode):
                    return "file" if depth == len(parts) and stat.S_ISREG(mode) else "missing"
                inner_fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner_fd
            return "folder"
        finally:
            os.close(fd)


def package_cache(organization_number: int) -> Path:
    """Return the folder of uv's cache for the organization; create it if needed."""
    _make_private_folder(settings.DATA_DIR / "package-cache")
    folder: Path = settings.DATA_DIR / "package-cache" / str(organization_number)
    uid = organization_uid(organization_number)
    if not folder.exists():
        sandbox.prepare_dir(folder, uid=uid)
    return folder


def remove_revision(revision_id: UUID) -> None:
    """Remove all files of a revision. Safe to repeat."""
    remove_tree(_revisions_folder() / str(revision_id))


def remove_tree(folder: Path) -> None:
    """Remove a tree that agent code may have written: links are removed, never followed."""
    if not folder.exists():
        return
    assert shutil.rmtree.avoids_symlink_attacks  # noqa: S101 - true on every Linux
    if os.geteuid() != 0:
        _make_folders_writable(folder)
    shutil.rmtree(folder)


def _make_folders_writable(folder: Path) -> None:
    """Restore the owner's permissions on each folder; agent code may have removed them."""
    for _, names, _, fd in os.fwalk(folder, follow_symlinks=False):
        for name in names:
            if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                os.chmod(name, 0o700, dir_fd=fd)


def _revisions_folder() -> Path:
    folder: Path = settings.DATA_DIR / "revisions"
    return folder


def _make_private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _read_file_below(root: Path, path: PurePosixPath) -> str:
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise OSError("the path leaves the source folder")
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in path.parts[:-1]:
            inner_fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner_fd
        # Without O_NONBLOCK, opening a named pipe would block the builder forever.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(path.name, flags, dir_fd=fd), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_READ_BYTES:
                raise OSError("not a regular file, or too large")
            return file.read(_MAX_READ_BYTES).decode()
    finally:
        os.close(fd)
