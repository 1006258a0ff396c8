"""Starting a sandbox."""

from __future__ import annotations

import marshal
import os
import queue
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

from . import bubblewrap, capability, filesystem, seccomp, watchdog
from .bubblewrap import Binary
from .errors import PolicyRefused, SandboxFailed, SandboxUnavailable
from .filesystem import Access
from .policy import Limits, Network, Policy
from .process import SandboxedProcess

_SETUP_SECONDS = 20.0
_STUB = "import sys; sys.path.append({!r}); from stub.main import main; main({})"

Stream = int | IO[Any] | None


def spawn(
    policy: Policy,
    argv: Sequence[str],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    pass_fds: Sequence[int] = (),
    allow_unsandboxed: bool = False,
) -> SandboxedProcess:
    """Run a command in a new sandbox; returns once the sandbox stands and the command starts.

    Callable from any thread. `stdin`, `stdout` and `stderr` are as for `subprocess.Popen`, and
    `pass_fds` keep their numbers inside. The tree ends with the command, with `kill()`, and when
    this process dies in whatever way.

    Raises `PolicyRefused` for an unsafe policy, `SandboxUnavailable` where the machine offers no
    isolation (unless `allow_unsandboxed`), `SandboxFailed` when the kernel refuses to build it.
    """
    means = capability.probe()
    if means.mode is capability.Mode.NONE and not allow_unsandboxed:
        raise SandboxUnavailable(means.sentence)
    return start(
        policy, argv, means=means, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds
    )


def start(
    policy: Policy,
    argv: Sequence[str],
    *,
    means: capability.Capability,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    pass_fds: Sequence[int] = (),
) -> SandboxedProcess:
    """`spawn` by the given means, without asking whether they suffice."""
    uid, gid = _user(policy)
    _check_text(argv, policy)
    bound = means.mode is capability.Mode.BUBBLEWRAP
    described = _bubblewrap_job(policy, means.binary) if bound else _plain_job(policy, means)

    status, status_end = os.pipe()
    job = described | {
        "parent": os.getpid(),
        "uid": uid,
        "gid": gid,
        "nice": policy.limits.nice,
        "limits": _resource_limits(policy.limits),
        "processes": _process_limit(policy.limits, own_namespace=bound),
        "seccomp": seccomp.program(),
        "status_fd": status_end,
        "command": list(argv),
    }
    job_fd = os.memfd_create("sandbox-job")
    try:
        os.write(job_fd, marshal.dumps(job))
        os.lseek(job_fd, 0, os.SEEK_SET)
        stub = _STUB.format(str(Path(__file__).parent), job_fd)
        popen = _on_lasting_thread(
            lambda: subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", stub],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd="/",
                env={},
                pass_fds=[*pass_fds, job_fd, status_end],
                # A Ctrl-C in the operator's terminal is for the platform to pass on in order.
                start_new_session=True,
            )
        )
    except BaseException:
        os.close(status)
        raise
    finally:
        os.close(job_fd)
        os.close(status_end)

    process = SandboxedProcess(
        popen,
        limits=policy.limits,
        writable=filesystem.writable(policy),
        ends_on=signal.SIGKILL if bound else signal.SIGTERM,
    )
    _await_setup(process, status)
    watchdog.watchdog.add(process)
    return process


def _user(policy: Policy) -> tuple[int | None, int | None]:
    if os.geteuid() != 0:
        return None, None
    if not policy.uid:
        raise PolicyRefused("started as root, a sandbox needs an unprivileged uid")
    gid = policy.gid if policy.gid is not None else policy.uid
    if gid == 0:
        raise PolicyRefused("started as root, a sandbox needs an unprivileged gid")
    return policy.uid, gid


def _check_text(argv: Sequence[str], policy: Policy) -> None:
    texts = [*argv, policy.hostname, *policy.env, *policy.env.values()]
    if not argv or any("\0" in text for text in texts):
        raise PolicyRefused("a command is not empty, and neither it nor its environment has a NUL")
    if any(not name or "=" in name for name in policy.env):
        raise PolicyRefused("a name in the environment is not empty and has no '='")


