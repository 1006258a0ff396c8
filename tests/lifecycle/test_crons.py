"""Crons across a kill of all processes: a missed firing happens once, no firing repeats."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.installation import Installation, wait_until

EVERY_SECOND = "* * * * * *"


class Agent:
    """The sample agent of an installation."""

    def __init__(self, installation: Installation, key: str) -> None:
        base = f"{installation.url}/agents/sample-agent"
        self.http = httpx.Client(base_url=base, headers={"X-Api-Key": key}, timeout=60)

    def post(self, path: str, body: dict) -> httpx.Response:
        return self.http.post(path, json=body).raise_for_status()

    def close(self) -> None:
        self.http.close()

    def new_thread(self) -> str:
        return self.post("/threads", {}).json()["thread_id"]

    def is_deployed(self) -> bool:
        answer = self.http.get("/info")
        return answer.is_success and bool(answer.json()["host"]["revision_id"])

    def runs(self, thread: str) -> list[dict]:
        """Return the runs of the thread, newest first."""
        answer = self.http.get(f"/threads/{thread}/runs", params={"limit": 1000})
        return answer.raise_for_status().json()


@pytest.mark.slow
def test_crons_fire_once_for_the_time_of_an_outage(install):
    installation = install()
    installation.start()
    installation.wait_until_ready()
    with closing(Agent(installation, installation.bootstrap()["api_key"])) as agent:
        wait_until(agent.is_deployed, "the sample agent", seconds=240)
        frequent_thread, daily_thread = agent.new_thread(), agent.new_thread()
        started_at = datetime.now(UTC)
        cron = {"assistant_id": "agent", "input": {"messages": []}}
        agent.post(f"/threads/{frequent_thread}/runs/crons", {**cron, "schedule": EVERY_SECOND})
        wait_until(lambda: agent.runs(frequent_thread), "a first firing")
        due_at = datetime.now(UTC) + timedelta(seconds=5)
        daily_schedule = f"{due_at.minute} {due_at.hour} * * * {due_at.second}"
        agent.post(f"/threads/{daily_thread}/runs/crons", {**cron, "schedule": daily_schedule})

        installation.kill_everything()
        wait_until(lambda: datetime.now(UTC) > due_at, "the due time during the outage")
        installation.start()
        installation.wait_until_ready()
        wait_until(lambda: agent.runs(daily_thread), "the missed firing")
        run_count = len(agent.runs(frequent_thread))
        wait_until(lambda: len(agent.runs(frequent_thread)) >= run_count + 2, "two more firings")

        assert len(agent.runs(daily_thread)) == 1
        assert agent.runs(daily_thread)[0]["created_at"] > due_at.isoformat()
        assert (
            len(agent.runs(frequent_thread)) <= (datetime.now(UTC) - started_at).total_seconds() + 1
        )
