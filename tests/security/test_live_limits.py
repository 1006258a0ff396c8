"""One organization attacks a live platform; another one is served meanwhile.

The installation has low limits, so each attack is small. What an attack gets is asserted, and that
the other organization ingests and runs its agent while the attack holds what it could get.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis

from apps.core.instance import Instance
from tests.installation import wait_until
from tests.starvation import attacks
from tests.starvation.trial import Trial
from tests.starvation.victim import make_run

pytestmark = pytest.mark.xdist_group("machine")

MB = 1_048_576
ANSWER_SECONDS = 60
"""For an answer that must come; the machine also runs other tests.

A platform whose threads or event loop are held does not answer in any time.
"""
SERVED = {"/readyz": 200, "ingest": 202, "agent": "echo hello"}


def serve_victim(trial: Trial) -> dict[str, Any]:
    """Use the platform as the other organization; return what it answers."""
    victim, url = trial.victim, trial.installation.url
    with httpx.Client(headers=victim.headers, timeout=ANSWER_SECONDS) as client:
        ready = client.get(f"{url}/readyz")
        ingested = client.post(f"{url}/api/v1/runs/batch", json={"post": [make_run()]})
        body = {"assistant_id": "echo", "input": {"text": "hello"}}
        answer = client.post(f"{victim.agent_url}/runs/wait", json=body)
    return {
        "/readyz": ready.status_code,
        "ingest": ingested.status_code,
        "agent": answer.json().get("text", answer.text),
    }


@pytest.fixture
def attacker(trial: Trial) -> Iterator[httpx.Client]:
    headers = {"X-Api-Key": trial.attacker_key}
    with httpx.Client(
        base_url=trial.installation.url, headers=headers, timeout=ANSWER_SECONDS
    ) as client:
        yield client


@pytest.fixture
def attacking_agent(trial: Trial) -> Iterator[httpx.Client]:
    """A client of the attacker's agent, whose runs are cancelled after the test."""
    headers = {"X-Api-Key": trial.attacker_key}
    with httpx.Client(
        base_url=trial.attacker_agent_url, headers=headers, timeout=ANSWER_SECONDS
    ) as client:
        yield client
        client.post("/runs/cancel", json={"status": "all"})
        wait_until(lambda: count_runs(client) == (0, 0), "the end of the attacker's runs")


def count_runs(client: httpx.Client) -> tuple[int, int]:
    """Return the running and pending runs of an agent."""
    queue = client.get("/metrics?format=json").json()["queue"]
    return queue["n_running"], queue["n_pending"]


def open_connection(port: int, request: bytes) -> socket.socket:
    connection = socket.socket()
    attacks.limit_buffers(connection)
    connection.settimeout(ANSWER_SECONDS)
    connection.connect(("127.0.0.1", port))
    connection.sendall(request)
    return connection


def read_status(connection: socket.socket) -> int:
    """Wait for the status of the response; its bytes stay in the buffer."""
    head = b""
    while len(head) < 12:
        head = connection.recv(12, socket.MSG_PEEK)
        assert head, "the server closed the connection without a response"
    return int(head.split()[1])


def count_unread_bytes(port: int) -> dict[int, int]:
    """Return the bytes in the kernel's buffers of each connection to a port, by client port."""
    sizes: dict[int, int] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(address.split(":")[1], 16) for address in fields[1:3])
        sent, received = (int(size, 16) for size in fields[4].split(":"))
        if local == port and remote:
            sizes[remote] = sizes.get(remote, 0) + sent
        elif remote == port:
            sizes[local] = sizes.get(local, 0) + received
    return sizes


def test_unread_files_do_not_hold_the_threads_of_others(trial: Trial) -> None:
    """Item 4: 40 responses of a large file are not read, without signing in."""
    port, path = trial.installation.port, attacks.LARGE_FILE
    size = len(httpx.get(trial.installation.url + path, timeout=ANSWER_SECONDS).content)
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()

    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(open_connection(port, request)) for _ in range(40)]
        statuses = [read_status(connection) for connection in connections]
        served = serve_victim(trial)
        unread = count_unread_bytes(port)
        held = [unread[connection.getsockname()[1]] for connection in connections]

    assert statuses == [200] * 40
    assert max(held) < size / 2  # the platform has the rest of each response
    assert served == SERVED


