"""One chaos trial: load, kills, recovery, checks."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tests.chaos import load, verdict
from tests.chaos.killer import Killer
from tests.contract.deployment import commit
from tests.crash.recorder import Recorder
from tests.installation import Installation, wait_until

CLIENTS = 6
MAX_SECONDS_OF_COUNTS = 600


@dataclass
class TrialResult:
    """Counts and violations of a trial."""

    seed: str
    runs: int
    statuses: Counter[str]
    kills: Counter[str]
    violations: list[str]

    def __str__(self) -> str:
        kills = ", ".join(f"{number} {role}" for role, number in sorted(self.kills.items()))
        ends = ", ".join(f"{number} {status}" for status, number in sorted(self.statuses.items()))
        summary = (
            f"chaos, seed {self.seed}: {self.runs} runs ({ends}), "
            f"{self.kills.total()} kills ({kills}), {len(self.violations)} violations"
        )
        return "\n  ".join([summary, *self.violations])


@dataclass(frozen=True, kw_only=True)
class TrialLength:
    """A trial ends when all three are reached: a slow machine only takes longer."""

    seconds: float = 0
    kills: int = 0
    runs: int = 0


def run_trial(installation: Installation, key: str, seed: str, length: TrialLength) -> TrialResult:
    """Run load and kills against an installation, then check its state."""
    with Recorder() as recorder:
        return _run_load(installation, key, recorder, seed, length)


def _run_load(
    installation: Installation, key: str, recorder: Recorder, seed: str, length: TrialLength
) -> TrialResult:
    address = _deploy(installation, recorder)

    def client() -> SyncLangGraphClient:
        return get_sync_client(url=address, api_key=key, timeout=(5, 60, 60, 60))

    clients = load.start_clients(CLIENTS, seed, client)
    killer = Killer(installation, seed)
    killer.start()
    time.sleep(length.seconds)  # the load runs meanwhile
    wait_until(
        lambda: (
            not killer.is_alive()
            or (killer.kills.total() >= length.kills and _count_runs(clients) >= length.runs)
        ),
        f"{length.kills} kills and {length.runs} runs",
        MAX_SECONDS_OF_COUNTS,
    )
    killer.stop()
    stuck = load.stop_clients(clients, seconds=300)
    installation.wait_until_ready()
    sdk = client()
    threads = [
        thread
        for client_thread in clients
        for thread in (*client_thread.threads, *client_thread.single_use_threads)
    ]
    for thread in threads:
        wait_until(
            lambda thread=thread: verdict.is_idle(sdk, thread), f"the end on {thread.thread_id}"
        )  # type: ignore[misc]
    violations = [f"{client_thread.name} never got an answer" for client_thread in stuck]
    violations += [violation for client_thread in clients for violation in client_thread.violations]
    violations += verdict.check_effects(recorder.lines)
    statuses: Counter[str] = Counter()
    for thread in threads:
        violations += verdict.check_thread(sdk, thread)
        statuses.update(run["status"] for run in sdk.runs.list(thread.thread_id, limit=1000))
    if statuses["success"] <= statuses["error"]:
        violations.append("more runs failed than succeeded: the load did not test the platform")
    return TrialResult(seed, _count_runs(clients), statuses, killer.kills, violations)


def _count_runs(clients: list[load.Client]) -> int:
    return sum(
        client.stateless
        + sum(len(thread.runs) for thread in (*client.threads, *client.single_use_threads))
        for client in clients
    )


def _deploy(installation: Installation, recorder: Recorder) -> str:
    source = installation.data_dir.with_name("agent")
    source.mkdir()
    (source / "agent.py").write_text((Path(__file__).parent / "agent.py").read_text())
    config = {"dependencies": ["."], "graphs": {"chaos": "./agent.py:graph"}}
    (source / "langgraph.json").write_text(json.dumps(config))
    repository = installation.data_dir.with_name("repository")
    commit(source, repository)
    completed = installation.manage(
        "deploy", "--organization", "Slipway", "--name", "chaos", "--git", str(repository),
        "--env", f"RECORDER={recorder.url}", "--env", "LANGSMITH_TRACING=false",
        "--wait", "--json",
    )  # fmt: skip
    address: str = json.loads(completed.stdout)["agent_url"]
    return address
