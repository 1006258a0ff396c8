"""Calls of models on a running platform: streams, and experiments whose processes are killed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from apps.playground.manifests import build_manifest
from apps.playground.setting import Setting, convert
from tests.crash.test_experiments import ROUNDS, Platform, read_roots
from tests.installation import wait_until
from tests.playground.conftest import setting
from tests.providers.fake_provider import FakeProvider, Reply

pytestmark = [
    pytest.mark.lifecycle,
    pytest.mark.xdist_group("machine"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
KEY = "sk-key-of-the-workspace"
COLUMNS = 3
PROMPT = [["human", "{question}"]]


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def platform(killable, killable_key, provider) -> Iterator[Platform]:
    killable.wait_until_ready()
    platform = Platform(killable, killable_key)
    secrets = [
        {"key": "OPENAI_API_KEY", "value": KEY},
        {"key": "OPENAI_BASE_URL", "value": provider.url},
    ]
    platform.request("POST", "/workspaces/current/secrets", json=secrets)
    with closing(platform.http):
        yield platform


def make_dataset(platform: Platform, size: int) -> str:
    client = platform.client()
    dataset = client.create_dataset(f"questions {uuid4()}")
    client.create_examples(
        dataset_id=dataset.id, examples=[{"inputs": {"question": str(n)}} for n in range(size)]
    )
    client.cleanup()
    return str(dataset.id)


def echo(request: Any) -> Reply:
    question = request.json()["messages"][-1]["content"]
    return Reply(f"Answer {question}", seconds_per_word=0.02)


def start(platform: Platform, dataset_id: str, column: int) -> dict[str, Any]:
    fields = convert(setting(model={"temperature": column / 10}), Setting)
    body = {
        "dataset_id": dataset_id,
        "manifest": build_manifest(fields),
        "project_name": f"column {column} {uuid4()}",
        "batch_size": 8,
    }
    job: dict[str, Any] = platform.request(
        "POST", "/datasets/playground_experiment/batch", json=body
    ).json()
    return job


def run_experiment(platform: Platform, provider: FakeProvider, size: int) -> None:
    """Run columns over a dataset while a worker and a web process are killed."""
    platform.installation.wait_until_ready()
    provider.answer = echo
    provider.requests.clear()
    dataset_id = make_dataset(platform, size)
    jobs = [start(platform, dataset_id, column) for column in range(COLUMNS)]

    def rows() -> list[dict[str, Any]]:
        return [platform.request("GET", f"/experiment-jobs/{job['id']}").json() for job in jobs]

    total, started_at = size * COLUMNS, time.monotonic()
    for share, role in ((4, "worker"), (2, "web")):
        wait_until(
            lambda share=share: sum(row["done"] for row in rows()) >= total // share,
            "a part of the experiments",
            seconds=300,
        )
        platform.kill(role)
    wait_until(lambda: all(row["ended_at"] for row in rows()), "the end of the jobs", seconds=600)
    seconds = time.monotonic() - started_at
    print(f"playground: {total} rows in {seconds:.0f} s, {len(provider.requests)} calls of models")

    for job, row in zip(jobs, rows(), strict=True):
        assert (row["status"], row["done"], row["failed"]) == ("completed", size, 0)
        runs = read_roots(platform, job["experiment_id"])
        assert set(Counter(run["reference_example_id"] for run in runs).values()) == {1}
        assert len(runs) == size
        for run in runs:
            assert (run["error"], run["end_time"] is None) == (None, False)
            assert run["outputs"]["output"] == f"Answer {run['inputs']['question']}"
    # The calls that were open when the worker was killed are made again.
    assert total <= len(provider.requests) <= total + 32


def test_reply_streams_through_the_running_platform(platform, provider):
    provider.answer = Reply("One two three", seconds_per_word=0.2)
    dataset_id = make_dataset(platform, 2)
    body = {
        "dataset_id": dataset_id,
        "manifest": build_manifest(convert(setting(), Setting)),
        "project_name": f"stream {uuid4()}",
    }

    with platform.http.stream(
        "POST", "/datasets/playground_experiment/stream", json=body, timeout=120
    ) as response:
        text = "".join(response.iter_text())

    names = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
    assert names == ["start", "result", "result", "end"]
    assert KEY not in text


def test_prompt_is_invoked_and_failures_have_their_status(platform, provider):
    provider.answer = Reply("It is so.")
    body = {"messages": PROMPT, "inputs": {"question": "Why?"}}
    invoked = platform.http.post("/prompts/invoke_prompt", json=body)
    provider.answer = Reply(status=429, error=f"Slow, {KEY}.", headers={"retry-after": "3"})

    refused = platform.http.post("/prompts/invoke_prompt", json=body)

    assert (invoked.status_code, invoked.json()["content"]) == (200, "It is so.")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "3")
    assert refused.json()["code"] == "provider_rate_limited"
    assert KEY not in refused.text


def test_experiments_of_columns_survive_killed_processes(platform, provider):
    run_experiment(platform, provider, 24)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
def test_rounds_of_kills_lose_and_repeat_no_row(platform, provider, number):
    run_experiment(platform, provider, 200)
