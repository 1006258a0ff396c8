"""A thread that kills random processes and waits until each has restarted."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress

import psutil

from tests.installation import Installation, wait_until

ROLES = ["worker", "host", "web", "redis", "postgres"]


class Killer(threading.Thread):
    """Kills processes that are chosen with the seed."""

    def __init__(self, installation: Installation, seed: str) -> None:
        super().__init__(name="killer", daemon=True)
        self.kills: Counter[str] = Counter()
        self.problem: BaseException | None = None
        self._installation = installation
        self._random = random.Random(f"{seed}/killer")
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.problem is not None:
            raise self.problem

    def run(self) -> None:
        try:
            while not self._stopping.wait(self._random.uniform(1.0, 4.0)):
                self._kill(self._random.choice(ROLES))
        except BaseException as error:  # noqa: BLE001  (raised where the trial waits for this thread)
            self.problem = error

    def _kill(self, role: str) -> None:
        process = self._host() if role == "host" else self._installation.find(role)
        if process is None:
            return
        with suppress(psutil.NoSuchProcess):
            process.kill()
            self.kills[role] += 1
            if role != "host":
                psutil.wait_procs([process], timeout=60)
                wait_until(lambda: self._installation.is_back(role, process), f"another {role}")
                wait_until(self._installation.is_ready, "the installation")

    def _host(self) -> psutil.Process | None:
        """Return a random graph host process of the worker (inside its sandbox)."""
        worker = self._installation.find("worker")
        hosts = []
        with suppress(psutil.Error):
            for child in worker.children(recursive=True) if worker is not None else ():
                with suppress(psutil.Error):
                    command_line = child.cmdline()
                    if "graph_host" in command_line and "bwrap" not in command_line[0]:
                        hosts.append(child)
        return self._random.choice(hosts) if hosts else None
