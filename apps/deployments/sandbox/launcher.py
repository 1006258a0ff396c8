"""Start a sandboxed process."""

from __future__ import annotations

import contextlib
import enum
import marshal
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from . import bubblewrap, cpu_groups, filesystem, seccomp, watchdog
from .bubblewrap import Binary
from .egress import process as egress
from .egress import proxy
from .filesystem import Access
from .policy import InvalidPolicy, Limits, Network, Policy, SandboxSetupFailed
from .process import SandboxedProcess

_SETUP_SECONDS = 20.0
_STUB = "import sys; sys.path.append({!r}); from stub.main import main; main({})"

Stream = int | IO[Any] | None


class Mode(enum.Enum):
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capability:
    """The isolation mode of sandboxes, with a description for the operator."""

    mode: Mode
    description: str
    binary: Binary | None = None

    @property
    def is_isolated(self) -> bool:
        return self.mode is not Mode.NONE


def start(
    policy: Policy,
    argv: Sequence[str],
    *,
    isolation: Capability,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    pass_fds: Sequence[int] = (),
    is_trial: bool = False,
) -> SandboxedProcess:
    """Start a sandbox with the given isolation, without checking that it suffices.

    In a trial no proxy serves the sandbox, and it has no control group.
    """
    uid, gid = _user(policy)
    _check_text(argv, policy)
    uses_bubblewrap = isolation.mode is Mode.BUBBLEWRAP
    mode_job = (
        _bubblewrap_job(policy, isolation.binary)
        if uses_bubblewrap
        else _supervised_job(policy, isolation)
    )

    cpu_group = None
    if not is_trial:
        cpu_group = cpu_groups.cpu_groups.create(
            policy.owner, is_background=policy.limits.is_background
        )
    status, status_end = socket.socketpair()
    job = mode_job | {
        "parent": os.getpid(),
        "uid": uid,
        "gid": gid,
        "nice": policy.limits.nice,
        "limits": _resource_limits(policy.limits),
        "processes": _process_limit(policy.limits, own_namespace=uses_bubblewrap),
        "seccomp": seccomp.program(),
        "status_fd": status_end.fileno(),
        "cpu_group": str(cpu_group or ""),
        "listen_ports": proxy.listen_ports(policy) if uses_bubblewrap else [],
        "command": list(argv),
    }
    job_fd = os.memfd_create("sandbox-job")
    try:
        os.write(job_fd, marshal.dumps(job))
        os.lseek(job_fd, 0, os.SEEK_SET)
        stub = _STUB.format(str(Path(__file__).parent), job_fd)
        popen = _on_launcher_thread(
            lambda: subprocess.Popen(  # noqa: S603 -- a constant stub; the job is in a file
                [sys.executable, "-I", "-S", "-c", stub],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd="/",
                env={},
                pass_fds=[*pass_fds, job_fd, status_end.fileno()],
                # The platform handles Ctrl-C of the operator's terminal and stops its sandboxes.
                start_new_session=True,
            )
        )
    except BaseException:
        status.close()
        if cpu_group is not None:
            cpu_groups.cpu_groups.remove(cpu_group)
        raise
    finally:
        os.close(job_fd)
        status_end.close()

    process = SandboxedProcess(
        popen,
        limits=policy.limits,
        writable=filesystem.writable_paths(policy),
        ends_on=signal.SIGKILL if uses_bubblewrap else signal.SIGTERM,
        cpu_group=cpu_group,
        owner=policy.owner,
    )
    listeners = _await_setup(process, status)
    if is_trial:
        for listener in listeners:
            os.close(listener)
    elif listeners:
        egress.serve(process, policy.egress, listeners)
    watchdog.watchdog.add(process)
    return process


def _user(policy: Policy) -> tuple[int | None, int | None]:
    if os.geteuid() != 0:
        return None, None
    if not policy.uid:
        raise InvalidPolicy("a platform running as root must give the policy an unprivileged uid")
    gid = policy.gid if policy.gid is not None else policy.uid
    if gid == 0:
        raise InvalidPolicy("a platform running as root must give the policy an unprivileged gid")
    return policy.uid, gid


def _check_text(argv: Sequence[str], policy: Policy) -> None:
    texts = [*argv, policy.hostname, *policy.env, *policy.env.values()]
    if not argv or any("\0" in text for text in texts):
        raise InvalidPolicy("the command is empty, or it or its environment has a NUL")
    if not all(character.isalnum() or character in "-_" for character in policy.owner):
        raise InvalidPolicy("the owner must consist of letters, digits, dashes and underscores")
    if any(not name or "=" in name for name in policy.env):
        raise InvalidPolicy("a variable name must not be empty or have '='")


