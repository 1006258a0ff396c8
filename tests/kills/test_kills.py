"""`kill -9` of one process in the middle of a run: the run completes, nothing is done twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from langgraph_sdk import get_sync_client

from config.env import BASE_DIR
from tests.kills.recorder import Recorder
from tests.processes import free_port, roots

pytestmark = [pytest.mark.house, pytest.mark.xdist_group("kills")]

STEPS = [f"step{number}" for number in range(1, 6)]


class Platform:
    """An installation of its own, with the five-node agent deployed."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self.folder = folder
        self.port = free_port()
        self.env = {
            **{n: v for n, v in os.environ.items() if n not in {"DATABASE_URL", "REDIS_URL"}},
            "DATA_DIR": str(folder),
            "PORT": str(self.port),
        }
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "config.supervisor", "--with-parent"],
            cwd=BASE_DIR, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.until_ready(seconds=120)
        facts = self.manage("bootstrap", "--organization", "Kills", "--email", "k@example.com")
        deployed = self.manage(
            "deploy", "--organization", "Kills", "--name", "five", "--git", str(self.repository()),
            "--env", f"RECORDER={recorder.url}", "--env", "LANGSMITH_TRACING=false", "--wait",
        )  # fmt: skip
        self.client = get_sync_client(url=deployed["agent_url"], api_key=facts["api_key"])

    def manage(self, *words: str) -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "manage.py", *words, "--json"],
            cwd=BASE_DIR, env=self.env, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    def repository(self) -> Path:
        place = self.folder / "repository"
        place.mkdir()
        shutil.copy(Path(__file__).parent / "agent.py", place)
        config = {"dependencies": ["."], "graphs": {"five": "./agent.py:graph"}}
        (place / "langgraph.json").write_text(json.dumps(config))
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        for words in (
            ["init", "-q", "-b", "main"],
            ["add", "."],
            [*identity, "commit", "-qm", "5"],
        ):
            subprocess.run(["git", "-C", str(place), *words], check=True)
        return place

    def until_ready(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise TimeoutError(f"not ready after {seconds} s")

    def kill(self, role: str) -> None:
        os.kill(roots(self.folder)[role], signal.SIGKILL)

    def result(self, thread_id: str, run_id: str, seconds: float) -> str:
        """The run's status once it is final."""
        end = time.monotonic() + seconds
        status = "unknown"
        while time.monotonic() < end:
            try:
                status = self.client.runs.get(thread_id, run_id)["status"]
            except httpx.HTTPError:
                status = "unreachable"
            if status in {"success", "error", "timeout", "interrupted"}:
                return status
            time.sleep(0.1)
        raise TimeoutError(f"still {status} after {seconds} s")

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def recorder():
    with Recorder() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def platform(tmp_path_factory, recorder):
    platform = Platform(tmp_path_factory.mktemp("kills"), recorder)
    yield platform
    platform.stop()


@pytest.mark.parametrize("role", ["worker", "web", "redis", "postgres"])
def test_a_killed_process_loses_nothing_and_repeats_nothing(platform, recorder, role):
    platform.until_ready(seconds=60)
    thread_id = platform.client.threads.create()["thread_id"]
    run_id = platform.client.runs.create(thread_id, "five", input={"trail": []})["run_id"]
    recorder.wait_for(f"{run_id} 1 step3")

    platform.kill(role)

    assert platform.result(thread_id, run_id, seconds=90) == "success"
    effects = recorder.of(run_id)
    assert [(e, n) for e, n in Counter(effects).items() if n > 1] == []
    # Nodes that had finished before the kill did not run again.
    assert Counter(effect.split()[1] for effect in effects)["step1"] == 1
    assert Counter(effect.split()[1] for effect in effects)["step2"] == 1
    assert platform.client.threads.get_state(thread_id)["values"]["trail"] == STEPS
    thread = platform.client.threads.get(thread_id)
    assert (thread["status"], thread["values"]) == ("idle", {"trail": STEPS})


def test_runs_that_wait_behind_a_killed_worker_keep_their_order(platform, recorder):
    platform.until_ready(seconds=60)
    thread_id = platform.client.threads.create()["thread_id"]
    run_ids = [
        platform.client.runs.create(thread_id, "five", input={"trail": [f"run{n}"]})["run_id"]
        for n in range(3)
    ]
    recorder.wait_for(f"{run_ids[0]} 1 step2")

    platform.kill("worker")

    assert platform.result(thread_id, run_ids[-1], seconds=120) == "success"
    trail = platform.client.threads.get_state(thread_id)["values"]["trail"]
    assert trail == [word for n in range(3) for word in (f"run{n}", *STEPS)]
