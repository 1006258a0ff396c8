"""Experiments by the public Python client against the running platform."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from langsmith import Client
from langsmith.schemas import Dataset

from tests.installation import wait_until
from tests.live import Live
from tests.live_client import client

__all__ = ["client"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.xdist_group("evaluation"),
]


def create_dataset(client: Client, size: int) -> Dataset:
    """A dataset with the questions from 0 and their doubles."""
    dataset = client.create_dataset(f"evaluation {uuid.uuid4()}")
    client.create_examples(
        dataset_id=dataset.id,
        examples=[
            {"inputs": {"question": number}, "outputs": {"answer": 2 * number}}
            for number in range(size)
        ],
    )
    return dataset


@pytest.fixture(scope="module")
def dataset(client: Client) -> Dataset:
    return create_dataset(client, 12)


def double(inputs: dict[str, Any]) -> dict[str, Any]:
    """Double the question, except every fourth one."""
    question = inputs["question"]
    return {"answer": -1 if question % 4 == 3 else 2 * question}


def triple(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"answer": 3 * inputs["question"]}


def correct(outputs: dict[str, Any], reference_outputs: dict[str, Any]) -> bool:
    return outputs == reference_outputs


def sign(outputs: dict[str, Any]) -> dict[str, Any]:
    return {"key": "sign", "value": "negative" if outputs["answer"] < 0 else "positive"}


def accuracy(
    outputs: list[dict[str, Any]], reference_outputs: list[dict[str, Any]]
) -> dict[str, Any]:
    pairs = list(zip(outputs, reference_outputs, strict=True))
    return {"key": "accuracy", "score": sum(a == b for a, b in pairs) / len(pairs)}


def read_experiment(client: Client, name: str, key: str, count: int) -> Any:
    """Return the experiment with statistics, once it has so many scores of the key."""
    client.flush()
    projects: list[Any] = []

    def is_complete() -> bool:
        project = client.read_project(project_name=name, include_stats=True)
        projects[:] = [project]
        return (project.feedback_stats or {}).get(key, {}).get("n") == count

    wait_until(is_complete, f"{count} scores of {name}: {projects}")
    return projects[0]


def evaluate(client: Client, dataset: Dataset, target: Any = double, **options: Any) -> str:
    """Run an experiment and return its name."""
    results = client.evaluate(
        target,
        data=dataset.name,
        evaluators=[correct, sign],
        summary_evaluators=[accuracy],
        experiment_prefix="evaluation",
        metadata={"purpose": "test"},
        **options,
    )
    return results.experiment_name


@pytest.mark.parametrize(
    ("size", "repetitions", "concurrency"),
    [(12, 2, 4), pytest.param(200, 4, 8, marks=pytest.mark.slow)],
)
def test_an_experiment_is_evaluated_with_repetitions_and_summary(
    client, live, size, repetitions, concurrency
):
    dataset = create_dataset(client, size)
    runs, failed = size * repetitions, size // 4 * repetitions

    name = evaluate(client, dataset, num_repetitions=repetitions, max_concurrency=concurrency)

    project = read_experiment(client, name, "sign", runs)
    assert project.reference_dataset_id == dataset.id
    assert project.metadata["purpose"] == "test"
    assert project.metadata["dataset_version"]
    assert (project.run_count, project.error_rate) == (runs, 0)
    assert project.latency_p50 >= timedelta()
    scores = project.feedback_stats["correct"]
    assert scores["n"] == runs
    assert scores["avg"] == pytest.approx(1 - failed / runs)
    assert project.feedback_stats["sign"]["values"] == {
        "negative": failed,
        "positive": runs - failed,
    }
    summary = project.session_feedback_stats["accuracy"]
    assert (summary["n"], summary["avg"]) == (1, pytest.approx(1 - failed / runs))
    listed = httpx.get(
        f"{live.api_url}/sessions",
        params={"reference_dataset": str(dataset.id), "include_stats": "true"},
        headers=live.headers,
    ).json()
    assert [item["name"] for item in listed] == [name]
    progress = listed[0]["experiment_progress"]
    assert (progress["expected_run_count"], progress["run_progress"]) == (runs, 1.0)
    assert set(progress["evaluator_progress"].values()) <= {1.0}
    free = client.list_projects(reference_free=True, name=name)
    assert list(free) == []
    rows = list(client.get_experiment_results(name=name)["examples_with_runs"])
    assert len(rows) == size
    assert {len(row.runs) for row in rows} == {repetitions}
    assert {row.outputs["answer"] for row in rows} == {2 * number for number in range(size)}
    for row in rows:
        assert {run.outputs["answer"] for run in row.runs} == {double(row.inputs)["answer"]}
        for run in row.runs:
            assert run.reference_example_id == row.id
            assert run.feedback_stats["correct"]["avg"] == (row.inputs["question"] % 4 != 3)


def test_results_are_previewed_filtered_and_limited(client, dataset):
    name = evaluate(client, dataset)
    project = read_experiment(client, name, "sign", 12)

    def read(**options):
        results = client.get_experiment_results(project_id=project.id, **options)
        return list(results["examples_with_runs"])

    results = client.get_experiment_results(project_id=project.id)
    assert results["run_stats"]["run_count"] == 12
    assert results["feedback_stats"]["accuracy"]["avg"] == 0.75
    assert len(read(limit=5)) == 5
    preview = read(preview=True)
    assert preview[0].runs[0].outputs is None
    wrong = 'and(eq(feedback_key, "correct"), eq(feedback_score, 0))'
    questions = {row.inputs["question"] for row in read(filters={project.id: [wrong]})}
    assert questions == {3, 7, 11}


def test_the_generated_client_pages_through_results(client, live, dataset):
    name = evaluate(client, dataset)
    project = read_experiment(client, name, "sign", 12)

    async def collect() -> list[Any]:
        own = Client(api_url=live.api_url, api_key=live.api_key)
        try:
            pages = own.datasets.experiment_runs.query(
                str(dataset.id),
                experiment_ids=[str(project.id)],
                selects=["OUTPUTS", "FEEDBACK_STATS"],
                page_size=5,
            )
            return [item async for item in pages]
        finally:
            await own.datasets._client.close()
            own.cleanup()

    items = asyncio.run(collect())

    assert len(items) == 12
    assert {item.inputs["question"] for item in items} == set(range(12))
    for item in items:
        assert item.runs[0].outputs == double(item.inputs)


def test_an_existing_experiment_is_evaluated_again(client, dataset):
    name = evaluate(client, dataset)
    read_experiment(client, name, "sign", 12)

    def is_even(outputs: dict[str, Any]) -> bool:
        return outputs["answer"] % 2 == 0

    results = client.evaluate(name, evaluators=[is_even])

    assert len(results) == 12
    project = read_experiment(client, name, "is_even", 12)
    assert project.feedback_stats["is_even"]["avg"] == 0.75
    assert project.feedback_stats["correct"]["n"] == 12


def test_an_asynchronous_target_is_evaluated(client, dataset):
    async def target(inputs: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return double(inputs)

    async def run() -> str:
        results = await client.aevaluate(
            target,
            data=dataset.name,
            evaluators=[correct],
            summary_evaluators=[accuracy],
            max_concurrency=4,
            num_repetitions=2,
        )
        return results.experiment_name

    name = asyncio.run(run())

    project = read_experiment(client, name, "correct", 24)
    assert project.feedback_stats["correct"]["avg"] == 0.75
    assert project.session_feedback_stats["accuracy"]["avg"] == 0.75


def test_two_experiments_are_compared_pairwise(client, live, dataset):
    names = [evaluate(client, dataset, target) for target in (double, triple)]
    projects = [read_experiment(client, name, "sign", 12) for name in names]

    def prefer_larger(runs: list[Any], example: Any) -> dict[str, Any]:
        # Zero has equal answers, and the client shuffles the runs.
        best = max(runs, key=lambda run: (run.outputs["answer"], run.session_id == projects[0].id))
        return {"key": "larger", "scores": {run.id: int(run.id == best.id) for run in runs}}

    results = client.evaluate(names, evaluators=[prefer_larger], randomize_order=True)

    comparison = results.comparative_experiment
    assert comparison.reference_dataset_id == dataset.id
    client.flush()
    stats: dict[str, Any] = {}

    def has_all_scores() -> bool:
        (listed,) = httpx.get(
            f"{live.api_url}/datasets/{dataset.id}/comparative",
            params={"id": str(comparison.id)},
            headers=live.headers,
        ).json()
        stats.update(listed)
        return listed["feedback_stats"].get("larger", {}).get("n") == 24

    wait_until(has_all_scores, "the scores of the comparison")
    assert [item["id"] for item in stats["experiments_info"]] == [str(p.id) for p in projects]
    by_experiment = stats["feedback_stats"]["larger"]["experiments"]
    assert by_experiment[str(projects[0].id)]["avg"] == pytest.approx(1 / 12)
    assert by_experiment[str(projects[1].id)]["avg"] == pytest.approx(11 / 12)
    feedback = httpx.get(
        f"{live.api_url}/feedback",
        params={"comparative_experiment_id": str(comparison.id)},
        headers=live.headers,
    ).json()
    groups = [item["feedback_group_id"] for item in feedback]
    assert (len(groups), len(set(groups))) == (24, 12)
    plain = client.read_project(project_id=projects[0].id, include_stats=True)
    assert "larger" not in plain.feedback_stats
    rows = client.get_experiment_results(
        project_id=projects[1].id, comparative_experiment_id=comparison.id
    )["examples_with_runs"]
    assert all("larger" in row.runs[0].feedback_stats for row in rows)


SUITE = """
import pytest
from langsmith import testing

