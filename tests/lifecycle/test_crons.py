"""Crons over the end of everything: what was missed fires once, and what fired is not repeated."""

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
        self.http = httpx.Client(base_url=base, headers={"X-Api-Key": key}, timeout=30)

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
        """The newest first."""
        answer = self.http.get(f"/threads/{thread}/runs", params={"limit": 1000})
        return answer.raise_for_status().json()


@pytest.mark.slow
def test_crons_outlive_a_kill_of_everything(install):
    installation = install()
    installation.start()
    installation.wait_until_ready()
    with closing(Agent(installation, installation.bootstrap()["api_key"])) as agent:
        wait_until(agent.is_deployed, "the sample agent", seconds=240)
        often, rarely = agent.new_thread(), agent.new_thread()
        begin = datetime.now(UTC)
        cron = {"assistant_id": "agent", "input": {"messages": []}}
        agent.post(f"/threads/{often}/runs/crons", {**cron, "schedule": EVERY_SECOND})
        wait_until(lambda: agent.runs(often), "a first firing")
        at = datetime.now(UTC) + timedelta(seconds=5)
        once_a_day = f"{at.minute} {at.hour} * * * {at.second}"
        agent.post(f"/threads/{rarely}/runs/crons", {**cron, "schedule": once_a_day})

        installation.kill_everything()
        wait_until(lambda: datetime.now(UTC) > at, "the moment that nobody sees")
        installation.start()
        installation.wait_until_ready()
        wait_until(lambda: agent.runs(rarely), "the firing that was missed")
        before = len(agent.runs(often))
        wait_until(lambda: len(agent.runs(often)) >= before + 2, "firings go on")

        assert len(agent.runs(rarely)) == 1
        assert agent.runs(rarely)[0]["created_at"] > at.isoformat()
        assert len(agent.runs(often)) <= (datetime.now(UTC) - begin).total_seconds() + 1
