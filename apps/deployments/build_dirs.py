"""Where a revision's files lie, and how the platform reads what agent code could have arranged.

    DATA_DIR/revisions/<revision>/<attempt>/source    the repository
    DATA_DIR/revisions/<revision>/<attempt>/venv      its environment
    DATA_DIR/package-cache/<organization number>      uv's cache, shared by an organization's builds

Each attempt has a folder of its own, so that a builder that lost its lease cannot touch what its
successor makes. As root they belong to the organization's unprivileged user.
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

_LARGEST_READ = 1024 * 1024


class Unreadable(Exception):
    """A file of the repository that is not read, with the reason in words."""


def organization_user(number: int) -> int | None:
    """The unprivileged user of an organization's code; None when the platform's own is that."""
    return settings.SANDBOX_UID_BASE + number if os.geteuid() == 0 else None


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folder of one attempt at one revision."""

    folder: Path
    uid: int | None

    @classmethod
    def of(cls, revision_id: UUID, attempt: int, organization_number: int) -> Workplace:
        folder = _revisions() / str(revision_id) / str(attempt)
        return cls(folder, organization_user(organization_number))

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def make(self) -> None:
        """An empty folder for the attempt, with empty folders for source and environment."""
        _private(_revisions())
        _private(self.folder.parent)
        remove(self.folder)
        for folder in (self.folder, self.source, self.venv):
            folder.mkdir(mode=0o700)
            if self.uid is not None:
                os.chown(folder, self.uid, self.uid)

    def remove_older(self) -> None:
        """Remove what earlier attempts at the revision left."""
        for sibling in self.folder.parent.iterdir():
            if sibling.name.isdecimal() and int(sibling.name) < int(self.folder.name):
                remove(sibling)

    def read(self, path: str) -> str:
        """The text of a file of the source, followed through no link. `Unreadable` says why not."""
        try:
            return _read_below(self.source, PurePosixPath(path))
        except FileNotFoundError:
            raise Unreadable(f"There is no file {path} in the repository.") from None
        except UnicodeDecodeError:
            raise Unreadable(f"{path} is not a text file in UTF-8.") from None
        except OSError:
            raise Unreadable(
                f"{path} cannot be read: it must be an ordinary file, reached through no link."
            ) from None

    def kind(self, path: str) -> str:
        """What is at that place of the source: `file`, `folder`, `link`, `nothing`.

        A link anywhere on the way is a `link`: where it leads is for the sandbox to find out.
        """
        fd = os.open(self.source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            parts = PurePosixPath(path).parts
            for place, part in enumerate(parts, start=1):
                try:
                    mode = os.lstat(part, dir_fd=fd).st_mode
                except (FileNotFoundError, NotADirectoryError):
                    return "nothing"
                if stat.S_ISLNK(mode):
                    return "link"
                if not stat.S_ISDIR(mode):
                    return "file" if place == len(parts) and stat.S_ISREG(mode) else "nothing"
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            return "folder"
        finally:
            os.close(fd)


def package_cache(organization_number: int) -> Path:
    """The organization's cache of packages, made at first use."""
    _private(settings.DATA_DIR / "package-cache")
    folder: Path = settings.DATA_DIR / "package-cache" / str(organization_number)
    uid = organization_user(organization_number)
    if not folder.exists():
        sandbox.prepare_dir(folder, uid=uid)
    return folder


def remove_revision(revision_id: UUID) -> None:
    """Remove everything of a revision. Safe to repeat."""
    remove(_revisions() / str(revision_id))


def remove(folder: Path) -> None:
    """Remove a tree that agent code may have arranged: links in it are removed, never followed."""
    if not folder.exists():
        return
    assert shutil.rmtree.avoids_symlink_attacks  # noqa: S101 - true on every Linux
    if os.geteuid() != 0:
        _open_up(folder)
    shutil.rmtree(folder)


def _open_up(folder: Path) -> None:
    """Let its owner into each folder of a tree; agent code may have shut some."""
    for _, names, _, fd in os.fwalk(folder, follow_symlinks=False):
        for name in names:
            if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                os.chmod(name, 0o700, dir_fd=fd)


def _revisions() -> Path:
    folder: Path = settings.DATA_DIR / "revisions"
    return folder


def _private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _read_below(root: Path, path: PurePosixPath) -> str:
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise OSError("outside")
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in path.parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        # Without O_NONBLOCK a named pipe would hold the builder for ever.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(path.name, flags, dir_fd=fd), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_READ:
                raise OSError("not an ordinary file of ordinary size")
            return file.read(_LARGEST_READ).decode()
    finally:
        os.close(fd)