@pytest.mark.langsmith
def test_sum():
    testing.log_inputs({"a": 1, "b": 2})
    testing.log_reference_outputs({"sum": 3})
    testing.log_outputs({"sum": 3})
    testing.log_feedback(key="exact", score=1)

@pytest.mark.langsmith
@pytest.mark.parametrize("number", [1, 2])
def test_number(number):
    testing.log_outputs({"number": number})
    assert number == 1
"""


def run_suite(live: Live, folder: Path, suite: str) -> None:
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "DJANGO_"))
    }
    environment = {
        **inherited,
        "LANGSMITH_ENDPOINT": live.api_url,
        "LANGSMITH_API_KEY": live.api_key,
        "LANGSMITH_TEST_SUITE": suite,
        "LANGSMITH_TRACING": "true",
    }
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "test_suite.py", "-q", "-p", "no:django"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "1 failed, 2 passed" in completed.stdout, completed.stdout + completed.stderr


def test_a_pytest_suite_is_an_experiment_on_its_cases(client, live, tmp_path):
    suite = f"suite {uuid.uuid4()}"

    run_suite(live, tmp_path, suite)
    run_suite(live, tmp_path, suite)

    dataset = client.read_dataset(dataset_name=suite)
    examples = list(client.list_examples(dataset_id=dataset.id))
    assert len(examples) == 3
    assert {"sum": 3} in [example.outputs for example in examples]
    projects = list(client.list_projects(reference_dataset_id=dataset.id, include_stats=True))
    assert len(projects) == 2
    for project in projects:
        complete = read_experiment(client, project.name, "pass", 3)
        assert complete.feedback_stats["pass"]["avg"] == pytest.approx(2 / 3)
        assert complete.feedback_stats["exact"]["avg"] == 1
        assert complete.metadata["dataset_version"]


def test_an_uploaded_experiment_is_read_by_the_client(client, live):
    start = datetime(2026, 11, 1, tzinfo=UTC)
    body = {
        "experiment_name": f"uploaded {uuid.uuid4()}",
        "experiment_start_time": start.isoformat(),
        "experiment_end_time": (start + timedelta(hours=1)).isoformat(),
        "dataset_name": f"external {uuid.uuid4()}",
        "summary_experiment_scores": [{"key": "f1", "score": 0.5}],
        "results": [
            {
                "row_id": str(uuid.uuid4()),
                "inputs": {"question": number},
                "expected_outputs": {"answer": number},
                "actual_outputs": {"answer": 0},
                "evaluation_scores": [{"key": "correct", "score": int(number == 0)}],
                "start_time": start.isoformat(),
                "end_time": (start + timedelta(seconds=2)).isoformat(),
            }
            for number in range(4)
        ],
    }

    response = httpx.post(
        f"{live.api_url}/datasets/upload-experiment", json=body, headers=live.headers
    )

    assert response.status_code == 200, response.text
    results = client.get_experiment_results(name=body["experiment_name"])
    assert results["run_stats"]["run_count"] == 4
    assert results["run_stats"]["latency_p50"] == timedelta(seconds=2)
    assert results["feedback_stats"]["correct"]["avg"] == 0.25
    assert results["feedback_stats"]["f1"]["avg"] == 0.5
    rows = list(results["examples_with_runs"])
    assert {row.inputs["question"] for row in rows} == {0, 1, 2, 3}