def test_declared_bodies_take_no_memory_and_wait_for_no_sender(
    trial: Trial, attacker: httpx.Client
) -> None:
    """Item 5: 60 connections declare 25 MB each; those of strangers are refused before."""
    port, installation = trial.installation.port, trial.installation
    framing = f"Host: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    framing += f"Content-Length: {attacks.DECLARED_BYTES}\r\n"
    key = f"X-Api-Key: {trial.attacker_key}\r\n"
    ingest = "POST /api/v1/runs/batch HTTP/1.1\r\n"
    part = b'{"post": [' + b" " * 60_000
    attempts = {
        "own key": (22, f"{ingest}{framing}{key}\r\n", part),
        "no key": (12, f"{ingest}{framing}\r\n", b""),
        "unknown key": (10, f"{ingest}{framing}X-Api-Key: slip_unknown\r\n\r\n", b""),
        "unknown agent": (
            16, f"POST /agents/unknown/threads HTTP/1.1\r\n{framing}{key}\r\n", b"",
        ),
    }  # fmt: skip
    web = installation.require_process("web")
    before = web.memory_info().rss

    with contextlib.ExitStack() as stack:
        connections = {
            name: [
                stack.enter_context(open_connection(port, head.encode() + body))
                for _ in range(count)
            ]
            for name, (count, head, body) in attempts.items()
        }
        refused = {
            name: {read_status(connection) for connection in connections[name]}
            for name in ("no key", "unknown key", "unknown agent")
        }
        served = serve_victim(trial)
        growth = web.memory_info().rss - before
        waiting = [is_unanswered(connection) for connection in connections["own key"]]

    assert refused == {"no key": {401}, "unknown key": {401}, "unknown agent": {404}}
    assert waiting == [True] * 22
    assert growth < 64 * MB  # was 389 MB
    assert served == SERVED


