"""Starting embedded servers: their user, and their binding to the supervisor's lifetime."""

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals

from apps.core.instance import SERVICE_UID

PARENT_DEATH_SCRIPT = Path(__file__).with_name("parent_death.py")


class CannotStart(Exception):
    """The platform cannot start; the message is shown on the terminal."""


def service_uid() -> int | None:
    """Return the uid for embedded servers; None for the current user."""
    return SERVICE_UID if os.geteuid() == 0 else None


def private_folder(path: Path, owner: int | None = None) -> Path:
    """Create `path` with mode 0700."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if owner is not None and path.stat().st_uid != owner:
        os.chown(path, owner, owner)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)
    return path


def find_closed_folder(path: Path) -> Path | None:
    """Return a parent folder of `path` that other users cannot traverse."""
    return next(
        (folder for folder in path.parents if not folder.stat().st_mode & stat.S_IXOTH), None
    )


@dataclass(frozen=True, kw_only=True)
class ParentBoundProcess:
    """Builds a command whose process dies with its supervisor."""

    log: Path | None = None
    uid: int | None = None
    needs: Sequence[Path] = ()
    deadly: Signals = SIGKILL

    def command(self, program: Sequence[str | Path], parent: int | None = None) -> list[str]:
        arguments = [
            sys.executable,
            "-I",
            "-S",
            str(PARENT_DEATH_SCRIPT),
            "--parent",
            str(parent or os.getpid()),
        ]
        arguments += ["--deadly", str(int(self.deadly))]
        if self.log is not None:
            arguments += ["--log", str(self.log)]
        if self.uid is not None:
            arguments += ["--uid", str(self.uid)]
            closed = [find_closed_folder(path) for path in (Path(program[0]), *self.needs)]
            if folder := next(filter(None, closed), None):
                arguments += ["--closed-folder", str(folder)]
        return [*arguments, "--", *map(str, program)]
