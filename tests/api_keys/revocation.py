"""Measure how long a revoked key is still accepted, on many connections at once.

Run it by hand against an instance with several web processes:

    python -m tests.api_keys.revocation http://127.0.0.1:8000 <admin key> [rounds]
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass

import httpx

CONNECTIONS = 16
TIMEOUT_SECONDS = 120.0


@dataclass
class KeyUse:
    """The requests of one connection."""

    path: str
    refused: int
    """The status of requests with an invalid key."""
    last_accepted: float = 0.0
    is_refused: bool = False
    request_count: int = 0


def measure(url: str, admin: str, connections: int = CONNECTIONS) -> list[KeyUse]:
    """Create a key, use it on all connections and revoke it.

    Returns for each connection when the last accepted request was sent, in seconds after the
    revocation.
    """
    headers = {"X-Api-Key": admin}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        created = (
            client.post("/api-key", json={"description": "revocation"}).raise_for_status().json()
        )
        paths = ["/sessions?limit=1", "/agents/no-such-agent/info", "/orgs/current"]
        key_uses = [KeyUse(paths[i % len(paths)], 401) for i in range(connections)]
        ready, stop = threading.Barrier(connections + 1), threading.Event()
        threads = [
            threading.Thread(target=_use_key, args=(url, created["key"], target, ready, stop))
            for target in key_uses
        ]
        for thread in threads:
            thread.start()
        ready.wait(60)
        time.sleep(1.0)  # every process has cached the key by now
        client.delete(f"/api-key/{created['id']}").raise_for_status()
        revoked_at = time.monotonic()
        for thread in threads:
            thread.join(TIMEOUT_SECONDS + 60)
        stop.set()
    for target in key_uses:
        target.last_accepted = max(0.0, target.last_accepted - revoked_at)
    return key_uses


def _use_key(
    url: str, secret: str, target: KeyUse, ready: threading.Barrier, stop: threading.Event
) -> None:
    with httpx.Client(base_url=url, headers={"X-Api-Key": secret}, timeout=60) as client:
        end = time.monotonic() + 60
        while client.get(target.path).status_code == target.refused:
            assert time.monotonic() < end, f"{target.path} refuses the new key"
            time.sleep(0.05)
        ready.wait(60)
        end = time.monotonic() + TIMEOUT_SECONDS
        while not stop.is_set() and time.monotonic() < end:
            sent = time.monotonic()
            status = client.get(target.path).status_code
            target.request_count += 1
            if status == target.refused:
                target.is_refused = True
                return
            target.last_accepted = sent
            time.sleep(0.01)


def main(url: str, admin: str, rounds: int = 5) -> None:
    worst = 0.0
    for number in range(rounds):
        key_uses = measure(url, admin)
        last_accepted_at = max(target.last_accepted for target in key_uses)
        worst = max(worst, last_accepted_at)
        never_refused = [target for target in key_uses if not target.is_refused]
        request_count = sum(target.request_count for target in key_uses)
        print_line(
            f"round {number + 1}: the last accepted request was sent"
            f" {last_accepted_at * 1000:.0f} ms after the revocation; {request_count} requests,"
            f" {len(never_refused)} never refused"
        )
    print_line(f"worst of {rounds}: {worst * 1000:.0f} ms")


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5)
