"""`kill -9` of one process while runs come in: what was acknowledged can be read, exactly."""

from __future__ import annotations

from contextlib import ExitStack
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
"""Requests to be acknowledged before a kill, and more of them after it."""


class Platform:
    def __init__(self, installation: Installation, key: str) -> None:
        self.installation = installation
        self.key = key
        self.client = httpx.Client(
            base_url=installation.url, headers={"X-Api-Key": self.key}, timeout=60
        )

    def readable(self, project: str) -> dict[str, bool]:
        """The ids of the project's runs, and whether each has its end."""
        session = self.client.get("/sessions", params={"name": project}).json()[0]["id"]
        asked: dict[str, Any] = {
            "session": [session],
            "select": ["id", "end_time", "outputs"],
            "limit": 100,
        }
        found: dict[str, bool] = {}
        while True:
            page = self.client.post("/runs/query", json=asked).raise_for_status().json()
            for run in page["runs"]:
                assert run["id"] not in found
                is_ended = run["end_time"] is not None
                assert is_ended == (run["outputs"] is not None)
                found[run["id"]] = is_ended
            asked["cursor"] = (page.get("cursors") or {}).get("next")
            if not asked["cursor"]:
                return found


@pytest.fixture(scope="module")
def platform(killable, killable_key):
    platform = Platform(killable, killable_key)
    with platform.client:
        yield platform


def trial(platform: Platform, role: str, project: str) -> None:
    """Send, kill, go on sending; then compare."""
    installation = platform.installation
    installation.wait_until_ready()
    senders = [Sender(installation.url, platform.key, project) for _ in range(SENDERS)]

    def acknowledged() -> int:
        return sum(sender.requests for sender in senders)

    with ExitStack() as stack:
        for sender in senders:
            sender.start()
            stack.callback(sender.stop)
        wait_until(lambda: acknowledged() >= BEFORE, "the first acknowledgements")
        process = installation.find(role)
        assert process is not None
        process.kill()
        psutil.wait_procs([process], timeout=10)
        at_death = acknowledged()
        wait_until(lambda: installation.is_back(role, process), f"another {role}")
        wait_until(lambda: acknowledged() >= at_death + AFTER, "acknowledgements after the kill")

    begun = set().union(*(sender.begun for sender in senders))
    ended = set().union(*(sender.ended for sender in senders))
    readable = platform.readable(project)
    repeats = sum(sender.repeats for sender in senders)
    print(f"{role}: {len(begun)} runs, {repeats} requests sent again")
    assert readable.keys() == begun
    assert {run_id for run_id, is_ended in readable.items() if is_ended} == ended


@pytest.mark.parametrize("role", ROLES)
def test_acknowledged_runs_are_readable_runs(platform, role):
    trial(platform, role, f"{role}-once")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("role", ROLES)
def test_ten_times_out_of_ten(platform, role, number):
    trial(platform, role, f"{role}-{number}")