def _bubblewrap_job(policy: Policy, binary: Binary | None) -> dict[str, Any]:
    assert binary is not None  # noqa: S101 - this mode always has one
    # Root opens what its organization's uid could not walk to.
    plan = bubblewrap.plan(policy, binary, staged=os.geteuid() == 0)
    return {
        "stage": plan.stage,
        "files": bubblewrap.IDENTITY_FILES,
        "bubblewrap": plan.program,
        "arguments": plan.arguments,
    }


def _plain_job(policy: Policy, means: capability.Capability) -> dict[str, Any]:
    """Without namespaces nothing can be shown elsewhere, cut off from the network or hidden."""
    confine = means.mode is capability.Mode.LANDLOCK
    if confine and policy.network is Network.NONE:
        raise PolicyRefused("only namespaces can take the network away")
    shown = filesystem.shown(policy)
    if any(bind.source != bind.target.resolve() for bind, _ in shown):
        raise PolicyRefused("only namespaces can show a file in another place")
    if confine and any(access is Access.HIDDEN for _, access in shown):
        raise PolicyRefused("only namespaces can hide the platform's folder inside /usr")
    system = [*filesystem.SYSTEM_FOLDERS, *filesystem.SYSTEM_FILES, "/etc/passwd", "/etc/group"]
    return {
        "bubblewrap": None,
        "confine": confine,
        "cwd": str(policy.cwd),
        "env": _without_places(bubblewrap.DEFAULT_ENV) | dict(policy.env),
        "read_only": [path for path in system if Path(path).exists()]
        + [str(bind.source) for bind, access in shown if access is Access.READ_ONLY],
        "writable": [device for device in filesystem.DEVICES if Path(device).exists()]
        + [str(path) for path in filesystem.writable(policy)],
    }


def _without_places(env: dict[str, str]) -> dict[str, str]:
    # The supervisor makes a private folder and names it.
    return {name: value for name, value in env.items() if name not in ("HOME", "TMPDIR")}


def _resource_limits(limits: Limits) -> list[tuple[int, int]]:
    found = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
    ]
    if limits.cpu_seconds is not None:
        found.append((resource.RLIMIT_CPU, limits.cpu_seconds))
    return found


def _process_limit(limits: Limits, *, own_namespace: bool) -> int | None:
    """The kernel's limit, or None where it would count the operator's own processes too.

    Then only the watchdog limits them. Since 5.14 the kernel counts per user namespace.
    """
    release = os.uname().release.split(".")
    counts_namespaces = (int(release[0]), int(release[1])) >= (5, 14)
    if os.geteuid() == 0 or (own_namespace and counts_namespaces):
        return limits.processes
    return None


def _await_setup(process: SandboxedProcess, status: int) -> None:
    poll = select.poll()
    poll.register(status, select.POLLIN)
    try:
        ready = poll.poll(_SETUP_SECONDS * 1000) and os.read(status, 1)
    finally:
        os.close(status)
    if not ready:
        with process:
            process.kill()
            code = process.wait()
        raise SandboxFailed(f"the sandbox could not be built (status {code}); see its error output")


# The kernel's "die with your parent" means the thread that called fork. So one thread, which
# lives as long as its process, starts every sandbox.
_orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_thread_lock = threading.Lock()


def _on_lasting_thread(
    make: Callable[[], subprocess.Popen[bytes]],
) -> subprocess.Popen[bytes]:
    global _thread  # noqa: PLW0603
    future: Future[subprocess.Popen[bytes]] = Future()

    def order() -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            future.set_exception(error)

    with _thread_lock:
        if _thread is None:
            _thread = threading.Thread(target=_serve, args=(_orders,), name="sandbox-launcher")
            _thread.daemon = True
            _thread.start()
    _orders.put(order)
    return future.result()


def _serve(orders: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        orders.get()()


def _renew() -> None:
    global _orders, _thread, _thread_lock
    _orders, _thread, _thread_lock = queue.SimpleQueue(), None, threading.Lock()


os.register_at_fork(after_in_child=_renew)
