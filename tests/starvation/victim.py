"""The organization that uses the platform: it ingests runs and calls its agent, and measures."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from apps.core.ids import uuid7
from apps.trace_store.dotted_order import format_segment

RUNS_PER_REQUEST = 20
INGEST_CLIENTS = 2
AGENT_CLIENTS = 4
PAUSE_SECONDS = 0.1
"""Between two requests of a client: people do not call without a pause."""
PROJECT = "starvation"
TIMEOUT_SECONDS = 60
QUERY_LIMIT = 100
OUTPUTS = {"answer": "Well."}


@dataclass
class Phase:
    """What was served in one phase."""

    name: str
    ingest: list[float] = field(default_factory=list)
    agent: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def figures(self) -> dict[str, float]:
        return {
            "ingested runs/s": RUNS_PER_REQUEST * len(self.ingest) / self.seconds,
            "ingest p95 ms": p95(self.ingest),
            "agent runs/s": len(self.agent) / self.seconds,
            "agent p95 ms": p95(self.agent),
            "failures": len(self.failures),
        }


def p95(seconds: list[float]) -> float:
    """Return milliseconds; infinite without an answer."""
    if not seconds:
        return float("inf")
    return 1000 * (statistics.quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0])


class Victim:
    """Clients with a fixed number of connections."""

    def __init__(self, url: str, key: str, agent_url: str) -> None:
        self._url, self.agent_url = url, agent_url
        self.headers = {"X-Api-Key": key}
        self.acknowledged: list[str] = []

    async def measure(self, name: str, seconds: float) -> Phase:
        """Use the platform for that long."""
        phase = Phase(name)
        started_at = time.monotonic()
        async with httpx.AsyncClient(headers=self.headers, timeout=TIMEOUT_SECONDS) as client:
            ends_at = started_at + seconds
            await asyncio.gather(
                *(
                    self._repeat(self._ingest, client, phase, ends_at)
                    for _ in range(INGEST_CLIENTS)
                ),
                *(self._repeat(self._run, client, phase, ends_at) for _ in range(AGENT_CLIENTS)),
            )
        phase.seconds = time.monotonic() - started_at
        return phase

    async def _repeat(self, step: Any, client: httpx.AsyncClient, phase: Phase, end: float) -> None:
        while time.monotonic() < end:
            try:
                await step(client, phase)
            except (httpx.TransportError, AssertionError) as error:
                phase.failures.append(f"{type(error).__name__} {error}"[:200])
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ingest(self, client: httpx.AsyncClient, phase: Phase) -> None:
        runs = [make_run() for _ in range(RUNS_PER_REQUEST)]
        started_at = time.perf_counter()
        answer = await client.post(f"{self._url}/api/v1/runs/batch", json={"post": runs})
        assert answer.status_code == 202, f"{answer.status_code} {answer.text}"
        phase.ingest.append(time.perf_counter() - started_at)
        self.acknowledged += [run["id"] for run in runs]

    async def _run(self, client: httpx.AsyncClient, phase: Phase) -> None:
        text = str(uuid7())
        body = {"assistant_id": "echo", "input": {"text": text}}
        started_at = time.perf_counter()
        answer = await client.post(f"{self.agent_url}/runs/wait", json=body)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        assert answer.json()["text"] == f"echo {text}", answer.text
        phase.agent.append(time.perf_counter() - started_at)

    async def find_missing(self, run_ids: Collection[str]) -> list[str]:
        """Return those of the acknowledged runs that cannot be read with their outputs."""
        missing: list[str] = []
        async with httpx.AsyncClient(headers=self.headers, timeout=TIMEOUT_SECONDS) as client:
            for ids in batched(run_ids, QUERY_LIMIT):
                body = {"id": ids, "limit": QUERY_LIMIT, "select": ["id", "outputs"]}
                answer = await client.post(f"{self._url}/api/v1/runs/query", json=body)
                answer.raise_for_status()
                stored = {run["id"] for run in answer.json()["runs"] if run["outputs"] == OUTPUTS}
                missing += [run_id for run_id in ids if run_id not in stored]
        return missing


def batched(values: Collection[str], size: int) -> Iterator[list[str]]:
    ordered = list(values)
    return (ordered[start : start + size] for start in range(0, len(ordered), size))


def make_run() -> dict[str, Any]:
    run_id, now = uuid7(), datetime.now(UTC)
    return {
        "id": str(run_id),
        "trace_id": str(run_id),
        "dotted_order": format_segment(now, run_id),
        "name": "victim",
        "run_type": "chain",
        "session_name": PROJECT,
        "start_time": now.isoformat(),
        "end_time": now.isoformat(),
        "inputs": {"question": "How are you?"},
        "outputs": OUTPUTS,
    }
