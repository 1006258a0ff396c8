"""The comparison of experiments: examples with the runs of several experiments."""

from __future__ import annotations

import csv
import io
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.datasets.services.examples import delete_examples
from apps.datasets.services.hard_deletion import erase_examples
from apps.tracing.services import create_project
from tests.factories.datasets import make_dataset


def questions(rows):
    return [row["inputs"]["question"] for row in rows]


@pytest.fixture
def read(api, dataset):
    """Return a function that reads a page of the results of experiments."""

    def read_page(*experiments, **body):
        body = {"session_ids": [item.id for item in experiments], **body}
        response = api.post(f"/datasets/{dataset.pk}/runs", body)
        assert response.status_code == 200, response.content
        return response.json()

    return read_page


@pytest.fixture
def read_v2(api, dataset):
    def read_page(*experiments, **body):
        body = {"experiment_ids": [item.id for item in experiments], **body}
        response = api.post(f"/v2/datasets/{dataset.pk}/experiment-runs", body)
        assert response.status_code == 200, response.content
        return response.json()

    return read_page


def test_each_example_has_the_runs_of_all_experiments_and_repetitions(
    read, make_experiment, examples, dataset, score
):
    one = make_experiment("one", *examples, *examples)
    two = make_experiment("two", *examples[:2])
    score(one.runs[examples[0]][1], "correct", 1)

    rows = read(one, two)

    assert questions(rows) == [0, 1, 2]
    assert [row["id"] for row in rows] == [str(item) for item in examples]
    assert [len(row["runs"]) for row in rows] == [3, 3, 2]
    first = rows[0]
    assert (first["dataset_id"], first["outputs"]) == (str(dataset.pk), None)
    assert first["name"] == f"#{str(examples[0])[-4:]} @ questions"
    assert [run["session_id"] for run in first["runs"]] == [one.id, one.id, two.id]
    run = first["runs"][1]
    assert run["outputs"] == {"answer": "one"}
    assert run["inputs"] == {"question": "why?"}
    assert run["reference_example_id"] == str(examples[0])
    assert run["reference_dataset_id"] == str(dataset.pk)
    assert run["feedback_stats"]["correct"]["avg"] == 1
    assert first["runs"][0]["feedback_stats"] == {}


def test_pages_end_with_a_short_page(read, make_experiment, examples):
    one = make_experiment("one", *examples)

    assert questions(read(one, limit=2)) == [0, 1]
    assert questions(read(one, limit=2, offset=2)) == [2]
    assert read(one, limit=2, offset=4) == []


def test_a_preview_has_previews_in_place_of_payloads(read, make_experiment, examples):
    one = make_experiment("one", examples[0])

    (run,) = read(one, preview=True)[0]["runs"]

    assert "outputs" not in run
    assert run["outputs_preview"] == "one"


def test_filters_keep_examples_with_a_matching_run_in_each_filtered_experiment(
    read, make_experiment, examples, score
):
    one, two = make_experiment("one", *examples), make_experiment("two", *examples)
    for number, example_id in enumerate(examples):
        score(one.runs[example_id][0], "correct", number)
    one.add_run(examples[0], name="other")
    low = 'and(eq(feedback_key, "correct"), lt(feedback_score, 2))'
    named = 'eq(name, "other")'

    assert questions(read(one, two, filters={one.id: [low]})) == [0, 1]
    assert questions(read(one, two, filters={one.id: [low], two.id: [named]})) == []
    rows = read(one, two, filters={one.id: [named], two.id: []})
    assert (questions(rows), len(rows[0]["runs"])) == ([0], 3)
    assert questions(read(one, example_ids=[str(examples[2]), str(uuid4())])) == [2]


def test_examples_are_sorted_by_the_average_score_in_the_first_experiment(
    read, make_experiment, examples, score
):
    one, two = make_experiment("one", *examples, examples[1]), make_experiment("two", *examples)
    score(one.runs[examples[0]][0], "correct", 0.5)
    score(one.runs[examples[1]][0], "correct", 1)
    score(one.runs[examples[1]][1], "correct", 0.6)
    score(two.runs[examples[2]][0], "correct", 9)

    def sort(**fields):
        return questions(read(one, two, sort_params={"sort_by": "feedback.correct", **fields}))

    assert sort() == [1, 0, 2]
    assert sort(sort_order="ASC") == [0, 1, 2]
    rows = read(one, sort_params={"sort_by": "correct"}, offset=1, limit=1)
    assert questions(rows) == [0]


