"""`kill -9` of a process during a run: the run completes and no step repeats."""

from __future__ import annotations

import time
from collections import Counter

import httpx
import pytest
from langgraph_sdk import get_sync_client

from tests.installation import Installation, wait_until

pytestmark = [pytest.mark.lifecycle, pytest.mark.xdist_group("machine")]

STEPS = [f"step{number}" for number in range(1, 6)]
FINAL = {"success", "error", "timeout", "interrupted"}


class Agent:
    """A client of the five-node agent, and its installation."""

    def __init__(self, installation: Installation, key: str, url: str) -> None:
        self.installation = installation
        self.client = get_sync_client(url=url, api_key=key)

    def wait_for_status(self, thread_id: str, run_id: str) -> str:
        """Wait until the run is final and return its status; failed requests are repeated."""
        statuses = []

        def is_final() -> bool:
            try:
                statuses.append(self.client.runs.get(thread_id, run_id)["status"])
            except httpx.HTTPError:
                return False
            return statuses[-1] in FINAL

        wait_until(is_final, f"the end of run {run_id}", seconds=300)
        return statuses[-1]


@pytest.fixture(scope="module")
def agent(killable, killable_key, killable_agent_url):
    agent = Agent(killable, killable_key, killable_agent_url)
    with agent.client:
        yield agent


def read_trail(client, thread_id: str) -> list[str]:
    return (client.threads.get_state(thread_id)["values"] or {}).get("trail", [])


@pytest.mark.parametrize("role", ["worker", "web", "redis", "postgres"])
def test_a_run_survives_a_killed_process_without_repeated_steps(agent, recorder, role):
    agent.installation.wait_until_ready()
    client = agent.client
    thread_id = client.threads.create()["thread_id"]
    run_id = client.runs.create(thread_id, "five", input={"trail": []})["run_id"]
    recorder.wait_for(f"{run_id} 1 step3")
    # The output of a node is written while the next node runs.
    wait_until(lambda: "step2" in read_trail(client, thread_id), "the output of step2")

    killed_at = time.monotonic()
    agent.installation.kill(role)

    assert agent.wait_for_status(thread_id, run_id) == "success"
    print(f"{role}: done {time.monotonic() - killed_at:.1f} s after the kill")
    effects = recorder.list_effects(run_id)
    assert [(e, n) for e, n in Counter(effects).items() if n > 1] == []
    # Nodes that had finished before the kill did not run again.
    assert Counter(effect.split()[1] for effect in effects)["step1"] == 1
    assert Counter(effect.split()[1] for effect in effects)["step2"] == 1
    assert read_trail(client, thread_id) == STEPS
    thread = client.threads.get(thread_id)
    assert (thread["status"], thread["values"]) == ("idle", {"trail": STEPS})


def test_queued_runs_keep_their_order_after_a_worker_is_killed(agent, recorder):
    agent.installation.wait_until_ready()
    client = agent.client
    thread_id = client.threads.create()["thread_id"]
    run_ids = [
        client.runs.create(thread_id, "five", input={"trail": [f"run{number}"]})["run_id"]
        for number in range(3)
    ]
    recorder.wait_for(f"{run_ids[0]} 1 step2")

    agent.installation.kill("worker")

    assert agent.wait_for_status(thread_id, run_ids[-1]) == "success"
    expected_trail = [word for number in range(3) for word in (f"run{number}", *STEPS)]
    assert read_trail(client, thread_id) == expected_trail
