"""One installation of the platform as its owner meets it: started, asked, killed, stopped."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from config.env import BASE_DIR
from config.supervisor.processes import MARK

PATIENCE_SECONDS = 120
START_SECONDS = 600
MANAGE_SECONDS = 400
STOP_SECONDS = 90
# How each process shows in its command line.
SIGNS = {
    "supervisor": "config.supervisor",
    "postgres": "/postgres",
    "redis": "redis-server",
    "web": "config.web",
    "worker": "worker@",
    "builder": "builder@",
    "beat": "--pidfile=",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Other processes cannot be awaited, so they are asked, often and with an end."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.05)


class Installation:
    """A data folder and a port, and the supervisor that runs there."""

    def __init__(self, data_dir: Path, port: int | None = None, **variables: str) -> None:
        self.data_dir = data_dir.resolve()
        self.port = port or free_port()
        self.output = data_dir.with_name(f"{data_dir.name}.out")
        self.variables = variables
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        replaced = {"DATABASE_URL", "REDIS_URL", "PORT", "DATA_DIR", "RATE_LIMIT_FACTOR", MARK}
        kept = {name: value for name, value in os.environ.items() if name not in replaced}
        return {
            **kept,
            "PORT": str(self.port),
            "DATA_DIR": str(self.data_dir),
            "RATE_LIMIT_FACTOR": "1000",  # counted like anywhere, and never reached
            "WEB_PROCESSES": "1",  # starts sooner
            # A loaded machine starts slowly; a run or build that hangs still ends.
            "START_TIMEOUT_SECONDS": str(START_SECONDS),
            "AGENT_RUN_TIMEOUT_SECONDS": "120",
            "BUILD_TIMEOUT_SECONDS": "300",
            **self.variables,
        }

    def start(self, *arguments: str, companion: int | None = None) -> None:
        """Start the supervisor; it ends with the companion, by default this process."""
        words = ["--companion", str(companion or os.getpid()), *arguments]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "config.supervisor", *words],
                cwd=BASE_DIR,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.output.read_text()

    def is_ready(self) -> bool:
        assert self.process is None or self.process.poll() is None, self.said()
        return self.get("/readyz") == http.HTTPStatus.OK

    def wait_until_ready(self) -> None:
        wait_until(self.is_ready, f"the installation in {self.data_dir}", START_SECONDS)

    def wait_until_said(self, words: str) -> None:
        def is_said() -> bool:
            assert self.process is not None
            assert words in self.said() or self.process.poll() is None, self.said()
            return words in self.said()

        wait_until(is_said, words, START_SECONDS)

    def get(self, path: str) -> int | None:
        """The status of a request without credentials; None when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def manage(
        self, *arguments: str, check: bool = True, timeout: float = MANAGE_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """A management command, as an operator runs it beside the installation."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=BASE_DIR,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def bootstrap(self) -> dict[str, str]:
        """`manage.py bootstrap` for the organization that the first start has made."""
        done = self.manage(
            "bootstrap", "--organization", "Slipway", "--email", "admin@localhost", "--json"
        )
        facts: dict[str, str] = json.loads(done.stdout)
        return facts

    def processes(self) -> list[psutil.Process]:
        """The supervisor and everything that it or its processes started."""
        return [process for process in psutil.process_iter() if self._owns(process)]

    def _owns(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            environment = process.environ()
            mark = environment.get(MARK) or environment.get("DATA_DIR")
            # PostgreSQL's children write their titles over their environment.
            return mark == str(self.data_dir) or process.cwd().startswith(f"{self.data_dir}/")
        return False

    def find(self, role: str) -> psutil.Process | None:
        """The process of that role, one of the keys of `SIGNS`; None between two of them."""
        for process in reversed(self.processes()):
            with suppress(psutil.Error):
                if SIGNS[role] in " ".join(process.cmdline()):
                    return process
        return None

    def one(self, role: str) -> psutil.Process:
        process = self.find(role)
        assert process is not None, f"no {role} runs"
        return process

    def is_back(self, role: str, before: psutil.Process) -> bool:
        """Whether another process has taken the place of the one before."""
        process = self.find(role)
        return process is not None and process.pid != before.pid

    def kill(self, role: str) -> None:
        """`kill -9` of one process, and wait for its end."""
        process = self.one(role)
        process.kill()
        psutil.wait_procs([process], timeout=10)

    def kill_everything(self) -> None:
        """`kill -9` of the whole tree at once."""
        tree = self.processes()
        for how in (signal.SIGSTOP, signal.SIGKILL):  # so none can react to another's death
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(how)
        if self.process is not None:
            self.process.wait(10)
        psutil.wait_procs(tree, timeout=10)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop and return the exit status of the supervisor."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(STOP_SECONDS)

    def exit_status(self) -> int:
        assert self.process is not None
        return self.process.wait(STOP_SECONDS)

    def end(self) -> None:
        """Stop it at the end of a test run; what does not stop is killed."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill_everything()
