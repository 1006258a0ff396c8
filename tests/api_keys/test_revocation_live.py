"""Revoked keys are refused within 1 second; open streams end at the next revalidation."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.api_keys.revocation import measure

REVOKED = "401: The API key is no longer valid."
TIMEOUT_SECONDS = 120


def test_connections_are_rejected_a_second_after_the_revocation(live):
    key_uses = measure(live.url, live.api_key, connections=6)

    assert [target.path for target in key_uses if not target.is_refused] == []
    assert max(target.last_accepted for target in key_uses) < 1.0


@pytest.fixture
def admin(live):
    with httpx.Client(base_url=live.url, headers=live.headers, timeout=60) as client:
        yield client


def test_open_stream_and_socket_end_after_the_revocation(live, admin):
    created = admin.post("/api-key", json={"description": "lines"}).raise_for_status().json()
    thread = admin.post("/agents/sample-agent/threads", json={}).raise_for_status().json()
    path, key = f"/agents/sample-agent/threads/{thread['thread_id']}/stream", created["key"]
    address = f"{live.url.replace('http', 'ws', 1)}{path}/events"
    with (
        ThreadPoolExecutor(2) as threads,
        httpx.stream("GET", f"{live.url}{path}", headers={"X-Api-Key": key}, timeout=60) as stream,
        connect(address, additional_headers={"X-Api-Key": key}) as socket,
    ):
        results = [threads.submit(_read_to_end, stream), threads.submit(_read_close_code, socket)]
        admin.delete(f"/api-key/{created['id']}").raise_for_status()

        text, code = (result.result(TIMEOUT_SECONDS) for result in results)

    assert "event: error" in text
    assert REVOKED in text
    assert code == 4401


def _read_to_end(stream: httpx.Response) -> str:
    return "".join(stream.iter_text())


def _read_close_code(socket) -> int | None:
    try:
        while True:
            json.loads(socket.recv(TIMEOUT_SECONDS))
    except ConnectionClosed as end:
        return end.rcvd.code if end.rcvd else None
