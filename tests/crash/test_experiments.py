"""`kill -9` of web and worker during an upload of examples and during an experiment.

`make test-crash-experiments ROUNDS=10` runs the full sizes; `make test` one small round of each.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
from langsmith import Client
from langsmith.utils import LangSmithConflictError, LangSmithError

from tests.installation import PATIENCE_SECONDS, Installation, wait_until

pytestmark = [
    pytest.mark.lifecycle,
    pytest.mark.xdist_group("machine"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

ROUNDS = int(os.environ.get("ROUNDS", "10"))
UPLOAD_BATCH = 1_000
REPETITIONS, CONCURRENCY = 2, 8


class Platform:
    """The installation, with an agent whose graph `doubling` is evaluated if there is one."""

    def __init__(self, installation: Installation, key: str, agent_url: str = "") -> None:
        self.installation = installation
        self.api_url = f"{installation.url}/api/v1"
        self.key = key
        self.http = httpx.Client(base_url=self.api_url, headers={"X-Api-Key": key}, timeout=60)
        if not agent_url:
            return
        deployments = self.request("GET", "/v2/deployments").json()["resources"]
        slug = agent_url.rpartition("/")[2]
        (self.deployment_id,) = [row["id"] for row in deployments if row["name"] == slug]

    def client(self) -> Client:
        return Client(api_url=self.api_url, api_key=self.key)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send an idempotent request; repeat it while the platform does not answer."""
        url = f"{self.installation.url}{path}" if path.startswith("/v2/") else path
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                response = self.http.request(method, url, **options)
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            if response.status_code not in {502, 503, 504}:
                return response.raise_for_status()
            time.sleep(0.1)
        raise AssertionError(f"{method} {path}: no answer")

    def kill(self, role: str) -> None:
        """Kill the process of the role and wait for its successor."""
        process = self.installation.find(role)
        assert process is not None
        process.kill()
        psutil.wait_procs([process], timeout=60)
        wait_until(lambda: self.installation.is_back(role, process), f"another {role}")


@pytest.fixture(scope="module")
def platform(killable, killable_key, killable_agent_url) -> Iterator[Platform]:
    killable.wait_until_ready()
    platform = Platform(killable, killable_key, killable_agent_url)
    with closing(platform.http):
        yield platform


class Uploader(threading.Thread):
    """Uploads examples by the public client; repeats calls that were not acknowledged."""

    def __init__(self, client: Client, dataset_id: Any, size: int) -> None:
        super().__init__(name="uploader", daemon=True)
        self.acknowledged: set[str] = set()
        self.retries = 0
        self.problem: BaseException | None = None
        self._client, self._dataset_id, self._size = client, dataset_id, size

    def run(self) -> None:
        try:
            for first in range(0, self._size, UPLOAD_BATCH):
                numbers = range(first, min(first + UPLOAD_BATCH, self._size))
                self._upload({str(uuid4()): number for number in numbers})
        except BaseException as error:  # noqa: BLE001  (raised where the test waits for this thread)
            self.problem = error

    def _upload(self, questions: dict[str, int]) -> None:
        examples = [
            {"id": example_id, "inputs": {"question": n}, "outputs": {"answer": 2 * n}}
            for example_id, n in questions.items()
        ]
        is_repeated = False
        while True:
            try:
                self._client.create_examples(dataset_id=self._dataset_id, examples=examples)
                break
            except LangSmithConflictError:
                # The client or this loop repeated a call whose answer was lost with the process.
                break
            except LangSmithError:
                is_repeated = True
                time.sleep(0.2)
        self.retries += is_repeated
        self.acknowledged |= questions.keys()


def read_ids(platform: Platform, dataset_id: Any) -> list[str]:
    """The ids of the examples as an export lists them."""
    lines = platform.request("GET", f"/datasets/{dataset_id}/jsonl").text.splitlines()
    count = platform.request("GET", "/examples/count", params={"dataset": str(dataset_id)}).json()
    assert count == len(lines)
    ids: list[str] = []
    while page := platform.request(
        "GET",
        "/examples",
        params={"dataset": str(dataset_id), "offset": len(ids), "limit": 100, "select": "id"},
    ).json():
        ids += [row["id"] for row in page]
    return ids