def test_scores_of_a_comparison_count_if_it_is_named(api, read, make_experiment, examples, score):
    one, two = make_experiment("one", *examples), make_experiment("two", *examples)
    body = {"experiment_ids": [one.id, two.id]}
    comparison = api.post("/datasets/comparative", body).json()["id"]
    for experiment, value in ((one, 0), (two, 1)):
        score(
            experiment.runs[examples[0]][0], "preferred", value,
            comparative_experiment_id=comparison,
        )  # fmt: skip

    plain = read(one, two)[0]["runs"]
    named = read(one, two, comparative_experiment_id=comparison)[0]["runs"]

    assert [run["feedback_stats"] for run in plain] == [{}, {}]
    assert [run["feedback_stats"]["preferred"]["avg"] for run in named] == [0, 1]
    response = api.post(f"/datasets/{examples[0]}/runs", {"session_ids": [one.id]})
    assert response.json()["code"] == "dataset_not_found"


def test_examples_have_the_content_of_the_version_that_the_experiment_ran_on(
    api, read, make_experiment, examples, dataset
):
    version = dataset.latest_version_at.isoformat()
    one = make_experiment("one", *examples, extra={"metadata": {"dataset_version": version}})
    two = make_experiment("two", *examples)
    api.patch(f"/examples/{examples[0]}", {"inputs": {"question": "changed"}})
    delete_examples(workspace_id=dataset.workspace_id, example_ids=[examples[1]])

    assert questions(read(one)) == [0, 1, 2]
    assert questions(read(two)) == ["changed", 1, 2]


def test_runs_of_an_erased_example_stay_in_the_results(read, make_experiment, examples, workspace):
    one = make_experiment("one", *examples)
    erase_examples(workspace_id=workspace.pk, example_ids=[examples[1]])

    rows = read(one)

    assert [row["inputs"] for row in rows] == [{"question": 0}, {}, {"question": 2}]
    assert (rows[1]["id"], len(rows[1]["runs"])) == (str(examples[1]), 1)
    assert rows[1]["created_at"] is not None


@pytest.mark.usefixtures("unexpired_caches")
def test_the_number_of_queries_does_not_depend_on_the_size_of_the_page(
    read, make_experiment, examples
):
    one, two = make_experiment("one", *examples), make_experiment("two", *examples)

    def count(**body):
        with CaptureQueriesContext(connection) as queries:
            read(one, two, **body)
        return len(queries)

    count()
    assert count(limit=1) == count(limit=3)


def test_a_table_has_a_line_for_each_run(api, make_experiment, examples, dataset, score):
    one = make_experiment("=one", *examples)
    one.add_run(examples[0], error="it failed", outputs=None)
    score(one.runs[examples[0]][0], "correct", 0.5)

    def lines(**body):
        response = api.post(
            f"/datasets/{dataset.pk}/runs?format=csv", {"session_ids": [one.id], **body}
        )
        assert response["Content-Type"] == "text/csv"
        assert 'filename="questions.csv"' in response["Content-Disposition"]
        content = b"".join(response.streaming_content).decode()
        return list(csv.DictReader(io.StringIO(content)))

    rows = lines()

    assert len(rows) == 4
    assert rows[0] == {
        "example_id": str(examples[0]),
        "inputs": '{"question":0}',
        "reference_outputs": "",
        "experiment": "'=one",
        "run_id": str(one.runs[examples[0]][0]),
        "status": "success",
        "outputs": '{"answer":"=one"}',
        "error": "",
        "start_time": one.project.start_time.isoformat(),
        "latency_seconds": "1.0",
        "total_tokens": "",
        "total_cost": "",
        "feedback.correct": "0.5",
    }
    assert (rows[1]["status"], rows[1]["error"], rows[1]["outputs"]) == ("error", "it failed", "")
    assert [row["example_id"] for row in lines(limit=1, offset=1)] == [str(examples[1])]


