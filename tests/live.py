"""The whole platform, as `make up` runs it, for tests that are its clients.

One for the test run, however many workers pytest-xdist has: the first that needs it starts it,
and it ends with the run (it is the companion of the process that all workers belong to).
"""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.file_lock import hold_lock
from tests.installation import START_SECONDS, STOP_SECONDS, Installation


@dataclass(frozen=True, kw_only=True)
class Live:
    """Addresses and credentials of the running platform."""

    installation: Installation
    organization_id: str
    workspace_id: str
    api_key: str
    email: str
    password: str

    @property
    def url(self) -> str:
        return self.installation.url

    @property
    def api_url(self) -> str:
        """The address in the form that the `langsmith` SDK expects."""
        return f"{self.url}/api/v1"

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Api-Key": self.api_key}

    def agent_url(self, slug: str = "sample-agent") -> str:
        return f"{self.url}/agents/{slug}"

    def manage(self, *arguments: str, check: bool = True) -> Any:
        """Run a management command against the running platform."""
        return self.installation.manage(*arguments, check=check)


def start_or_attach(folder: Path, run: int) -> Live:
    """Start the platform in `folder`, or find the one that another worker started there.

    `run` is the process that the whole test run belongs to.
    """
    facts_file = folder / "live.json"
    with hold_lock(folder / "live.lock", START_SECONDS):
        if not facts_file.exists():
            facts_file.write_text(json.dumps(_start(folder, run)))
        facts: dict[str, Any] = json.loads(facts_file.read_text())
    facts.pop("pid")
    installation = Installation(folder / "live", facts.pop("port"))
    return Live(installation=installation, **facts)


# Keeps a reference: Python warns when the object of a running child process is collected.
_started: list[Installation] = []


def _start(folder: Path, run: int) -> dict[str, Any]:
    installation = Installation(
        # A stall of a loaded machine is no lost lease.
        folder / "live",
        WEB_PROCESSES="2",
        AGENT_RUN_LEASE_SECONDS="120",
    )
    _started.append(installation)
    installation.start(companion=run)
    installation.wait_until_ready()
    facts = installation.bootstrap()
    assert installation.process is not None
    return {
        "pid": installation.process.pid,
        "port": installation.port,
        "email": "admin@localhost",
        "password": (installation.data_dir / "secrets/admin_password").read_text().strip(),
        **{name: facts[name] for name in ("organization_id", "workspace_id", "api_key")},
    }


def stop(folder: Path) -> None:
    """Stop the platform of that folder, if one was started there."""
    facts_file = folder / "live.json"
    if not facts_file.exists():
        return
    facts: dict[str, Any] = json.loads(facts_file.read_text())
    with suppress(psutil.NoSuchProcess):
        supervisor = psutil.Process(facts["pid"])
        supervisor.send_signal(signal.SIGTERM)
        psutil.wait_procs([supervisor], timeout=STOP_SECONDS)
    Installation(folder / "live", facts["port"]).kill_everything()
    # By a second call, another process may have the number.
    facts_file.unlink()
