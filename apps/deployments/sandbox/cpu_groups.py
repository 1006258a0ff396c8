"""Control groups that bound the CPU share of agent code, where the platform may create them.

    <base>/slipway-agents-<pid>/            `AGENT_CPU_WEIGHT`, for the agents of <pid>
    <base>/slipway-builds-<pid>/            `BUILD_CPU_WEIGHT`, for builds and evaluators
    <base>/slipway-.../<owner>/             an organization; all have equal weights
    <base>/slipway-.../<owner>/<n>/         one of its sandboxes; they have equal weights, too
    <base>/slipway-platform/                the platform, only in a delegated group of version 2

Weights share a busy CPU between groups, however many processes, threads and sessions each has. An
idle machine gives agent code all of it. See `docs/adr/0034-cpu-share-of-agent-code.md`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_AGENTS, _BUILDS = "slipway-agents-", "slipway-builds-"
_PLATFORM = "slipway-platform"
_MOVE_PASSES = 20
"""Processes may start while those of a group are moved."""


@dataclass(frozen=True, slots=True)
class _Kind:
    weight_file: str
    default_weight: int
    enables_controllers: bool
    """Whether a group has the CPU controller only if its parent passes it on (version 2)."""


_VERSION_1 = _Kind("cpu.shares", 1024, enables_controllers=False)
_VERSION_2 = _Kind("cpu.weight", 100, enables_controllers=True)
_percentages = {_AGENTS: 50, _BUILDS: 25}
"""Weights of the groups with these prefixes, in percent of the default."""


def set_weights(*, agents: int, builds: int) -> None:
    """Set the weights of groups that are created later, in percent of a group's default."""
    _percentages.update({_AGENTS: agents, _BUILDS: builds})


class CpuGroups:
    """The groups of the sandboxes that this process starts. Thread-safe."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self._lock = threading.Lock()
        self._is_prepared = False
        self._kind: _Kind | None = None
        self._folders: dict[str, Path] = {}
        """By prefix; empty where this process may not create groups."""
        self._numbers = itertools.count()
        self._ended: list[Path] = []

    def create(self, owner: str, *, is_background: bool = False) -> Path | None:
        """Return the folder of a new group, or None where this process may not create groups."""
        with self._lock:
            self._remove_ended()
            if not self._is_prepared:
                self._is_prepared = True
                self._prepare()
            if self._kind is None:
                return None
            parent = self._folders[_BUILDS if is_background else _AGENTS] / (owner or "unowned")
            try:
                parent.mkdir(exist_ok=True)
                if self._kind.enables_controllers:
                    _pass_on_controller(parent)
                group = parent / str(next(self._numbers))
                group.mkdir()
            except OSError as error:
                logger.warning("A sandbox has no CPU group of its own: %s", error)
                return None
            return group

    def remove(self, group: Path) -> None:
        """Remove the group of a sandbox that has ended; later if it still has processes."""
        with self._lock:
            self._ended.append(group)
            self._remove_ended()

    def _prepare(self) -> None:
        for kind, base in _bases(self._proc):
            folders = {prefix: base / f"{prefix}{os.getpid()}" for prefix in _percentages}
            try:
                _remove_stale(base)
                for prefix, folder in folders.items():
                    folder.mkdir(exist_ok=True)
                    if kind.enables_controllers:
                        _pass_on_controller(folder)
                    weight = kind.default_weight * _percentages[prefix] // 100
                    (folder / kind.weight_file).write_text(str(weight))
            except OSError as error:
                logger.info("No CPU groups in %s: %s", base, error)
                for folder in folders.values():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                continue
            self._kind, self._folders = kind, folders
            atexit.register(self._remove_all)
            return

    def _remove_ended(self) -> None:
        remaining = [group for group in self._ended if not _removed(group)]
        for owner in {group.parent for group in self._ended}:
            _removed(owner)  # unless it has other sandboxes
        self._ended = remaining

    def _remove_all(self) -> None:
        self._remove_ended()
        for folder in self._folders.values():
            _removed(folder)


def _bases(proc: Path) -> Iterator[tuple[_Kind, Path]]:
    """Yield the groups below which this process may create some, prepared to have children."""
    own = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path
    for line in (proc / "mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = rest.split(" ", 2)
        if kind == "cgroup" and "cpu" in options.split(","):
            names = next((names for names in own if "cpu" in names.split(",")), None)
            if names is not None and (folder := _folder(mount, root, own[names])) is not None:
                yield _VERSION_1, folder
        elif kind == "cgroup2" and (folder := _folder(mount, root, own.get("", ".."))) is not None:
            try:
                base = _version_2_base(Path(mount), folder)
            except OSError as error:
                logger.info("No CPU groups in %s: %s", folder, error)
                continue
            if base is not None:
                yield _VERSION_2, base


def _folder(mount: str, root: str, path: str) -> Path | None:
    """Return the folder of a group; None if it is outside of what is mounted."""
    inside = path if root == "/" else path.removeprefix(root)
    if ".." in inside.split("/") or (root != "/" and not path.startswith(root)):
        return None
    return Path(mount, inside.lstrip("/"))


def _version_2_base(mount: Path, own: Path) -> Path | None:
    if "cpu" not in (own / "cgroup.controllers").read_text().split():
        return None
    if not (mount / "cgroup.type").exists():
        # The machine's own root, the only group that has both processes and controlled children.
        base = mount
    elif own.name == _PLATFORM:
        base = own.parent
    elif own == mount or _is_delegated(own):
        base = own
        _move_processes(own, own / _PLATFORM)
    else:
        return None  # it belongs to a service manager
    _pass_on_controller(base)
    return base


def _is_delegated(group: Path) -> bool:
    """Whether the service manager left the group to its processes (`Delegate=yes`)."""
    if os.geteuid() != 0:
        return group.stat().st_uid == os.geteuid()
    try:
        return os.getxattr(group, "user.delegate") == b"1"
    except OSError:
        return False


def _move_processes(source: Path, target: Path) -> None:
    """Move all processes of a group: one with processes cannot have controlled children."""
    target.mkdir(exist_ok=True)
    for _ in range(_MOVE_PASSES):
        pids = (source / "cgroup.procs").read_text().split()
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (target / "cgroup.procs").write_text(pid)


def _pass_on_controller(group: Path) -> None:
    enabled = group / "cgroup.subtree_control"
    if "cpu" not in enabled.read_text().split():
        enabled.write_text("+cpu")


def _remove_stale(base: Path) -> None:
    """Remove groups of platform processes that were killed. A group with processes stays."""
    for prefix in (_AGENTS, _BUILDS):
        for folder in base.glob(f"{prefix}*"):
            pid = folder.name.removeprefix(prefix)
            if pid.isdigit() and int(pid) != os.getpid() and not Path("/proc", pid).exists():
                _remove_below(folder)
                _removed(folder)


def _remove_below(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process removes it, too
        for group in folder.iterdir():
            if group.is_dir():
                _remove_below(group)
                _removed(group)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _reset_after_fork() -> None:
    # A forked child has sandboxes of its own.
    global cpu_groups  # noqa: PLW0603
    atexit.unregister(cpu_groups._remove_all)  # noqa: SLF001
    cpu_groups = CpuGroups()


cpu_groups = CpuGroups()
os.register_at_fork(after_in_child=_reset_after_fork)
