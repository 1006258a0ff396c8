"""`kill -9` of the worker under load: no trace stays open, and no run is stored twice."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_sync_client

from apps.agent_server.run_state_sql import LOST_ERROR
from tests.crash.test_kills import FINAL
from tests.installation import wait_until

pytestmark = [pytest.mark.lifecycle, pytest.mark.xdist_group("machine")]

CLIENTS = 12
RUNS_PER_CLIENT = 2
"""So that some runs end shortly before the kill and others start after it."""
PROJECT = "traced"


class TracedAgent:
    """The five-node agent of the crash tests, deployed with tracing."""

    def __init__(self, installation, key: str, repository, recorder) -> None:
        self.installation = installation
        self.recorder = recorder
        url = installation.deploy(
            PROJECT, repository, f"RECORDER={recorder.url}", "NODE_SECONDS=0.3"
        )
        self.agent = get_sync_client(url=url, api_key=key)
        self.traces = httpx.Client(
            base_url=installation.url, headers={"X-Api-Key": key}, timeout=60
        )

    def execute_runs(self, client: int) -> list[str]:
        """Execute runs one after the other; return their ids."""
        run_ids = []
        time.sleep(client * 0.1)
        for _ in range(RUNS_PER_CLIENT):
            thread_id = self.agent.threads.create()["thread_id"]
            run = self.agent.runs.create(thread_id, "five", input={"trail": []})
            run_ids.append(run["run_id"])
            self.wait_for_success(thread_id, run["run_id"])
        return run_ids

    def wait_for_success(self, thread_id: str, run_id: str) -> None:
        def is_final() -> bool:
            try:
                run = self.agent.runs.get(thread_id, run_id)
            except httpx.HTTPError:
                return False
            assert run["status"] not in FINAL or run["status"] == "success", run
            return run["status"] in FINAL

        wait_until(is_final, f"the end of run {run_id}", seconds=300)

    def read_runs(self) -> list[dict[str, Any]]:
        """Return all rows of the project, as a client reads them."""
        sessions = self.traces.get("/sessions", params={"name": PROJECT}).json()
        query: dict[str, Any] = {
            "session": [sessions[0]["id"]],
            "select": ["id", "trace_id", "parent_run_id", "status", "error", "extra"],
            "limit": 100,
        }
        rows: list[dict[str, Any]] = []
        while True:
            page = self.traces.post("/runs/query", json=query).raise_for_status().json()
            rows += page["runs"]
            query["cursor"] = (page.get("cursors") or {}).get("next")
            if not query["cursor"]:
                return rows

    def read_traced(self) -> set[str]:
        """Return the agent runs that have a trace of their success."""
        return {
            row["extra"]["metadata"]["run_id"]
            for row in self.read_runs()
            if row["parent_run_id"] is None and row["status"] == "success"
        }

    def read_pending(self) -> list[dict[str, Any]]:
        return [row for row in self.read_runs() if row["status"] == "pending"]


@pytest.fixture(scope="module")
def traced(killable, killable_key, killable_repository, recorder):
    killable.wait_until_ready()
    agent = TracedAgent(killable, killable_key, killable_repository, recorder)
    with agent.agent, agent.traces:
        yield agent


def run_round(traced: TracedAgent) -> None:
    """Kill the worker while the clients execute runs; then read all traces of the project."""
    traced.installation.wait_until_ready()
    first_line = len(traced.recorder.lines)
    with ThreadPoolExecutor(CLIENTS) as clients:
        executions = [clients.submit(traced.execute_runs, number) for number in range(CLIENTS)]
        # Three clients have ended their first run, the other runs are in their steps.
        wait_until(
            lambda: (
                sum("step1" in line for line in traced.recorder.lines[first_line:]) >= CLIENTS + 3
            ),
            "the start of all first and of three second runs",
        )
        traced.installation.kill("worker")
        run_ids = set(chain.from_iterable(execution.result() for execution in executions))

    assert len(run_ids) == CLIENTS * RUNS_PER_CLIENT
    # A trace comes some time after the end of its agent run, so none pending is not yet the end.
    try:
        wait_until(
            lambda: traced.read_traced() >= run_ids and not traced.read_pending(),
            "the end of all traces",
            seconds=300,
        )
    except AssertionError:
        pending = [
            (row["name"], row["start_time"], row["extra"]["metadata"]["run_id"])
            for row in traced.read_pending()
        ]
        missing = run_ids - traced.read_traced()
        pytest.fail(f"These runs are pending: {pending}; these have no trace: {missing}")
    rows = traced.read_runs()
    assert [
        run_id for run_id, count in Counter(row["id"] for row in rows).items() if count > 1
    ] == []
    attempts = [row for row in rows if row["parent_run_id"] is None]
    metadata = {row["id"]: row["extra"]["metadata"] for row in attempts}
    attempts = [row for row in attempts if metadata[row["id"]]["run_id"] in run_ids]
    lost = [row for row in attempts if row["error"] == LOST_ERROR]
    # Each lost attempt has a retry with a trace of its own.
    succeeded = [row for row in attempts if row["status"] == "success"]
    assert {metadata[row["id"]]["run_id"] for row in succeeded} == run_ids
    assert len(succeeded) == len(run_ids)
    assert len(succeeded) + len(lost) == len(attempts)
    lines = traced.recorder.lines[first_line:]
    retried = {line.split()[0] for line in lines if line.split()[1] == "2"}
    print(f"{len(retried)} retried agent runs")
    assert retried
    for row in lost:
        assert metadata[row["id"]]["run_attempt"] == 1
    for row in attempts:
        assert (row["id"] == metadata[row["id"]]["run_id"]) == (
            metadata[row["id"]]["run_attempt"] == 1
        )
    print(
        f"{len(run_ids)} agent runs, {len(attempts)} traces, {len(lost)} lost attempts, "
        f"{len(rows)} rows of all rounds, 0 duplicated, 0 pending"
    )


def test_traces_of_lost_attempts_end_after_a_worker_is_killed(traced):
    run_round(traced)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 11))
def test_traces_of_lost_attempts_end_in_ten_rounds(traced, number):
    run_round(traced)
