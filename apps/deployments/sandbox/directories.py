"""Folders that sandboxed code owns, and the unprivileged user it is outside."""

from __future__ import annotations

import os
from pathlib import Path

# Above what people, services and container tools are usually given.
_UID_BASE, _SMALL_UID_BASE = 1_000_000, 20_000


def organization_uid(number: int) -> int | None:
    """The user that an organization's code runs as; None when not started as root.

    `number` is the organization's own small number, never given again. In a container that was
    given few user ids, lower ones are taken.
    """
    if os.geteuid() != 0:
        return None
    for base in (_UID_BASE, _SMALL_UID_BASE):
        if number >= 0 and _is_mapped(base + number):
            return base + number
    raise ValueError(f"this machine has no user id left for organization number {number}")


def _is_mapped(uid: int) -> bool:
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(int(first) <= uid < int(first) + int(count) for first, _, count in ranges)


def prepare_dir(path: Path, *, uid: int | None, mode: int = 0o700) -> Path:
    """Make a folder (its parents too) that `uid` owns, and return it. Repeating is safe.

    What is in it already is handed over as well, links themselves and never what they point to.
    """
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    if uid is not None and os.geteuid() == 0:
        for _, folders, files, fd in os.fwalk(path, follow_symlinks=False):
            for name in (*folders, *files):
                os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
        os.chown(path, uid, uid, follow_symlinks=False)
    return path