def run_upload(platform: Platform, size: int) -> None:
    platform.installation.wait_until_ready()
    client = platform.client()
    dataset = client.create_dataset(f"upload {uuid4()}")
    uploader = Uploader(client, dataset.id, size)
    uploader.start()
    for share, role in ((4, "web"), (2, "worker")):
        wait_until(
            lambda share=share: (
                len(uploader.acknowledged) >= size // share or not uploader.is_alive()
            ),
            f"a part of the upload, {uploader.problem}",
        )
        platform.kill(role)
    uploader.join(timeout=1_200)
    assert uploader.problem is None, uploader.problem

    stored = read_ids(platform, dataset.id)

    client.cleanup()
    print(f"upload: {len(stored):,} examples, {uploader.retries} repeated calls")
    assert len(stored) == len(set(stored)) == size
    assert set(stored) == uploader.acknowledged


def run_experiment(platform: Platform, size: int) -> None:
    platform.installation.wait_until_ready()
    client = platform.client()
    dataset = client.create_dataset(f"experiment {uuid4()}")
    client.create_examples(
        dataset_id=dataset.id,
        examples=[{"inputs": {"question": n}, "outputs": {"answer": 2 * n}} for n in range(size)],
    )
    total = size * REPETITIONS
    job = (
        platform.http.post(
            f"/datasets/{dataset.id}/experiment-jobs",
            json={
                "deployment_id": platform.deployment_id,
                "assistant_id": "doubling",
                "repetitions": REPETITIONS,
                "concurrency": CONCURRENCY,
            },
        )
        .raise_for_status()
        .json()
    )
    path = f"/experiment-jobs/{job['id']}"

    def finished() -> int:
        row = platform.request("GET", path).json()
        return row["done"] + row["failed"]

    started_at = time.monotonic()
    for share, role in ((4, "worker"), (2, "web")):
        wait_until(lambda share=share: finished() >= total // share, "a part of the experiment")
        platform.kill(role)
    wait_until(lambda: platform.request("GET", path).json()["ended_at"], "the end of the job")
    print(f"experiment: {total} runs in {time.monotonic() - started_at:.0f} s")

    ended = platform.request("GET", path).json()
    assert (ended["status"], ended["done"], ended["failed"]) == ("completed", total, 0)
    runs = read_roots(platform, job["experiment_id"])
    client.cleanup()
    assert len(runs) == len({run["id"] for run in runs}) == total
    assert set(Counter(run["reference_example_id"] for run in runs).values()) == {REPETITIONS}
    for run in runs:
        assert run["end_time"] is not None
        assert run["error"] is None
        assert run["outputs"]["answer"] == 2 * run["inputs"]["question"]
    assert len({run["reference_example_id"] for run in runs}) == size


def read_roots(platform: Platform, experiment_id: str) -> list[dict[str, Any]]:
    query: dict[str, Any] = {
        "session": [experiment_id],
        "is_root": True,
        "limit": 100,
        "select": ["id", "end_time", "error", "inputs", "outputs", "reference_example_id"],
    }
    runs: list[dict[str, Any]] = []
    while True:
        page = platform.request("POST", "/runs/query", json=query).json()
        runs += page["runs"]
        query["cursor"] = (page.get("cursors") or {}).get("next")
        if not query["cursor"]:
            return runs


def test_an_upload_survives_killed_processes(platform):
    run_upload(platform, 6_000)


def test_an_experiment_survives_killed_processes(platform):
    run_experiment(platform, 24)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
def test_rounds_of_kills_lose_and_repeat_no_example(platform, number):
    run_upload(platform, 100_000)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
def test_rounds_of_kills_lose_and_repeat_no_run_of_an_experiment(platform, number):
    run_experiment(platform, 100)