def _bubblewrap_job(policy: Policy, binary: Binary | None) -> dict[str, Any]:
    assert binary is not None  # noqa: S101 - this mode always has one
    # Root opens paths that the organization's uid cannot reach.
    plan = bubblewrap.build_plan(policy, binary, staged=os.geteuid() == 0)
    return {
        "stage": plan.stage,
        "files": bubblewrap.IDENTITY_FILES,
        "bubblewrap": plan.program,
        "arguments": plan.arguments,
    }


def _supervised_job(policy: Policy, isolation: Capability) -> dict[str, Any]:
    """Build a job without namespaces, which supports fewer policies."""
    confine = isolation.mode is Mode.LANDLOCK
    if confine and policy.network is Network.NONE:
        raise InvalidPolicy("Network.NONE requires namespaces")
    if confine and policy.network is Network.PROXIED:
        raise InvalidPolicy(
            "a network of its own requires namespaces, which this machine does not offer"
            " (AGENT_NETWORK=shared runs agents and builds without one)"
        )
    binds = filesystem.list_binds(policy)
    if any(bind.source != bind.target.resolve() for bind, _ in binds):
        raise InvalidPolicy("a bind at another path requires namespaces")
    if confine and any(access is Access.HIDDEN for _, access in binds):
        raise InvalidPolicy("hiding a folder requires namespaces")
    system = [*filesystem.SYSTEM_FOLDERS, *filesystem.SYSTEM_FILES, "/etc/passwd", "/etc/group"]
    return {
        "bubblewrap": None,
        "confine": confine,
        "cwd": str(policy.cwd),
        "env": _without_home(bubblewrap.DEFAULT_ENV) | dict(policy.env),
        "read_only": [path for path in system if Path(path).exists()]
        + [str(bind.source) for bind, access in binds if access is Access.READ_ONLY],
        "writable": [device for device in filesystem.DEVICES if Path(device).exists()]
        + [str(path) for path in filesystem.writable_paths(policy)],
    }


def _without_home(env: dict[str, str]) -> dict[str, str]:
    # The supervisor sets both to a private folder.
    return {name: value for name, value in env.items() if name not in ("HOME", "TMPDIR")}


def _resource_limits(limits: Limits) -> list[tuple[int, int]]:
    limit_values = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
    ]
    if limits.cpu_seconds is not None:
        limit_values.append((resource.RLIMIT_CPU, limits.cpu_seconds))
    return limit_values


def _process_limit(limits: Limits, *, own_namespace: bool) -> int | None:
    """Return the kernel's limit, or None if it would also count the operator's own processes.

    In that case only the watchdog limits them. Since 5.14 the kernel counts per user namespace.
    """
    release = os.uname().release.split(".")
    counts_namespaces = (int(release[0]), int(release[1])) >= (5, 14)
    if os.geteuid() == 0 or (own_namespace and counts_namespaces):
        return limits.processes
    return None


def _await_setup(process: SandboxedProcess, status: socket.socket) -> list[int]:
    """Wait for the sandbox and return the descriptors of its listening sockets."""
    status.settimeout(_SETUP_SECONDS)
    ready = b""
    listeners: list[int] = []
    with status, contextlib.suppress(OSError):
        ready, listeners, _, _ = socket.recv_fds(status, 1, proxy.MAX_LISTENERS)
    if not ready:
        with process:
            process.kill()
            code = process.wait()
        if process.cpu_group is not None:
            cpu_groups.cpu_groups.remove(process.cpu_group)
        raise SandboxSetupFailed(
            f"the sandbox could not be set up (status {code}); see its error output"
        )
    return listeners


# PR_SET_PDEATHSIG refers to the thread that called fork. Therefore one thread, which lives as long
# as the process, starts every sandbox.
_requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_thread_lock = threading.Lock()


def _on_launcher_thread(
    make: Callable[[], subprocess.Popen[bytes]],
) -> subprocess.Popen[bytes]:
    global _thread  # noqa: PLW0603
    future: Future[subprocess.Popen[bytes]] = Future()

    def request() -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            future.set_exception(error)

    with _thread_lock:
        if _thread is None:
            _thread = threading.Thread(
                target=_serve_requests, args=(_requests,), name="sandbox-launcher"
            )
            _thread.daemon = True
            _thread.start()
    _requests.put(request)
    return future.result()


def _serve_requests(requests: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        requests.get()()


def _reset_after_fork() -> None:
    global _requests, _thread, _thread_lock
    _requests, _thread, _thread_lock = queue.SimpleQueue(), None, threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)
