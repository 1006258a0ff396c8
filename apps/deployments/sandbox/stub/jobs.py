"""The job that the launcher sends, and the limits that both kinds of sandbox apply."""

# ruff: noqa: PTH123 - pathlib would slow every start

from __future__ import annotations

import os
import resource
import sys

from . import syscalls

TYPE_CHECKING = False  # importing `typing` and `signal` would double the time to start
if TYPE_CHECKING:
    from typing import TypedDict

    class Job(TypedDict):
        """Written by the launcher with `marshal`, which needs no import here."""

        parent: int
        uid: int | None
        gid: int | None
        nice: int
        limits: list[tuple[int, int]]
        processes: int | None
        seccomp: bytes | None
        status_fd: int
        cpu_group: str
        listen_ports: list[int]
        stage: list[str]
        files: list[tuple[str, str]]
        bubblewrap: str | None
        arguments: list[str]
        command: list[str]
        cwd: str
        env: dict[str, str]
        read_only: list[str]
        writable: list[str]
        confine: bool


def enter_cpu_group(job: Job) -> None:
    """Move this process, before it has children, to the control group of the sandbox."""
    if job["cpu_group"]:
        with open(job["cpu_group"] + "/cgroup.procs", "w") as processes:
            processes.write("0")


def change_user(job: Job) -> None:
    if job["uid"] is not None and job["gid"] is not None:
        os.setgroups([])
        os.setresgid(job["gid"], job["gid"], job["gid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])


def follow_parent(job: Job, sign: int) -> None:
    """Die with the platform's process; exit if that process has already died."""
    syscalls.set_parent_death_signal(sign)
    if os.getppid() != job["parent"]:
        sys.exit("the parent process of this sandbox has ended")


def limit(job: Job) -> None:
    os.umask(0o077)
    # A higher nice value of the platform is kept: an unprivileged process cannot lower it.
    nice = max(job["nice"], os.getpriority(os.PRIO_PROCESS, 0))
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    # The kernel's OOM killer selects agent code first.
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass
    for kind, value in job["limits"]:
        hard = resource.getrlimit(kind)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))
