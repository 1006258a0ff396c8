"""The fork server imports the platform once; its forks become the platform's processes.

The import takes seconds of CPU time and 150 MiB. Forks share both with the fork server, so that
they start in milliseconds and have memory of their own only for what they change.

The supervisor sends one request per process over a Unix socket and receives its pid. A process is
forked twice: its first parent exits, so the supervisor, a child subreaper, becomes its parent and
restarts it like any other.
"""

import argparse
import gc
import json
import os
import runpy
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from config.embedded.parent_death import send_output_to, tie_to_parent

MAX_REQUEST_BYTES = 64 << 10
_PARENT_WAIT_SECONDS = 10
# Modules that only the Celery commands import.
_CELERY_MODULES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "django_celery_beat.schedulers",
    "kombu.transport.redis",
)
# What `config.asgi` imports, without that module itself: its middleware lists the static files,
# which the first start collects after this process has started.
_WEB_MODULES = (
    "apps.agent_server.endpoints.routes",
    "apps.agent_server.web.router",
    "apps.core.http.asgi",
    "apps.core.http.wsgi_bridge",
    "apps.deployments.consumers",
    "apps.playground.due_calls",
    "apps.playground.forwarding",
    "apps.usage.meter",
    "django.core.handlers.wsgi",
    "httptools",
    "uvicorn",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)


class ForkRequest(NamedTuple):
    """A process to start, as the supervisor sends it (JSON).

    `program` is `-m` and a module, or the path of a script. `descriptor` is the number that the
    descriptor sent with the request has in the new process; None if none is sent.
    """

    title: str
    program: list[str]
    log: str
    descriptor: int | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class _Fork(NamedTuple):
    """The request that a forked process executes, and the descriptor sent with it."""

    request: ForkRequest
    received: int | None


def main() -> None:
    parser = argparse.ArgumentParser(prog="config.fork_server")
    parser.add_argument("--socket", type=Path, required=True, help="where requests are received")
    options = parser.parse_args()
    supervisor = os.getppid()
    preload()
    fork = _serve(options.socket, supervisor)
    _execute_program(fork, supervisor)


def preload() -> None:
    """Import what the platform's processes import, without starting a thread or a connection."""
    import django  # noqa: PLC0415 (the supervisor imports this module without Django)

    gc.disable()
    django.setup()
    from django.conf import settings  # noqa: PLC0415

    middleware_modules = (name.rpartition(".")[0] for name in settings.MIDDLEWARE)
    for name in (*_WEB_MODULES, *_CELERY_MODULES, *middleware_modules):
        __import__(name)
    _import_views()
    from config.celery import app  # noqa: PLC0415 (needs the apps)

    app.loader.import_default_modules()
    app.finalize()
    if threading.active_count() > 1:
        # A fork has only the thread that called it; locks held by another thread stay locked.
        raise RuntimeError(f"an import started a thread: {threading.enumerate()}")
    gc.collect()
    # The collector would write to each object, and the kernel would copy its page.
    gc.freeze()
    gc.enable()


def _import_views() -> None:
    from django.urls import URLResolver, get_resolver  # noqa: PLC0415 (needs the settings)

    def resolve(patterns: Iterable[Any]) -> None:
        for pattern in patterns:
            if isinstance(pattern, URLResolver):
                resolve(pattern.url_patterns)

    resolve(get_resolver().url_patterns)


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Return an address of the socket `path`, whose own may exceed the kernel's 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _serve(path: Path, supervisor: int) -> _Fork:
    """Answer requests for ever; return in a forked process only."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        with short_address(path) as address:
            server.bind(address)
        path.chmod(0o600)
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection:
                fork = _answer(connection, supervisor)
            if fork is not None:
                return fork


def _answer(connection: socket.socket, supervisor: int) -> _Fork | None:
    """Fork and send the pid; return in the forked process what it executes, else None."""
    if _peer_pid(connection) != supervisor:
        return None
    message, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 1)
    if not message:
        return None
    request = ForkRequest(**json.loads(message))
    read_end, write_end = os.pipe()
    first_child = os.fork()
    if first_child == 0:
        if pid := _fork_or_exit():
            os.write(write_end, b"%d" % pid)
            os._exit(0)
        os.close(read_end)
        os.close(write_end)
        return _Fork(request, descriptors[0] if descriptors else None)
    os.close(write_end)
    for descriptor in descriptors:
        os.close(descriptor)
    os.waitpid(first_child, 0)
    pid_bytes = os.read(read_end, 32)
    os.close(read_end)
    with suppress(OSError):  # the supervisor no longer waits
        connection.send(pid_bytes)
    return None


def _fork_or_exit() -> int:
    """Fork; an error ends this process instead of unwinding a copy of the fork server."""
    try:
        return os.fork()
    except OSError:
        os._exit(1)


def _peer_pid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("iII", credentials)[0]
    return pid


def _execute_program(fork: _Fork, supervisor: int) -> None:
    """Execute the request's program in this process as the Python interpreter would."""
    request, received = fork
    if received is not None and request.descriptor is not None and received != request.descriptor:
        os.dup2(received, request.descriptor, inheritable=False)
        os.close(received)
    os.setsid()
    send_output_to(request.log)
    # The first child exits right after the fork.
    deadline = time.monotonic() + _PARENT_WAIT_SECONDS
    while os.getppid() != supervisor and time.monotonic() < deadline:
        time.sleep(0.001)
    tie_to_parent(supervisor, signal.SIGKILL)
    import setproctitle  # noqa: PLC0415 (the supervisor imports this module)

    setproctitle.setproctitle(request.title)
    if request.program[0] == "-m":
        sys.argv = request.program[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(request.program)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
