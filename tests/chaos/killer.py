"""Kills one process after the other, and waits for each to be back."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from itertools import count

import psutil

from tests.installation import Installation, wait_until

STOP_SECONDS = 150  # more than one kill takes
ROLES = ["worker", "host", "web", "redis", "postgres"]


class Killer(threading.Thread):
    """Kills each role once in a round, in an order drawn from the seed.

    It ends after the given number of rounds, or when it is stopped.
    """

    def __init__(self, installation: Installation, seed: str, rounds: int | None = None) -> None:
        super().__init__(name="killer", daemon=True)
        self.kills: Counter[str] = Counter()
        self.problem: BaseException | None = None
        self._installation = installation
        self._rounds = count() if rounds is None else range(rounds)
        self._draw = random.Random(f"{seed}/killer")
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join(STOP_SECONDS)
        assert not self.is_alive(), "the killer does not end"
        if self.problem is not None:
            raise self.problem

    def run(self) -> None:
        try:
            for _ in self._rounds:
                for role in self._draw.sample(ROLES, len(ROLES)):
                    before = self.kills.total()
                    while self.kills.total() == before:
                        if self._over.wait(self._draw.uniform(1.0, 4.0)):
                            return
                        self._kill(role)
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
                psutil.wait_procs([process], timeout=10)
                wait_until(lambda: self._installation.is_back(role, process), f"another {role}", 60)
                wait_until(self._installation.is_ready, "the installation", 60)

    def _host(self) -> psutil.Process | None:
        """A graph host of the worker's, the agent's own process in its sandbox."""
        worker = self._installation.find("worker")
        found = []
        with suppress(psutil.Error):
            for child in worker.children(recursive=True) if worker is not None else ():
                with suppress(psutil.Error):
                    words = child.cmdline()
                    if "graph_host" in words and "bwrap" not in words[0]:
                        found.append(child)
        return self._draw.choice(found) if found else None
