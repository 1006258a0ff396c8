"""Run the command without namespaces, under a supervisor that ends the whole process tree."""

# ruff: noqa: PTH123, PTH208 - pathlib would slow every start

from __future__ import annotations

import os
import resource
import signal
import tempfile
from typing import TYPE_CHECKING, NoReturn

from . import jobs, syscalls

if TYPE_CHECKING:
    from .jobs import Job


def run(job: Job) -> NoReturn:
    """Run the command as a child; when it ends, or on SIGTERM, kill all descendants and exit."""
    home = tempfile.mkdtemp(prefix="sandbox-")
    if job["uid"] is not None and job["gid"] is not None:
        os.chown(home, job["uid"], job["gid"])
    syscalls.set_child_subreaper()
    signal.signal(signal.SIGTERM, _stop)
    supervisor = os.getpid()
    status = 1
    try:
        child = os.fork()
        if child == 0:
            _execute_command(job, home, supervisor)
        jobs.follow_parent(job, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    except SystemExit:
        status = signal.SIGKILL
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_descendants()
        _remove(home)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _stop(*_: object) -> NoReturn:
    raise SystemExit


def _execute_command(job: Job, home: str, supervisor: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        jobs.change_user(job)
        syscalls.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        syscalls.set_no_new_privileges()
        jobs.limit(job)
        if job["processes"] is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (job["processes"],) * 2)
        os.chdir(job["cwd"])
        if job["confine"]:
            syscalls.restrict_files(job["read_only"], [*job["writable"], home])
            if job["seccomp"] is not None:
                syscalls.filter_system_calls(job["seccomp"])
        os.write(job["status_fd"], b"1")
        env = {"HOME": home, "TMPDIR": home, **job["env"]}
        os.execvpe(job["command"][0], job["command"], env)  # noqa: S606 -- the confined command has no shell
    except BaseException as error:  # noqa: BLE001 - never return into the supervisor's code
        os.write(2, f"sandbox: {error}\n".encode())
    os._exit(126)


def _end_descendants() -> None:
    """Kill until no child is left: orphans become children of this process, so passes repeat."""
    while True:
        for pid in _children(os.getpid()):
            _kill(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill(pid: int) -> None:
    # Stop first, so that it cannot fork between listing its children and SIGKILL.
    for sign in (signal.SIGSTOP, signal.SIGKILL):
        if sign == signal.SIGKILL:
            for child in _children(pid):
                _kill(child)
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            return


def _children(pid: int) -> list[int]:
    results = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as listing:
                results += [int(child) for child in listing.read().split()]
    except OSError:
        pass
    return results


def _remove(folder: str) -> None:
    import shutil  # noqa: PLC0415 - a slow import, needed only at the end

    shutil.rmtree(folder, ignore_errors=True)
