"""`make bench-crowd`: many at once, on one web process and one worker of a fresh platform.

First 500 runs that sleep, started at once and waited for; then 1,000 open SSE streams, with the
memory that each takes in the web process. Last the cold start of a graph host.
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

Answer = tuple[float, bytes]


class Client:
    """Requests to one agent, each on a connection of its own."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.prefix, self.key = parts.path, key

    async def post(
        self, path: str, body: dict[str, Any], opened: asyncio.Semaphore | None = None
    ) -> Answer:
        """How long it took, and all that came; `opened` is released when the answer begins."""
        begin, payload = time.perf_counter(), json.dumps(body).encode()
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
        said = await reader.read()
        writer.close()
        return time.perf_counter() - begin, said


async def sleepers(client: Client, count: int, seconds: float) -> None:
    """Runs that sleep, all at once."""
    body = {"assistant_id": "sleepy", "input": {"seconds": seconds}}
    await client.post("/runs/wait", {**body, "input": {"seconds": 0.01}})
    begin = time.perf_counter()
    answers = await asyncio.gather(*(client.post("/runs/wait", body) for _ in range(count)))
    wall = time.perf_counter() - begin
    done = sum(b'"done"' in said for _, said in answers)
    took = [seconds for seconds, _ in answers]
    print(
        f"{count} runs that sleep {seconds:g} s: {wall:.2f} s in all, {done} done, "
        f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s",
        flush=True,
    )


async def streams(client: Client, web: psutil.Process, count: int, seconds: float) -> None:
    """Streams that are open together; runs above the worker's number wait meanwhile."""
    body = {"assistant_id": "sleepy", "input": {"seconds": seconds}, "stream_mode": ["values"]}
    before, cpu = memory(web), web.cpu_times()
    opened = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(client.post("/runs/stream", body, opened)) for _ in range(count)]
    begin = time.perf_counter()
    for _ in tasks:
        await opened.acquire()
    took, during = time.perf_counter() - begin, memory(web)
    print(
        f"{count} open streams after {took:.2f} s: web {before / 2**20:.0f} -> "
        f"{during / 2**20:.0f} MiB, {(during - before) / count / 1024:.1f} KiB a stream",
        flush=True,
    )
    answers = await asyncio.gather(*tasks)
    spent = web.cpu_times()
    ended = sum(b"event: end" in said and b'"done":true' in said for _, said in answers)
    print(
        f"  {ended} of {count} got their result and end, after {time.perf_counter() - begin:.1f} s;"
        f" web used {spent.user + spent.system - cpu.user - cpu.system:.2f} s of CPU",
        flush=True,
    )


def memory(process: psutil.Process) -> int:
    """What the process alone has in memory."""
    found: int = process.memory_full_info().uss
    return found


async def cold_starts(client: Client, worker: psutil.Process, count: int) -> None:
    """A run whose graph host has to be started first, compared with one that finds it."""
    body = {"assistant_id": "sleepy", "input": {"seconds": 0.001}}
    cold, warm = [], []
    for _ in range(count):
        for child in worker.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it may go by itself, with its parent
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
    client, roots = Client(url, key), agent.roots()
    web, worker = psutil.Process(roots["web"]), psutil.Process(roots["worker"])
    await sleepers(client, options.runs, options.seconds)
    await streams(client, web, options.streams, options.seconds)
    await cold_starts(client, worker, 5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    here = os.environ.get("AGENT_BENCH") or BASE_DIR.parent / "shared/bench/agent"
    parser.add_argument("--bench", type=Path, default=here)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with agent.fresh_platform():
        url, key = agent.deployed(options.bench)
        asyncio.run(measure(url, key, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