def test_the_v2_page_has_only_the_selected_fields_and_a_cursor(
    read_v2, make_experiment, examples, dataset
):
    one, two = make_experiment("one", *examples), make_experiment("two", examples[0])

    page = read_v2(one, two, page_size=2)

    assert [item["inputs"]["question"] for item in page["items"]] == [0, 1]
    runs = page["items"][0]["runs"]
    assert runs == [{"id": str(item.runs[examples[0]][0])} for item in (one, two)]
    rest = read_v2(one, two, page_size=2, cursor=page["next_cursor"])
    assert [item["inputs"]["question"] for item in rest["items"]] == [2]
    assert rest["next_cursor"] is None
    selected = read_v2(one, selects=["OUTPUTS", "FEEDBACK_STATS"], example_ids=[str(examples[1])])
    assert selected["items"][0]["runs"] == [
        {
            "id": str(one.runs[examples[1]][0]),
            "outputs": {"answer": "one"},
            "feedback_stats": {},
        }
    ]


def test_the_v2_page_is_sorted_by_score(read_v2, make_experiment, examples, score):
    one = make_experiment("one", *examples)
    for value, example_id in zip((1, 3, 2), examples, strict=True):
        score(one.runs[example_id][0], "correct", value)

    first = read_v2(one, sort={"by": "feedback.correct", "order": "DESC"}, page_size=2)
    second = read_v2(
        one, sort={"by": "correct", "order": "DESC"}, page_size=2, cursor=first["next_cursor"]
    )

    assert [item["inputs"]["question"] for item in first["items"]] == [1, 2]
    assert [item["inputs"]["question"] for item in second["items"]] == [0]


def test_the_v2_page_is_streamed_as_patches(api, make_experiment, examples, dataset):
    one = make_experiment("one", examples[0])

    response = api.post(
        f"/v2/datasets/{dataset.pk}/experiment-runs",
        {"experiment_ids": [one.id]},
        headers={"Accept": "text/event-stream"},
    )

    assert response["Content-Type"].startswith("text/event-stream")
    assert str(examples[0]) in response.content.decode()


def test_unknown_experiments_and_invalid_selections_are_refused(
    api, make_experiment, examples, dataset, other_workspace
):
    one, two = make_experiment("one", *examples), make_experiment("two", *examples)
    other = make_dataset(dataset.workspace, name="other")
    foreign = create_project(
        workspace_id=other_workspace.pk, name="foreign", reference_dataset_id=dataset.pk
    )
    path = f"/datasets/{dataset.pk}/runs"

    def code(body, target=path):
        response = api.post(target, body)
        return response.status_code, response.json()["code"]

    ids = [one.id]
    assert code({"session_ids": [str(foreign.pk)]}) == (404, "experiment_not_found")
    assert code({"session_ids": ids}, f"/datasets/{other.pk}/runs") == (404, "experiment_not_found")
    assert code({"session_ids": ids}, f"/datasets/{uuid4()}/runs") == (404, "dataset_not_found")
    assert code({"session_ids": []}) == (422, "invalid")
    assert code({"session_ids": ids, "limit": 101}) == (422, "invalid")
    assert code({"session_ids": ids, "filters": {two.id: ["eq(name, 'a')"]}}) == (422, "invalid")
    assert code({"session_ids": ids, "filters": {one.id: ["eq("]}}) == (400, "filter_invalid")
    assert code({"session_ids": ids, "filters": {"one": []}}) == (422, "invalid")
    assert code({"session_ids": ids, "comparative_experiment_id": str(uuid4())}) == (
        404,
        "comparison_not_found",
    )
    assert code({"session_ids": ids, "include_annotator_detail": True}) == (422, "invalid")
    assert code({"session_ids": ids}, f"{path}?format=xml") == (422, "invalid")
    v2 = f"/v2/datasets/{dataset.pk}/experiment-runs"
    sort = {"by": "correct"}
    assert code({"experiment_ids": [one.id, two.id], "sort": sort}, v2) == (422, "invalid")
    assert code({"experiment_ids": ids, "cursor": "?"}, v2) == (400, "invalid_cursor")
    assert code({"experiment_ids": ids, "cursor": "?", "sort": sort}, v2) == (400, "invalid_cursor")


def test_results_require_the_permission(make_api, workspace, dataset, make_experiment, examples):
    one = make_experiment("one", *examples)

    statuses = [
        make_api(workspace, scope)
        .post(f"/datasets/{dataset.pk}/runs", {"session_ids": [one.id]})
        .status_code
        for scope in ("ingest", "read")
    ]

    assert statuses == [403, 200]
