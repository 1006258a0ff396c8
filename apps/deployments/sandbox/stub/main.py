"""Read the job from an inherited descriptor, apply limits, and execute the sandbox."""

# ruff: noqa: PTH102, PTH112 - pathlib would slow every start

from __future__ import annotations

import marshal
import os
import resource
import sys

from . import jobs, syscalls

TYPE_CHECKING = False  # importing `typing` and `signal` would double the time to start
if TYPE_CHECKING:
    from typing import NoReturn

    from .jobs import Job

# Holds bind mounts of sources that the unprivileged uid cannot reach, such as an interpreter in a
# private home folder, until bubblewrap mounts its own root over it.
STAGE = "/tmp"  # noqa: S108 - mounted over in a private namespace


SIGKILL = 9


def main(job_fd: int) -> None:
    with os.fdopen(job_fd, "rb") as source:
        job: Job = marshal.load(source)  # noqa: S302 - written by our own parent
    os.set_inheritable(job["status_fd"], False)
    try:
        jobs.enter_cpu_group(job)
        if job["bubblewrap"] is None:
            from . import supervise  # noqa: PLC0415 - its imports are not needed with bubblewrap

            supervise.run(job)
        else:
            execute_bubblewrap(job, job["bubblewrap"])
    except OSError as error:
        sys.exit(f"sandbox: {error}")


def execute_bubblewrap(job: Job, bubblewrap: str) -> NoReturn:
    if job["listen_ports"]:
        # The unprivileged user may be unable to read this interpreter's modules.
        from . import listeners  # noqa: F401, PLC0415 - not needed by every sandbox
    if job["stage"]:
        stage(job["stage"])
    jobs.change_user(job)
    jobs.follow_parent(job, SIGKILL)
    syscalls.set_no_new_privileges()
    syscalls.restrict_scope()
    jobs.limit(job)

    arguments, inherited = [], []
    for path, content in job["files"]:
        inherited.append(_file(content.encode()))
        arguments += ["--perms", "0444", "--ro-bind-data", str(inherited[-1]), path]
    arguments += job["arguments"]
    if job["seccomp"] is not None:
        inherited.append(_file(job["seccomp"]))
        arguments += ["--seccomp", str(inherited[-1])]
    info, info_end = os.pipe()
    gate, gate_end = os.pipe()
    if os.fork() == 0:
        os.close(info_end)
        os.close(gate)
        _open_gate(job, info, gate_end)
    arguments += ["--info-fd", str(info_end), "--block-fd", str(gate)]
    inherited += [info_end, gate]
    # Passed by descriptor, because every user of the machine can read the command line.
    inherited.append(_file(os.fsencode("\0".join(arguments)) + b"\0"))
    for fd in inherited:
        os.set_inheritable(fd, True)
    command = [bubblewrap, "--args", str(inherited[-1]), "--", *job["command"]]
    os.execve(bubblewrap, command, {})  # noqa: S606 -- the confined command has no shell


def stage(sources: list[str]) -> None:
    """Bind each source to `STAGE/<index>`, in a private mount namespace.

    All sources are opened after entering the namespace, because the kernel does not bind across
    namespaces, and before mounting over `STAGE`, because a source may be below it. A symbolic link
    as the last component fails: the launcher has resolved every path.
    """
    syscalls.unshare_mounts()
    opened = [(os.open(path, os.O_PATH | os.O_NOFOLLOW), os.path.isdir(path)) for path in sources]
    syscalls.mount_tmpfs(STAGE)
    for index, (fd, is_folder) in enumerate(opened):
        target = f"{STAGE}/{index}"
        if is_folder:
            os.mkdir(target, 0o755)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        syscalls.bind_mount(fd, target)
        os.close(fd)


def _open_gate(job: Job, info: int, gate: int) -> NoReturn:
    """Set the process limit and open the listening sockets in the sandbox, then let it start.

    The kernel counts processes per user and user namespace. Set earlier, the limit would count
    every process of this uid on the machine.
    """
    status = job["status_fd"]
    try:
        text = b""
        while b"}" not in text:
            if not (part := os.read(info, 4096)):
                os._exit(1)  # bubblewrap failed and has printed the reason
            text += part
        pid = int(text.split(b'"child-pid":')[1].split(b",")[0].strip(b" \n}"))
        if job["processes"] is not None:
            resource.prlimit(pid, resource.RLIMIT_NPROC, (job["processes"],) * 2)
        if job["listen_ports"]:
            from . import listeners  # noqa: PLC0415 - loaded before the change of the user

            listeners.open_and_send(pid, job["listen_ports"], status)
        else:
            os.write(status, b"1")
        os.write(gate, b"1")
    except BaseException as error:  # noqa: BLE001 - never return into the parent's code
        os.write(2, f"sandbox: {error}\n".encode())
        os.kill(os.getppid(), SIGKILL)
        os._exit(1)
    os._exit(0)


def _file(content: bytes) -> int:
    fd = os.memfd_create("sandbox")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
