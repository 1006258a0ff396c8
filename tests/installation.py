"""One installation of the platform in its own processes: tests start, call, kill and stop it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from config.env import BASE_DIR
from config.supervisor.processes import MARK

PATIENCE_SECONDS = 300
# A start is seconds of CPU for each process, which may take minutes on a loaded machine.
START_SECONDS = 600
MANAGE_SECONDS = 400
STOP_SECONDS = 90
# Text in the command line of each kind of process.
COMMAND_LINE_PARTS = {
    "supervisor": "config.supervisor",
    "postgres": "/postgres",
    "redis": "valkey-server",
    "fork-server": "config.fork_server",
    "web": "config.web",
    "playground": "--playground",
    "worker": "worker@",
    "builder": "builder@",
    "beat": "[celery beat]",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(
    condition: Callable[[], Any],
    event: str = "the condition",
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Poll until the condition is true; fail the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {seconds} s: {event}"
        time.sleep(0.05)


def open_to_builds(repository: Path) -> Path:
    """Let all users enter the temporary folders above; builds of a root platform have their own."""
    limit = Path(tempfile.gettempdir()).resolve()
    folder = repository.resolve()
    while folder != limit and folder.is_relative_to(limit):
        mode = folder.stat().st_mode
        if mode & 0o11 != 0o11 and folder.stat().st_uid == os.geteuid():
            folder.chmod(mode | 0o11)
        folder = folder.parent
    return repository


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
        inherited = {name: value for name, value in os.environ.items() if name not in replaced}
        return {
            **inherited,
            "PORT": str(self.port),
            "DATA_DIR": str(self.data_dir),
            "RATE_LIMIT_FACTOR": "1000",  # limits are counted but never reached
            "WEB_PROCESSES": "1",  # starts sooner
            "SAMPLE_DATA": "false",
            "ALLOW_FILE_GIT": "true",  # tests deploy repositories of this machine
            # A loaded machine starts slowly; a run or build that hangs still ends.
            "START_TIMEOUT_SECONDS": str(START_SECONDS),
            "AGENT_RUN_TIMEOUT_SECONDS": "120",
            "BUILD_TIMEOUT_SECONDS": "300",
            # Next to forty busy processes of tests, a quarter of one's weight is 0.6 % of a CPU.
            "BUILD_CPU_WEIGHT": "800",
            **self.variables,
        }

    def start(self, *arguments: str, companion: int | None = None) -> None:
        """Start the supervisor; it ends with the companion, by default this process."""
        options = ["--companion", str(companion or os.getpid()), *arguments]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "config.supervisor", *options],
                cwd=BASE_DIR,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def read_output(self) -> str:
        return self.output.read_text()

    def is_ready(self) -> bool:
        assert self.process is None or self.process.poll() is None, self.read_output()
        return self.get("/readyz") == http.HTTPStatus.OK

    def wait_until_ready(self) -> None:
        wait_until(self.is_ready, f"the installation in {self.data_dir}", START_SECONDS)

    def wait_until_output_contains(self, text: str) -> None:
        def is_in_output() -> bool:
            assert self.process is not None
            assert text in self.read_output() or self.process.poll() is None, self.read_output()
            return text in self.read_output()

        wait_until(is_in_output, text)

    def get(self, path: str) -> int | None:
        """The status of a request without credentials; None without an answer."""
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
        """A management command, run as an operator would."""
        completed = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=BASE_DIR,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert not check or completed.returncode == 0, completed.stderr
        return completed

    def deploy(
        self, name: str, repository: Path, *variables: str, organization: str = "Slipway"
    ) -> str:
        """Deploy a repository with `KEY=VALUE` variables, wait, and return the agent's URL."""
        options = [word for variable in variables for word in ("--env", variable)]
        completed = self.manage(
            "deploy", "--organization", organization, "--name", name, "--git", str(repository),
            *options, "--wait", "--json",
        )  # fmt: skip
        # With a PUBLIC_URL, the printed address is not one of this machine.
        path = urlsplit(json.loads(completed.stdout)["agent_url"]).path
        return f"{self.url}{path}"

    def bootstrap(self) -> dict[str, str]:
        """`manage.py bootstrap` for the organization that the first start created."""
        completed = self.manage(
            "bootstrap", "--organization", "Slipway", "--email", "admin@localhost", "--json"
        )
        facts: dict[str, str] = json.loads(completed.stdout)
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
        """The process of a role of `COMMAND_LINE_PARTS`; None while it restarts."""
        for process in reversed(self.processes()):
            with suppress(psutil.Error):
                if COMMAND_LINE_PARTS[role] in " ".join(process.cmdline()):
                    return process
        return None

    def require_process(self, role: str) -> psutil.Process:
        process = self.find(role)
        assert process is not None, f"no {role} runs"
        return process

    def is_back(self, role: str, before: psutil.Process) -> bool:
        """Whether a new process has replaced the earlier one."""
        process = self.find(role)
        return process is not None and process.pid != before.pid

    def kill(self, role: str) -> None:
        """`kill -9` of one process, and wait for its end."""
        process = self.require_process(role)
        process.kill()
        psutil.wait_procs([process], timeout=PATIENCE_SECONDS)

    def kill_everything(self) -> None:
        """`kill -9` of the whole tree at once."""
        tree = self.processes()
        for signal_number in (
            signal.SIGSTOP,
            signal.SIGKILL,
        ):  # stop all first, so that none reacts to another's exit
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal_number)
        if self.process is not None:
            self.process.wait(PATIENCE_SECONDS)
        psutil.wait_procs(tree, timeout=PATIENCE_SECONDS)

    def stop(self, signal_number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop and return the exit status of the supervisor."""
        assert self.process is not None
        self.process.send_signal(signal_number)
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
