"""`make bench-crowd`: concurrent runs and streams on one web process and one worker.

Three measurements on a new platform: 500 concurrent sleeping runs; 1,000 open SSE streams and
the memory of each in the web process; the cold start of a graph host.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from config.env import BASE_DIR
from tests.bench import agent

TimedBody = tuple[float, bytes]


class Client:
    """Sends requests to one agent, each on its own connection."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.prefix, self.key = parts.path, key

    async def post(
        self, path: str, body: dict[str, Any], opened: asyncio.Semaphore | None = None
    ) -> TimedBody:
        """Return duration and body; `opened` is released when the response starts."""
        started_at, payload = time.perf_counter(), json.dumps(body).encode()
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
        writer.write(
            f"POST {self.prefix}{path} HTTP/1.1\r\nHost: {self.host}\r\nX-Api-Key: {self.key}\r\n"
            f"Connection: close\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(head.decode())
        if opened is not None:
            opened.release()
        response_body = await reader.read()
        writer.close()
        return time.perf_counter() - started_at, response_body


async def measure_sleeping_runs(client: Client, count: int, seconds: float) -> None:
    """Measure concurrent runs that sleep."""
    body = {"assistant_id": "sleepy", "input": {"seconds": seconds}}
    await client.post("/runs/wait", {**body, "input": {"seconds": 0.01}})
    started_at = time.perf_counter()
    responses = await asyncio.gather(*(client.post("/runs/wait", body) for _ in range(count)))
    total_seconds = time.perf_counter() - started_at
    finished = sum(b'"done"' in response_body for _, response_body in responses)
    durations = [seconds for seconds, _ in responses]
    print(
        f"{count} runs that sleep {seconds:g} s: {total_seconds:.2f} s in all, {finished} done, "
        f"median {statistics.median(durations):.2f} s, longest {max(durations):.2f} s",
        flush=True,
    )


async def measure_streams(client: Client, web: psutil.Process, count: int, seconds: float) -> None:
    """Measure open streams; the runs above the worker's capacity wait in the queue."""
    body = {"assistant_id": "sleepy", "input": {"seconds": seconds}, "stream_mode": ["values"]}
    memory_before, cpu_before = read_memory(web), web.cpu_times()
    opened = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(client.post("/runs/stream", body, opened)) for _ in range(count)]
    started_at = time.perf_counter()
    for _ in tasks:
        await opened.acquire()
    open_seconds, memory_open = time.perf_counter() - started_at, read_memory(web)
    stream_kib = (memory_open - memory_before) / count / 1024
    print(
        f"{count} open streams after {open_seconds:.2f} s: web {memory_before / 2**20:.0f} -> "
        f"{memory_open / 2**20:.0f} MiB, {stream_kib:.1f} KiB a stream",
        flush=True,
    )
    responses = await asyncio.gather(*tasks)
    total_seconds, cpu_after = time.perf_counter() - started_at, web.cpu_times()
    cpu_seconds = cpu_after.user + cpu_after.system - cpu_before.user - cpu_before.system
    ended = sum(
        b"event: end" in response_body and b'"done":true' in response_body
        for _, response_body in responses
    )
    print(
        f"  {ended} of {count} got their result and end, after {total_seconds:.1f} s;"
        f" web used {cpu_seconds:.2f} s of CPU",
        flush=True,
    )


def read_memory(process: psutil.Process) -> int:
    """Return the unique memory of the process in bytes."""
    uss: int = process.memory_full_info().uss
    return uss


async def measure_cold_starts(client: Client, worker: psutil.Process, count: int) -> None:
    """Compare a run that starts its graph host with a run on a running one."""
    body = {"assistant_id": "sleepy", "input": {"seconds": 0.001}}
    cold, warm = [], []
    for _ in range(count):
        for child in worker.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it may end with its parent
                if "graph_host" in " ".join(child.cmdline()):
                    child.kill()
        await asyncio.sleep(0.5)
        cold.append((await client.post("/runs/wait", body))[0])
        warm.append((await client.post("/runs/wait", body))[0])
    print(
        f"cold start of a graph host: {statistics.median(cold):.2f} s "
        f"({min(cold):.2f}-{max(cold):.2f}); a warm run {1000 * min(warm):.1f} ms",
        flush=True,
    )


async def measure(url: str, key: str, options: argparse.Namespace) -> None:
    client, root_pids = Client(url, key), agent.find_root_processes()
    web, worker = psutil.Process(root_pids["web"]), psutil.Process(root_pids["worker"])
    await measure_sleeping_runs(client, options.runs, options.seconds)
    await measure_streams(client, web, options.streams, options.seconds)
    await measure_cold_starts(client, worker, 5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default_folder = os.environ.get("AGENT_BENCH") or BASE_DIR.parent / "shared/bench/agent"
    parser.add_argument("--bench", type=Path, default=default_folder)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with agent.fresh_platform():
        url, key = agent.deploy_graphs(options.bench)
        asyncio.run(measure(url, key, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
