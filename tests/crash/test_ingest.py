"""`kill -9` of a process during ingest: exactly the acknowledged runs are readable."""

from __future__ import annotations

from typing import Any

import httpx
import psutil
import pytest

from tests.crash.senders import Sender
from tests.installation import Installation, wait_until

pytestmark = [pytest.mark.lifecycle, pytest.mark.xdist_group("machine")]

ROLES = ["web", "worker", "redis", "postgres"]
SENDERS = 3
BEFORE, AFTER = 9, 9
"""Numbers of acknowledged requests before and after a kill."""


class Platform:
    def __init__(self, installation: Installation, key: str) -> None:
        self.installation = installation
        self.key = key
        self.client = httpx.Client(
            base_url=installation.url, headers={"X-Api-Key": self.key}, timeout=60
        )

    def read_runs(self, project: str) -> dict[str, bool]:
        """Return the ids of the project's runs and whether each run has ended."""
        session = self.client.get("/sessions", params={"name": project}).json()[0]["id"]
        query: dict[str, Any] = {
            "session": [session],
            "select": ["id", "end_time", "outputs"],
            "limit": 100,
        }
        runs: dict[str, bool] = {}
        while True:
            page = self.client.post("/runs/query", json=query).raise_for_status().json()
            for run in page["runs"]:
                assert run["id"] not in runs
                is_ended = run["end_time"] is not None
                assert is_ended == (run["outputs"] is not None)
                runs[run["id"]] = is_ended
            query["cursor"] = (page.get("cursors") or {}).get("next")
            if not query["cursor"]:
                return runs


@pytest.fixture(scope="module")
def platform(killable, killable_key):
    platform = Platform(killable, killable_key)
    with platform.client:
        yield platform


def run_trial(platform: Platform, role: str, project: str) -> None:
    """Send, kill a process, continue to send; then compare acknowledged and stored runs."""
    installation = platform.installation
    installation.wait_until_ready()
    senders = [Sender(installation.url, platform.key, project) for _ in range(SENDERS)]

    def count_acknowledged() -> int:
        return sum(sender.requests for sender in senders)

    for sender in senders:
        sender.start()
    wait_until(lambda: count_acknowledged() >= BEFORE, "the first acknowledgements")
    process = installation.find(role)
    assert process is not None
    process.kill()
    psutil.wait_procs([process], timeout=60)
    count_at_kill = count_acknowledged()
    wait_until(lambda: installation.is_back(role, process), f"another {role}")
    wait_until(
        lambda: count_acknowledged() >= count_at_kill + AFTER, "acknowledgements after the kill"
    )
    for sender in senders:
        sender.stop()

    started = set().union(*(sender.started for sender in senders))
    finished = set().union(*(sender.finished for sender in senders))
    stored_runs = platform.read_runs(project)
    retries = sum(sender.retries for sender in senders)
    print(f"{role}: {len(started)} runs, {retries} retried requests")
    assert stored_runs.keys() == started
    assert {run_id for run_id, is_ended in stored_runs.items() if is_ended} == finished


@pytest.mark.parametrize("role", ROLES)
def test_exactly_the_acknowledged_runs_are_stored_after_a_kill(platform, role):
    run_trial(platform, role, f"{role}-once")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("role", ROLES)
def test_ten_kills_of_each_process_lose_no_acknowledged_run(platform, role, number):
    run_trial(platform, role, f"{role}-{number}")
