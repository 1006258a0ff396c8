"""The proxy process of this platform process: started with the first sandbox, restarted if it ends.

A process of its own, since relaying an agent's bytes in a worker would delay the runs of others.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from apps.deployments.sandbox.policy import Egress
from apps.deployments.sandbox.process import SandboxedProcess

_ROOT = Path(__file__).resolve().parents[4]
_PROGRAM = "apps.deployments.sandbox.egress.server"
_RESTART_SECONDS = 1.0
# The instance's mark, by which a supervisor finds its processes, the operator's proxy, and CA
# bundles for package indexes.
_INHERITED = re.compile(
    r"PATH|LANG|SLIPWAY_INSTANCE|DATA_DIR|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|PIP_CERT"
    r"|(?i:\w+_proxy)"
)


@dataclass(frozen=True, slots=True)
class _Served:
    """A sandbox with its message and descriptors, kept for a restart of the proxy."""

    process: SandboxedProcess
    message: bytes
    descriptors: list[int]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class EgressProcess:
    """The proxy process and the sandboxes that it serves. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self.pid: int | None = None
        """Of the proxy process; None while none runs."""
        self._served: list[_Served] = []

    def serve(self, process: SandboxedProcess, egress: Egress, listeners: list[int]) -> None:
        """Serve the listening sockets until the sandbox ends; this object owns them."""
        descriptors = list(listeners)
        try:
            descriptors.insert(0, os.pidfd_open(process.pid))
        except ProcessLookupError:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        served = _Served(process, _encode(egress), descriptors)
        with self._lock:
            self._remove_ended()
            self._served.append(served)
            if self._control is None:
                self._start()
            else:
                # A failure is that of a proxy that has just ended: its successor gets them all.
                with contextlib.suppress(OSError):
                    socket.send_fds(self._control, [served.message], served.descriptors)

    def _remove_ended(self) -> None:
        for served in [served for served in self._served if served.process.poll() is not None]:
            self._served.remove(served)
            served.close()

    def _start(self) -> None:
        """Start the proxy and send it every sandbox. The caller holds the lock."""
        control, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            popen = subprocess.Popen(  # noqa: S603 -- a module of the platform
                [sys.executable, "-P", "-m", _PROGRAM, str(child_end.fileno())],
                cwd=_ROOT,
                env={
                    name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)
                }
                | {"PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
                start_new_session=True,
            )
        self._control, self.pid = control, popen.pid
        for served in self._served:
            with contextlib.suppress(OSError):
                socket.send_fds(control, [served.message], served.descriptors)
        threading.Thread(
            target=self._restart_after, args=(popen,), name="egress-proxy", daemon=True
        ).start()

    def _restart_after(self, popen: subprocess.Popen[bytes]) -> None:
        popen.wait()
        threading.Event().wait(_RESTART_SECONDS)
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = self.pid = None
            self._remove_ended()
            if self._served:
                self._start()


def _encode(egress: Egress) -> bytes:
    return json.dumps(
        {
            "networks": egress.networks,
            "hosts": egress.hosts,
            "forwards": [(forward.host, forward.host_port) for forward in egress.forwards],
            "indexes": [
                (index.port, index.origin, index.authorization) for index in egress.indexes
            ],
            "uses_operator_proxy": egress.uses_operator_proxy,
        }
    ).encode()


_process = EgressProcess()
serve = _process.serve


def _reset_after_fork() -> None:
    global _process, serve  # noqa: PLW0603
    _process = EgressProcess()
    serve = _process.serve


os.register_at_fork(after_in_child=_reset_after_fork)
