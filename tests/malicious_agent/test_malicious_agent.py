"""An agent that attacks the platform from inside: it gains nothing, and all others are served."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import httpx
import pytest
from langgraph_sdk import get_sync_client

from apps.core.instance import Instance
from config.env import BASE_DIR
from tests.contract.deploying import deploy
from tests.response_deadline import with_deadline

pytestmark = pytest.mark.xdist_group("machine")

REFUSED = {"FileNotFoundError", "PermissionError", "OSError", "ConnectionRefusedError"}
SLOWEST_ANSWER = 15.0  # seconds; the machine may have other work


@pytest.fixture(scope="module")
def hostile(live, sample_agent, tmp_path_factory):
    """The attacker, beside the sample agent, which serves by then."""
    place = tmp_path_factory.mktemp("hostile") / "agent"
    place.mkdir()  # builds run as another user, who may read this one
    shutil.copy(Path(__file__).parent / "agent.py", place)
    config = {"dependencies": ["."], "graphs": {"hostile": "./agent.py:graph"}}
    (place / "langgraph.json").write_text(json.dumps(config))
    url = deploy(live, place, "hostile")
    with with_deadline(get_sync_client(url=url, api_key=live.api_key, timeout=180)) as client:
        yield client


def live_revision(live):
    """The revision of the sample agent, which is somebody else's to the hostile one."""
    answer = httpx.get(f"{live.url}/v2/deployments?name=sample-agent", headers=live.headers)
    return answer.json()["resources"][0]["active_revision_id"]


def is_refused(got):
    return isinstance(got, str) and got in REFUSED


def outcome(client, attack, target=""):
    answer = client.runs.wait(None, "hostile", input={"attack": attack, "target": str(target)})
    return answer["got"]


def test_files_of_the_platform_and_of_others_are_out_of_reach(live, hostile):
    data = live.installation.data_dir
    revisions = data / "revisions"
    another = revisions / live_revision(live)
    targets = [
        ("listing", data),
        ("listing", another),
        ("listing", revisions),
        ("read", data / "secrets" / "secret_key"),
        ("read", data / "secrets" / "encryption_keys"),
        ("listing", data / "postgres"),
        ("read", "/etc/shadow"),
        ("read", BASE_DIR / "manage.py"),
    ]

    found = {str(target): outcome(hostile, attack, target) for attack, target in targets}

    assert (data / "secrets" / "secret_key").exists()
    secret = (data / "secrets" / "secret_key").read_text()
    assert secret not in str(found)
    # The way to its own revision may be there, and nothing beside it.
    for folder in (data, revisions):
        way = found.pop(str(folder))
        assert is_refused(way) or len(way) == 1, way
    assert {path: got for path, got in found.items() if not is_refused(got)} == {}


def test_processes_environments_and_sockets_of_others_are_out_of_reach(live, hostile):
    sockets = Instance(live.installation.data_dir).socket_dir
    doors = [path for path in sockets.iterdir() if path.is_socket()]

    assert len(doors) == 2
    assert {outcome(hostile, "connect", door) for door in doors} <= REFUSED
    seen = outcome(hostile, "processes")
    assert all("graph_host" in line or "bwrap" in line or not line for line in seen), seen
    environments = outcome(hostile, "environments")
    assert "DATABASE_URL" not in environments
    assert "SLIPWAY_INSTANCE" not in environments


def test_agent_gains_no_privileges_and_leaves_no_files(hostile):
    assert outcome(hostile, "become_root") in REFUSED
    assert outcome(hostile, "write", "agent.py") in REFUSED
    assert outcome(hostile, "write", "/usr/bin/owned") in REFUSED


@pytest.mark.parametrize("attack", ["fork_without_end", "fill_memory"])
def test_platform_responds_while_an_agent_exhausts_its_limits(live, hostile, sample_agent, attack):
    slowest, answers, over = [0.0], [], threading.Event()

    def ask() -> None:
        with httpx.Client() as client:
            while not over.is_set():
                begun = time.monotonic()
                answers.append(client.get(f"{live.url}/readyz", timeout=30).status_code)
                slowest[0] = max(slowest[0], time.monotonic() - begun)
                time.sleep(0.05)

    watcher = threading.Thread(target=ask, daemon=True)
    watcher.start()
    try:
        thread = hostile.threads.create()["thread_id"]
        run = hostile.runs.create(thread, "hostile", input={"attack": attack})
        with with_deadline(get_sync_client(url=sample_agent.url, api_key=live.api_key)) as other:
            said = {"messages": [{"role": "user", "content": "What is 12 * 7 + 1?"}]}
            answer = other.runs.wait(None, "agent", input=said)
        hostile.runs.join(thread, run["run_id"])
    finally:
        over.set()
        watcher.join(60)

    assert not watcher.is_alive()
    assert "85" in answer["messages"][-1]["content"]
    assert hostile.runs.get(thread, run["run_id"])["status"] == "error"
    assert set(answers) == {200}
    assert slowest[0] < SLOWEST_ANSWER