def is_unanswered(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    return False


def test_origin_pattern_of_a_tenant_does_not_block_the_event_loop(
    trial: Trial, attacking_agent: httpx.Client
) -> None:
    """Item 6: a backtracking matcher would take 2 ** 40 steps for the origin."""

    def preflight(origin: str) -> str | None:
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        response = attacking_agent.options("/threads", headers=headers)
        return response.headers.get("Access-Control-Allow-Origin")

    with ThreadPoolExecutor(4) as pool:
        matches = [pool.submit(preflight, attacks.UNMATCHED_ORIGIN) for _ in range(8)]
        served = serve_victim(trial)

    assert [match.result() for match in matches] == [None] * 8
    assert preflight("a" * 45) == "a" * 45
    assert served == SERVED


def test_frame_of_empty_maps_ends_its_own_host_only(
    trial: Trial, attacking_agent: httpx.Client
) -> None:
    """Item 7: 8 MB of empty maps, which cost the worker 570 MB and stalled others for a second."""
    worker = trial.installation.require_process("worker")
    Path(f"/proc/{worker.pid}/clear_refs").write_text("5")  # the peak begins anew
    before = read_peak(worker.pid)
    body = {"assistant_id": "frames", "input": {}}

    with ThreadPoolExecutor(1) as pool:
        requests = [pool.submit(attacking_agent.post, "/runs/wait", json=body) for _ in range(2)]
        served = serve_victim(trial)
        answers = [request.result() for request in requests]

    errors = [answer.json()["__error__"]["message"] for answer in answers]
    assert all("more than 262144 elements" in error for error in errors), errors
    assert read_peak(worker.pid) - before < 64 * MB
    assert served == SERVED


def read_peak(pid: int) -> int:
    """Return the largest resident memory of a process, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def test_events_without_a_reader_do_not_fill_redis(
    trial: Trial, attacking_agent: httpx.Client
) -> None:
    """Item 8: four runs stream 30 MB each; a run keeps 1 MB and a deployment 2 MB of them."""
    instance = Instance(trial.installation.data_dir)
    events = 300
    body = {
        "assistant_id": "flood",
        "input": {"seconds": 0, "events": events},
        "stream_mode": ["custom"],
        "stream_resumable": True,
    }
    with redis.Redis.from_url(instance.redis_url) as client:
        before = client.info("memory")["used_memory"]

        with ThreadPoolExecutor(4) as pool:
            requests = [
                pool.submit(attacking_agent.post, "/runs/wait", json=body) for _ in range(4)
            ]
            served = serve_victim(trial)
            answers = [request.result() for request in requests]
        growth = client.info("memory")["used_memory"] - before

    assert [answer.json()["text"] for answer in answers] == [f"{events} events"] * 4
    assert growth < 8 * MB
    assert served == SERVED


def test_sleeping_runs_hold_the_slots_of_their_deployment_only(
    trial: Trial, attacking_agent: httpx.Client
) -> None:
    """Item 9: of ten slots, a deployment holds seven; its queue holds 15 runs."""
    body = {"assistant_id": "sleep", "input": {"seconds": 600}}
    created = []
    for pending in (4, 15):
        created.append(attacking_agent.post("/runs/batch", json=[body] * 11).status_code)
        wait_until(lambda pending=pending: count_runs(attacking_agent) == (7, pending), "the runs")

    served = serve_victim(trial)
    refused = attacking_agent.post("/runs", json=body)

    assert created == [200, 200]
    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
    assert refused.headers["Retry-After"] == "10"
    assert count_runs(attacking_agent) == (7, 15)
    assert served == SERVED


def test_body_of_empty_gzip_members_is_refused(trial: Trial, attacker: httpx.Client) -> None:
    """Item 10: half a million empty members, whose decoding was quadratic."""
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    path, content = "/api/v1/runs/batch", attacks.EMPTY_MEMBERS_BODY

    with ThreadPoolExecutor(4) as pool:
        requests = [
            pool.submit(attacker.post, path, content=content, headers=headers) for _ in range(4)
        ]
        served = serve_victim(trial)
        answers = [request.result() for request in requests]

    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {
        (400, "bad_body")
    }
    assert "10000 gzip members" in answers[0].json()["detail"]
    assert served == SERVED


def test_request_with_too_many_attachments_stores_nothing(
    trial: Trial, attacker: httpx.Client
) -> None:
    """Item 10: 2,000 attachments, each of which would be a file."""
    run_id = str(uuid4())
    content = attacks.encode_attachments(run_id)
    headers = {"Content-Type": "multipart/form-data; boundary=part"}

    refused = attacker.post("/api/v1/runs/multipart", content=content, headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (400, "bad_body")
    assert "at most 500 attachments" in refused.json()["detail"]
    assert attacker.get(f"/api/v1/runs/{run_id}").status_code == 404
    assert serve_victim(trial) == SERVED


def test_deployments_and_revisions_of_an_organization_are_limited(trial: Trial) -> None:
    """Item 10: four deployments and six revisions in a day, then 429."""
    arguments = ("--organization", f"Quota {uuid4()}", "--email", f"quota-{uuid4()}@example.com")
    completed = trial.installation.manage("bootstrap", *arguments, "--json")
    headers = {"X-Api-Key": json.loads(completed.stdout)["api_key"]}
    url = f"{trial.installation.url}/v2/deployments"

    def create() -> httpx.Response:
        body = {
            "name": f"quota-{uuid4().hex[:12]}",
            "source": "github",
            "source_config": {"repo_url": "file:///nowhere", "deployment_type": "dev_zero"},
            "source_revision_config": {
                "repo_ref": "main", "langgraph_config_path": "langgraph.json",
            },
        }  # fmt: skip
        return client.post(url, json=body)

    with httpx.Client(headers=headers, timeout=ANSWER_SECONDS) as client:
        created = [create() for _ in range(5)]
        first = created[0].json()["id"]
        revisions = [client.post(f"{url}/{first}/revisions", json={}) for _ in range(3)]
        listed = client.get(url, params={"limit": 100}).json()["resources"]
        for row in listed:
            client.delete(f"{url}/{row['id']}")

    assert [response.status_code for response in created] == [201] * 4 + [429]
    assert created[4].json()["code"] == "deployment_quota"
    assert len(listed) == 4
    assert [response.status_code for response in revisions] == [201, 201, 429]
    assert "6 revisions in 24 hours" in revisions[2].json()["detail"]
