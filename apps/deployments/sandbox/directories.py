"""Folders that sandboxed code owns."""

from __future__ import annotations

import os
from pathlib import Path


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
