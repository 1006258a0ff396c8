"""One platform, two organizations: measure the victim before, during and after each attack."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from config.env import BASE_DIR
from tests.contract.deployment import commit
from tests.installation import Installation
from tests.starvation.victim import Phase, Victim

AGENT = Path(__file__).parents[1] / "killable_agent"
ATTACKER = "Attacker"
STARTED_SECONDS = 2.0
"""Until an attack is under way."""
NO_TRACES = "LANGSMITH_TRACING=false"
MIN_SHARE = 0.8
"""Of the throughput before the attack."""


@dataclass(frozen=True)
class TrialLength:
    before: float = 15
    during: float = 60
    after: float = 15


@dataclass(frozen=True)
class TrialResult:
    """The phases of one attack, and what the attacker got."""

    attack: str
    phases: tuple[Phase, Phase, Phase]
    attacker: dict[str, int]

    @property
    def shares(self) -> dict[str, float]:
        """The throughputs during and after the attack, relative to those before."""
        before = self.phases[0].figures()
        return {
            f"{name} {phase.name}": phase.figures()[name] / before[name] if before[name] else 0.0
            for phase in self.phases[1:]
            for name in ("ingested runs/s", "agent runs/s")
        }

    def rows(self) -> Iterator[str]:
        for phase in self.phases:
            figures = phase.figures()
            yield (
                f"| {self.attack} | {phase.name} | {figures['ingested runs/s']:.0f}"
                f" | {figures['ingest p95 ms']:.0f} | {figures['agent runs/s']:.1f}"
                f" | {figures['agent p95 ms']:.0f} | {figures['failures']:.0f} |"
            )


class Trial:
    """The running platform with both organizations and their agents."""

    def __init__(self, installation: Installation, repository: Path, victim: Victim) -> None:
        self.installation, self.repository, self.victim = installation, repository, victim
        completed = installation.manage(
            *("bootstrap", "--organization", ATTACKER, "--email", "attacker@localhost", "--json")
        )
        self.attacker_key: str = json.loads(completed.stdout)["api_key"]
        self.attacker_agent_url = installation.deploy(
            "attacker", repository, NO_TRACES, organization=ATTACKER
        )

    async def run(
        self, attack: str, length: TrialLength, before: Phase | None = None
    ) -> TrialResult:
        """Attack once, while the victim uses the platform.

        The phase before may be one that was measured: the one after the attack before this one.
        """
        before = before or await self.victim.measure("before", length.before)
        command = [
            *(sys.executable, "-m", "tests.starvation.attacks", attack, self.installation.url),
            *(self.attacker_key, self.attacker_agent_url, str(self.repository)),
            str(length.during + STARTED_SECONDS),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=BASE_DIR, stdout=subprocess.PIPE
        )
        await asyncio.sleep(STARTED_SECONDS)
        during = await self.victim.measure("during", length.during)
        output, _ = await process.communicate()
        await asyncio.to_thread(self._remove_remains, attack)
        after = await self.victim.measure("after", length.after)
        lines = output.decode().strip().splitlines()
        return TrialResult(attack, (before, during, after), json.loads(lines[-1]) if lines else {})

    def _remove_remains(self, attack: str) -> None:
        """Remove what the attack left, so that the next one is measured alone."""
        with httpx.Client(headers={"X-Api-Key": self.attacker_key}, timeout=60) as client:
            if attack == "sleepers":
                client.post(f"{self.attacker_agent_url}/runs/cancel", json={"status": "all"})
            if attack == "deployments":
                self._delete_deployments(client)

    def _delete_deployments(self, client: httpx.Client) -> None:
        url = f"{self.installation.url}/v2/deployments"
        while rows := [
            row
            for row in client.get(url, params={"limit": 100}).json()["resources"]
            if row["name"] != "attacker"
        ]:
            for row in rows:
                client.delete(f"{url}/{row['id']}")

    async def count_lost(self, seconds: float = 60) -> int:
        """Return how many of the victim's acknowledged runs are missing, after a while."""
        deadline = time.monotonic() + seconds
        missing = await self.victim.find_missing(self.victim.acknowledged)
        while missing and time.monotonic() < deadline:
            await asyncio.sleep(1)
            missing = await self.victim.find_missing(missing)
        return len(missing)


@contextmanager
def running_trial() -> Iterator[Trial]:
    """Start a platform with the settings of a production installation, and stop it."""
    folder = Path(tempfile.mkdtemp(prefix="starvation-"))
    folder.chmod(0o711)  # builds run as another user
    installation = Installation(
        folder / "data",
        WEB_PROCESSES="2",
        BUILD_CPU_WEIGHT="25",
        ALLOW_PRIVATE_ADDRESSES="true",  # the slow export destination is on this machine
    )
    installation.start()
    try:
        installation.wait_until_ready()
        repository = folder / "agent"
        commit(AGENT, repository)
        key = installation.bootstrap()["api_key"]
        victim_agent_url = installation.deploy("victim", repository, NO_TRACES)
        victim = Victim(installation.url, key, victim_agent_url)
        yield Trial(installation, repository, victim)
    finally:
        installation.stop()
        shutil.rmtree(folder)
