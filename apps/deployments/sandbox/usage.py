"""Measure memory, processes and disk usage of a process tree."""

# ruff: noqa: PTH110, PTH123, PTH208 - pathlib would slow every check

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

_FIELDS = re.compile(rb"^(RssAnon|RssShmem|Threads|NSsid):\s+(\d+)", re.MULTILINE)
_EXACT_FIELDS = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+)", re.MULTILINE)

# An empty file uses no block but an inode, of which disks have a limited number.
_MIN_ENTRY_BYTES = 4096


class ProcessUsage(NamedTuple):
    memory: int
    """An upper bound: a page that a fork shares with its parent counts for both."""
    tasks: int
    """Threads of all processes."""
    sessions: dict[int, int]
    """Each session with one of its processes."""


def children(pid: int) -> list[int]:
    """Return the children of the process's first thread, from the kernel's list."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as listing:
            return [int(child) for child in listing.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def process_tree(root: int) -> list[int]:
    """Return the process and its descendants, from the kernel's lists of children."""
    result, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        result.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as listing:
                    waiting += map(int, listing.read().split())
        except FileNotFoundError:
            if pid == root and os.path.exists(f"/proc/{root}/task"):
                return _tree_by_search(root)  # a kernel built without these lists
        except ProcessLookupError:
            continue
    return result


def _tree_by_search(root: int) -> list[int]:
    try:
        below = psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [root, *(process.pid for process in below)]


def measure_usage(pids: Iterable[int]) -> ProcessUsage:
    memory = tasks = 0
    sessions = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                status = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = {name: int(value) for name, value in _FIELDS.findall(status)}
        # File pages do not count: the kernel can drop them.
        memory += 1024 * (fields.get(b"RssAnon", 0) + fields.get(b"RssShmem", 0))
        tasks += fields.get(b"Threads", 0)
        sessions[fields.get(b"NSsid", 0)] = pid
    return ProcessUsage(memory, tasks, sessions)


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of the processes and of those that they waited for."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[11:15]))  # of itself and of its children, user and system
    return ticks / os.sysconf("SC_CLK_TCK")


def running_threads(pids: Iterable[int]) -> list[int]:
    """Return the threads that are runnable now."""
    results = []
    for pid in pids:
        for thread in threads(pid):
            try:
                with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state == b"R":
                results.append(thread)
    return results


def threads(pid: int) -> list[int]:
    try:
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def exact_memory(pids: Iterable[int]) -> int:
    """Return bytes, with shared pages divided among processes; slower than `measure_usage`."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                rollup = file.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            total += measure_usage([pid]).memory
            continue
        total += 1024 * sum(map(int, _EXACT_FIELDS.findall(rollup)))
    return total


def disk_usage(folders: Iterable[Path]) -> int:
    """Return the disk usage of the folders in bytes, at least `_MIN_ENTRY_BYTES` per entry.

    Entries that are removed meanwhile do not count.
    """
    total, waiting = 0, [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += max(
                        entry.stat(follow_symlinks=False).st_blocks * 512, _MIN_ENTRY_BYTES
                    )
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return total


def free_space(folders: Iterable[Path]) -> int:
    """Return the smallest free space of the folders' file systems; a cheap call."""
    return min(status.f_bavail * status.f_frsize for status in map(os.statvfs, folders))
