"""One trial: load, kills, calm, verdict."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from tests.chaos import load, verdict
from tests.chaos.killer import Killer
from tests.contract.deploying import commit
from tests.crash.recorder import Recorder
from tests.installation import Installation, wait_until

CLIENTS = 6


@dataclass
class Outcome:
    """What a trial did, and what it found."""

    seed: str
    runs: int
    statuses: Counter[str]
    kills: Counter[str]
    violations: list[str]

    def __str__(self) -> str:
        kills = ", ".join(f"{number} {role}" for role, number in sorted(self.kills.items()))
        ends = ", ".join(f"{number} {status}" for status, number in sorted(self.statuses.items()))
        said = (
            f"chaos, seed {self.seed}: {self.runs} runs ({ends}), "
            f"{self.kills.total()} kills ({kills}), {len(self.violations)} violations"
        )
        return "\n  ".join([said, *self.violations])


def trial(
    installation: Installation, key: str, seed: str, seconds: float, rounds: int | None = None
) -> Outcome:
    """Harass an installation that runs, and look at what it has become.

    The killing ends after so many seconds, or after so many kills of each role.
    """
    with Recorder() as recorder:
        return _harass(installation, key, recorder, seed, seconds, rounds=rounds)


def _harass(
    installation: Installation,
    key: str,
    recorder: Recorder,
    seed: str,
    seconds: float,
    *,
    rounds: int | None,
) -> Outcome:
    address = _deploy(installation, recorder)

    def client() -> SyncLangGraphClient:
        return get_sync_client(url=address, api_key=key, timeout=(5, 60, 60, 60))

    clients = load.started(CLIENTS, seed, client)
    killer = Killer(installation, seed, rounds)
    killer.start()
    killer.join(seconds)  # the trial itself
    killer.stop()
    stuck = load.stopped(clients, seconds=90)
    installation.wait_until_ready()
    sdk = client()
    lines = [line for each in clients for line in (*each.lines, *each.apart)]
    for line in lines:
        wait_until(lambda line=line: verdict.is_quiet(sdk, line), f"the end on {line.thread_id}")  # type: ignore[misc]
    violations = [f"{each.name} never got an answer" for each in stuck]
    violations += [wrong for each in clients for wrong in each.wrong]
    violations += verdict.of_effects(recorder.lines)
    statuses: Counter[str] = Counter()
    for line in lines:
        violations += verdict.of_line(sdk, line)
        statuses.update(run["status"] for run in sdk.runs.list(line.thread_id, limit=1000))
    made = sum(len(line.runs) for line in lines) + sum(each.stateless for each in clients)
    return Outcome(seed, made, statuses, killer.kills, violations)


def _deploy(installation: Installation, recorder: Recorder) -> str:
    source = installation.data_dir.with_name("agent")
    source.mkdir()
    (source / "agent.py").write_text((Path(__file__).parent / "agent.py").read_text())
    config = {"dependencies": ["."], "graphs": {"chaos": "./agent.py:graph"}}
    (source / "langgraph.json").write_text(json.dumps(config))
    repository = installation.data_dir.with_name("repository")
    commit(source, repository)
    done = installation.manage(
        "deploy", "--organization", "Slipway", "--name", "chaos", "--git", str(repository),
        "--env", f"RECORDER={recorder.url}", "--env", "LANGSMITH_TRACING=false",
        "--wait", "--json",
    )  # fmt: skip
    address: str = json.loads(done.stdout)["agent_url"]
    return address
