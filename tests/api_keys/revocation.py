"""How long a key lives on after its revocation was answered, on every connection at once.

By hand, against an instance with several web processes:

    python -m tests.api_keys.revocation http://127.0.0.1:8000 <admin key> [rounds]
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass

import httpx

CONNECTIONS = 16
PATIENCE = 5.0


@dataclass
class Watched:
    """One connection that asks again and again."""

    path: str
    refused: int
    """The status that says that the key is dead."""
    last_good: float = 0.0
    is_refused: bool = False
    request_count: int = 0


def measure(url: str, admin: str, connections: int = CONNECTIONS) -> list[Watched]:
    """Make a key, use it on all connections, revoke it, and say when each noticed (in seconds)."""
    headers = {"X-Api-Key": admin}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        created = (
            client.post("/api-key", json={"description": "revocation"}).raise_for_status().json()
        )
        paths = ["/sessions?limit=1", "/agents/no-such-agent/info", "/orgs/current"]
        watched = [Watched(paths[i % len(paths)], 401) for i in range(connections)]
        ready, stop = threading.Barrier(connections + 1), threading.Event()
        threads = [
            threading.Thread(
                target=_ask, args=(url, created["key"], target, ready, stop), daemon=True
            )
            for target in watched
        ]
        for thread in threads:
            thread.start()
        ready.wait(60)
        time.sleep(1.0)  # every process holds the key in its cache by now
        client.delete(f"/api-key/{created['id']}").raise_for_status()
        revoked = time.monotonic()
        for thread in threads:
            thread.join(PATIENCE + 60)
        stop.set()
    for target in watched:
        target.last_good = max(0.0, target.last_good - revoked)
    return watched


def _ask(
    url: str, secret: str, target: Watched, ready: threading.Barrier, stop: threading.Event
) -> None:
    with httpx.Client(base_url=url, headers={"X-Api-Key": secret}, timeout=60) as client:
        end = time.monotonic() + 60
        while client.get(target.path).status_code == target.refused:
            assert time.monotonic() < end, f"{target.path} refuses the new key"
            time.sleep(0.05)
        ready.wait(60)
        end = time.monotonic() + PATIENCE + 10
        while not stop.is_set() and time.monotonic() < end:
            sent = time.monotonic()
            status = client.get(target.path).status_code
            target.request_count += 1
            if status == target.refused:
                target.is_refused = True
                return
            target.last_good = sent
            time.sleep(0.01)


def main(url: str, admin: str, rounds: int = 5) -> None:
    worst = 0.0
    for number in range(rounds):
        watched = measure(url, admin)
        latest = max(target.last_good for target in watched)
        worst = max(worst, latest)
        missed = [target for target in watched if not target.is_refused]
        request_count = sum(target.request_count for target in watched)
        say(
            f"round {number + 1}: the last request that was let in was sent {latest * 1000:.0f} ms"
            f" after the revocation was answered; {request_count} requests,"
            f" {len(missed)} never refused"
        )
    say(f"worst of {rounds}: {worst * 1000:.0f} ms")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5)
