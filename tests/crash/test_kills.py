"""`kill -9` of one process in the middle of a run: the run completes, nothing is done twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from langgraph_sdk import get_sync_client

from tests.crash.recorder import Recorder
from tests.installation import Installation, wait_until

pytestmark = [pytest.mark.lifecycle, pytest.mark.xdist_group("machine")]

STEPS = [f"step{number}" for number in range(1, 6)]
FINAL = {"success", "error", "timeout", "interrupted"}


class Agent:
    """The installation with the five-node agent deployed."""

    def __init__(self, installation: Installation, key: str, folder: Path, recorder: Recorder):
        self.installation = installation
        done = self.installation.manage(
            "deploy", "--organization", "Slipway", "--name", "five",
            "--git", str(repository(folder / "repository")), "--env", f"RECORDER={recorder.url}",
            "--env", "LANGSMITH_TRACING=false", "--wait", "--json",
        )  # fmt: skip
        address = json.loads(done.stdout)["agent_url"]
        self.client = get_sync_client(url=address, api_key=key)

    def result(self, thread_id: str, run_id: str) -> str:
        """The run's status once it is final; while nobody answers, it is asked again."""
        seen = []

        def is_final() -> bool:
            try:
                seen.append(self.client.runs.get(thread_id, run_id)["status"])
            except httpx.HTTPError:
                return False
            return seen[-1] in FINAL

        wait_until(is_final, f"the end of run {run_id}", seconds=300)
        return seen[-1]


def repository(place: Path) -> Path:
    place.mkdir()
    shutil.copy(Path(__file__).parent / "agent.py", place)
    config = {"dependencies": ["."], "graphs": {"five": "./agent.py:graph"}}
    (place / "langgraph.json").write_text(json.dumps(config))
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-qm", "5"]):
        subprocess.run(["git", "-C", str(place), *words], check=True)
    return place


@pytest.fixture(scope="module")
def recorder():
    with Recorder() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def agent(killable, killable_key, tmp_path_factory, recorder):
    agent = Agent(killable, killable_key, tmp_path_factory.mktemp("five"), recorder)
    with agent.client:
        yield agent


def trail_of(client, thread_id: str) -> list[str]:
    return (client.threads.get_state(thread_id)["values"] or {}).get("trail", [])


@pytest.mark.parametrize("role", ["worker", "web", "redis", "postgres"])
def test_a_killed_process_loses_nothing_and_repeats_nothing(agent, recorder, role):
    agent.installation.wait_until_ready()
    client = agent.client
    thread_id = client.threads.create()["thread_id"]
    run_id = client.runs.create(thread_id, "five", input={"trail": []})["run_id"]
    recorder.wait_for(f"{run_id} 1 step3")
    # What a node gave is written while the next one runs: it is there in a moment, not at once.
    wait_until(lambda: "step2" in trail_of(client, thread_id), "what step2 gave")

    killed = time.monotonic()
    agent.installation.kill(role)

    assert agent.result(thread_id, run_id) == "success"
    print(f"{role}: done {time.monotonic() - killed:.1f} s after its death")
    effects = recorder.of(run_id)
    assert [(e, n) for e, n in Counter(effects).items() if n > 1] == []
    # Nodes that had finished before the kill did not run again.
    assert Counter(effect.split()[1] for effect in effects)["step1"] == 1
    assert Counter(effect.split()[1] for effect in effects)["step2"] == 1
    assert trail_of(client, thread_id) == STEPS
    thread = client.threads.get(thread_id)
    assert (thread["status"], thread["values"]) == ("idle", {"trail": STEPS})


def test_runs_that_wait_behind_a_killed_worker_keep_their_order(agent, recorder):
    agent.installation.wait_until_ready()
    client = agent.client
    thread_id = client.threads.create()["thread_id"]
    run_ids = [
        client.runs.create(thread_id, "five", input={"trail": [f"run{number}"]})["run_id"]
        for number in range(3)
    ]
    recorder.wait_for(f"{run_ids[0]} 1 step2")

    agent.installation.kill("worker")

    assert agent.result(thread_id, run_ids[-1]) == "success"
    said = [word for number in range(3) for word in (f"run{number}", *STEPS)]
    assert trail_of(client, thread_id) == said
