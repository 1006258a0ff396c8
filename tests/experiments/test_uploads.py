"""Experiments that were run elsewhere."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.datasets.models import Dataset, ExampleRevision
from apps.feedback.models import Feedback
from apps.trace_store import RunQuery, run_store
from apps.tracing.models import Project
from tests.factories.datasets import make_dataset

ROWS = [uuid4(), uuid4()]


def upload_body(**fields):
    times = {"start_time": "2026-11-01T10:00:01+00:00", "end_time": "2026-11-01T10:00:03+00:00"}
    return {
        "experiment_name": "external",
        "experiment_description": "run by another tool",
        "experiment_start_time": "2026-11-01T10:00:00+00:00",
        "experiment_end_time": "2026-11-01T10:01:00+00:00",
        "dataset_name": "shelf",
        "dataset_description": "books",
        "experiment_metadata": {"model": "m"},
        "summary_experiment_scores": [{"key": "f1", "score": 0.75, "comment": "good"}],
        "results": [
            {
                "row_id": str(row_id),
                "inputs": {"question": number},
                "expected_outputs": {"answer": number},
                "actual_outputs": {"answer": 0},
                "evaluation_scores": [
                    {"key": "correct", "score": number == 0, "feedback_source": {"type": "model"}}
                ],
                "run_name": "tool",
                "run_metadata": {"attempt": number},
                **times,
            }
            for number, row_id in enumerate(ROWS)
        ],
        **fields,
    }


@pytest.fixture
def upload(api):
    def send(**fields):
        response = api.post("/datasets/upload-experiment", upload_body(**fields))
        assert response.status_code == 200, response.content
        return response.json()

    return send


def count_rows(workspace):
    runs = sum(
        len(run_store.query(workspace.pk, RunQuery(project_ids=[project.pk]), limit=100).runs)
        for project in Project.objects.for_workspace(workspace)
    )
    models = (Dataset, ExampleRevision, Feedback)
    return [model.objects.for_workspace(workspace).count() for model in models] + [runs]


def test_an_upload_stores_dataset_examples_runs_and_scores(upload, api, workspace):
    result = upload()

    dataset, experiment = result["dataset"], result["experiment"]
    assert (dataset["name"], dataset["description"]) == ("shelf", "books")
    assert (dataset["externally_managed"], dataset["example_count"]) == (True, 2)
    assert dataset["session_count"] == 1
    assert experiment["name"] == "external"
    assert experiment["description"] == "run by another tool"
    assert experiment["reference_dataset_id"] == dataset["id"]
    assert experiment["extra"]["metadata"]["model"] == "m"
    assert (experiment["run_count"], experiment["latency_p50"]) == (2, 2.0)
    assert experiment["feedback_stats"]["correct"]["avg"] == 0.5
    assert experiment["session_feedback_stats"]["f1"]["avg"] == 0.75
    body = {"session_ids": [experiment["id"]]}
    rows = api.post(f"/datasets/{dataset['id']}/runs", body).json()
    by_question = {row["inputs"]["question"]: row for row in rows}
    assert by_question.keys() == {0, 1}
    row = by_question[1]
    assert row["outputs"] == {"answer": 1}
    (run,) = row["runs"]
    assert (run["name"], run["outputs"], run["status"]) == ("tool", {"answer": 0}, "success")
    assert run["extra"]["metadata"] == {"attempt": 1}
    assert run["start_time"] == "2026-11-01T10:00:01Z"
    assert (
        run["feedback_stats"]["correct"] | {"n": 1, "avg": 0, "sources": ["model"]}
        == (run["feedback_stats"]["correct"])
    )
    assert count_rows(workspace) == [1, 2, 3, 2]


def test_a_second_upload_extends_the_dataset_and_changes_rows_that_differ(upload, workspace):
    first = upload()
    results = upload_body()["results"]
    results[1]["expected_outputs"] = {"answer": "new"}
    results.append(results[0] | {"row_id": str(uuid4()), "inputs": {"question": 2}})

    second = upload(
        experiment_name="again", dataset_id=first["dataset"]["id"], dataset_name=None,
        results=results,
    )  # fmt: skip

    assert second["dataset"]["id"] == first["dataset"]["id"]
    assert second["dataset"]["example_count"] == 3
    current = ExampleRevision.objects.for_workspace(workspace).current()
    outputs = {row.inputs["question"]: row.outputs for row in current}
    assert outputs == {0: {"answer": 0}, 1: {"answer": "new"}, 2: {"answer": 0}}
    assert ExampleRevision.objects.for_workspace(workspace).count() == 4
    assert second["experiment"]["test_run_number"] == 2


def test_repeated_rows_are_repetitions_of_one_example(upload):
    results = upload_body()["results"][:1] * 3

    result = upload(results=results)

    assert result["dataset"]["example_count"] == 1
    assert result["experiment"]["run_count"] == 3


def test_a_dataset_can_be_named_by_an_external_id_alone(upload):
    dataset_id = str(uuid4())

    result = upload(dataset_id=dataset_id, dataset_name=None, results=[])

    assert result["dataset"]["id"] == dataset_id
    assert result["dataset"]["name"] == f"uploaded-{dataset_id}"


def test_a_failed_run_has_its_error(upload, api):
    results = upload_body()["results"][:1]
    del results[0]["actual_outputs"]
    results[0]["error"] = "it broke"

    result = upload(results=results)

    assert result["experiment"]["error_rate"] == 1
    body = {"session_ids": [result["experiment"]["id"]]}
    (row,) = api.post(f"/datasets/{result['dataset']['id']}/runs", body).json()
    assert (row["runs"][0]["error"], row["runs"][0]["outputs"]) == ("it broke", None)


def row_with(**fields):
    return {"results": [upload_body()["results"][0] | fields]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"dataset_name": None}, (422, "invalid")),
        ({"experiment_name": " "}, (422, "invalid")),
        ({"experiment_end_time": "2026-11-01T09:00:00Z"}, (422, "invalid")),
        ({"experiment_start_time": "yesterday"}, (422, "invalid")),
        ({"surprise": 1}, (422, "invalid")),
        ({"dataset_name": "own"}, (409, "dataset_not_external")),
        ({"experiment_name": "taken"}, (409, "project_name_taken")),
        (row_with(end_time="2026-11-01T10:02:00Z"), (422, "invalid")),
        (row_with(end_time="2026-11-01T10:00:00Z"), (422, "invalid")),
        (row_with(inputs=[1]), (422, "invalid")),
        (row_with(row_id="one"), (422, "invalid")),
        (row_with(evaluation_scores=[{"key": ""}]), (422, "invalid")),
    ],
)
def test_an_invalid_upload_stores_nothing(api, workspace, fields, expected):
    make_dataset(workspace, name="own")
    Project(workspace=workspace, name="taken").save()
    before = count_rows(workspace)

    response = api.post("/datasets/upload-experiment", upload_body(**fields))

    assert (response.status_code, response.json()["code"]) == expected, response.content
    assert count_rows(workspace) == before
    assert Project.objects.for_workspace(workspace).filter(name="external").count() == 0


def test_rows_with_one_id_must_have_the_same_content(api, workspace):
    results = upload_body()["results"]
    results[1]["row_id"] = results[0]["row_id"]

    response = api.post("/datasets/upload-experiment", upload_body(results=results))

    assert response.status_code == 422
    assert "row_id" in response.json()["detail"]
    assert Dataset.objects.for_workspace(workspace).count() == 0


def test_an_upload_requires_a_key_that_writes(make_api, workspace):
    statuses = [
        make_api(workspace, scope).post("/datasets/upload-experiment", upload_body()).status_code
        for scope in ("read", "ingest", "write")
    ]

    assert statuses == [403, 403, 200]


def test_the_same_rows_can_be_uploaded_to_two_datasets(upload):
    first = upload()
    second = upload(experiment_name="other", dataset_name="other shelf")

    assert first["dataset"]["id"] != second["dataset"]["id"]
    assert second["dataset"]["example_count"] == 2
