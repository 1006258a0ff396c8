"""A malicious agent gains no access, and the platform continues to serve other agents."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
from langgraph_sdk import get_sync_client

from apps.core.instance import Instance
from config.env import BASE_DIR
from tests.contract.deployment import deploy

# One worker of pytest-xdist, so that the agent is built once.
pytestmark = pytest.mark.xdist_group("malicious")

REFUSALS = {"FileNotFoundError", "PermissionError", "OSError", "ConnectionRefusedError"}
MAX_ANSWER_SECONDS = 20.0
"""The machine also runs the rest of the tests; without limits nothing answers at all."""


@pytest.fixture(scope="module")
def malicious(live, sample_agent, tmp_path_factory):
    """A client of the malicious agent, which runs next to the sample agent."""
    folder = tmp_path_factory.mktemp("malicious") / "agent"
    folder.mkdir()  # builds run as another user, who may read this folder
    shutil.copy(Path(__file__).parent / "agent.py", folder)
    config = {"dependencies": ["."], "graphs": {"malicious": "./agent.py:graph"}}
    (folder / "langgraph.json").write_text(json.dumps(config))
    url = deploy(live, folder, "malicious")
    with get_sync_client(url=url, api_key=live.api_key, timeout=180) as client:
        yield client


def read_sample_revision(live):
    """The active revision of the sample agent, which the malicious agent must not reach."""
    answer = httpx.get(f"{live.url}/v2/deployments?name=sample-agent", headers=live.headers)
    return answer.json()["resources"][0]["active_revision_id"]


def is_refused(loot):
    return isinstance(loot, str) and loot in REFUSALS


def attack_platform(client, attack, target=""):
    answer = client.runs.wait(None, "malicious", input={"attack": attack, "target": str(target)})
    return answer["loot"]


def test_files_of_the_platform_and_of_others_are_out_of_reach(live, malicious):
    data = live.installation.data_dir
    revisions = data / "revisions"
    sample_revision = revisions / read_sample_revision(live)
    targets = [
        ("list_folder", data),
        ("list_folder", sample_revision),
        ("list_folder", revisions),
        ("read", data / "secrets" / "secret_key"),
        ("read", data / "secrets" / "encryption_keys"),
        ("list_folder", data / "postgres"),
        ("read", "/etc/shadow"),
        ("read", BASE_DIR / "manage.py"),
    ]

    results = {
        str(target): attack_platform(malicious, attack, target) for attack, target in targets
    }

    assert (data / "secrets" / "secret_key").exists()
    secret = (data / "secrets" / "secret_key").read_text()
    assert secret not in str(results)
    # Only the path to its own revision may be visible.
    for folder in (data, revisions):
        entries = results.pop(str(folder))
        assert is_refused(entries) or len(entries) == 1, entries
    assert {path: loot for path, loot in results.items() if not is_refused(loot)} == {}


def test_processes_environments_and_sockets_of_others_are_out_of_reach(live, malicious):
    sockets = Instance(live.installation.data_dir).socket_dir
    platform_sockets = [path for path in sockets.iterdir() if path.is_socket()]

    assert len(platform_sockets) == 2
    assert {attack_platform(malicious, "connect", path) for path in platform_sockets} <= REFUSALS
    command_lines = attack_platform(malicious, "list_processes")
    assert all("graph_host" in line or "bwrap" in line or not line for line in command_lines), (
        command_lines
    )
    environments = attack_platform(malicious, "read_environments")
    assert "DATABASE_URL" not in environments
    assert "SLIPWAY_INSTANCE" not in environments


def test_network_of_the_machine_is_out_of_reach(live, malicious):
    """Nothing is sent outside of the machine: the targets are its own, or refused before that."""
    abstract = f"slipway-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as service,
        socket.create_server(("0.0.0.0", 0)) as everywhere,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as service6,
        socket.socket(socket.AF_UNIX) as abstract_service,
    ):
        abstract_service.bind(f"\0{abstract}")
        abstract_service.listen()
        port, everywhere_port = service.getsockname()[1], everywhere.getsockname()[1]
        addresses = [
            f"127.0.0.1:{port}",
            f"localhost:{port}",
            f"127.0.0.2:{everywhere_port}",
            f"::ffff:127.0.0.1:{port}",
            f"::1:{service6.getsockname()[1]}",
            "10.0.0.1:80",
            "172.16.0.1:80",
            "192.168.0.1:80",
            "169.254.169.254:80",
            "fd00:ec2::254:80",
        ]
        attempts = [("connect_tcp", address) for address in addresses]
        attempts += [
            (
                "tunnel",
                address if address.count(":") == 1 else f"[{address.rpartition(':')[0]}]:{port}",
            )
            for address in addresses
        ]
        attempts += [
            ("tunnel", f"2130706433:{port}"),
            ("tunnel", f"[64:ff9b::7f00:1]:{port}"),
            ("connect_abstract", abstract),
            ("send_datagram", "127.0.0.1:53"),
            ("send_datagram", "10.0.0.1:53"),
            ("open_raw_socket", ""),
        ]
        refusals = {*REFUSALS, "TimeoutError"}

        results = [attack_platform(malicious, *attempt) for attempt in attempts]

    assert len(results) == 26
    assert {
        attempt: loot
        for attempt, loot in zip(attempts, results, strict=True)
        if loot not in refusals
    } == {}


def test_agent_reaches_the_platform_for_its_traces(live, malicious):
    platform = live.url.removeprefix("http://")

    assert attack_platform(malicious, "connect_tcp", platform) == "connected"
    assert attack_platform(malicious, "tunnel", platform) == "connected"


def test_agent_gains_no_privileges_and_leaves_no_files(malicious):
    assert attack_platform(malicious, "become_root") in REFUSALS
    assert attack_platform(malicious, "write", "agent.py") in REFUSALS
    assert attack_platform(malicious, "write", "/usr/bin/owned") in REFUSALS


@pytest.mark.slow  # it loads the machine for minutes
@pytest.mark.xdist_group("machine")
@pytest.mark.parametrize("attack", ["fork_forever", "fill_memory"])
def test_platform_responds_while_an_agent_exhausts_its_limits(
    live, malicious, sample_agent, attack
):
    slowest, answers, finished = [0.0], [], threading.Event()

    def poll_readiness() -> None:
        with httpx.Client() as client:
            while not finished.is_set():
                started_at = time.monotonic()
                answers.append(client.get(f"{live.url}/readyz", timeout=30).status_code)
                slowest[0] = max(slowest[0], time.monotonic() - started_at)
                time.sleep(0.05)

    watcher = threading.Thread(target=poll_readiness)
    watcher.start()
    try:
        thread = malicious.threads.create()["thread_id"]
        run = malicious.runs.create(thread, "malicious", input={"attack": attack})
        with get_sync_client(url=sample_agent.url, api_key=live.api_key) as other:
            graph_input = {"messages": [{"role": "user", "content": "What is 12 * 7 + 1?"}]}
            answer = other.runs.wait(None, "agent", input=graph_input)
        malicious.runs.join(thread, run["run_id"])
    finally:
        finished.set()
        watcher.join()

    assert not watcher.is_alive()
    assert "85" in answer["messages"][-1]["content"]
    assert malicious.runs.get(thread, run["run_id"])["status"] == "error"
    assert set(answers) == {200}
    assert slowest[0] < MAX_ANSWER_SECONDS
