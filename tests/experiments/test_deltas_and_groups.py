"""Improved and regressed examples, and results by metadata."""

from __future__ import annotations

import pytest

from apps.datasets.services.examples import create_examples
from apps.trace_store import run_store
from apps.trace_store.postgres.postprocess.processor import process_all
from tests.factories.datasets import new_example


@pytest.fixture
def delta(api, dataset):
    def read(baseline, *others, key="correct", **body):
        body = {
            "baseline_session_id": baseline.id,
            "comparison_session_ids": [item.id for item in others],
            "feedback_key": key,
            **body,
        }
        response = api.post(f"/datasets/{dataset.pk}/runs/delta", body)
        assert response.status_code == 200, response.content
        return response.json()["feedback_deltas"]

    return read


def test_examples_improve_or_regress_by_the_average_of_their_repetitions(
    delta, make_experiment, examples, score
):
    base = make_experiment("base", *examples)
    one = make_experiment("one", *examples, examples[0])
    two = make_experiment("two", *examples[:2])
    for example_id in examples:
        score(base.runs[example_id][0], "correct", 0.5)
    for run_id, value in zip(one.runs[examples[0]], (0, 0.9), strict=True):
        score(run_id, "correct", value)
    score(one.runs[examples[1]][0], "correct", 1)
    score(one.runs[examples[2]][0], "correct", 0.5)
    score(two.runs[examples[0]][0], "correct", 0.6)

    deltas = delta(base, one, two)

    first, second, _ = map(str, examples)
    assert deltas == {
        one.id: {"improved_examples": [second], "regressed_examples": [first]},
        two.id: {"improved_examples": [first], "regressed_examples": []},
    }
    assert delta(base, one, limit=1)[one.id] == {
        "improved_examples": [],
        "regressed_examples": [first],
    }
    assert delta(base, one, offset=1)[one.id]["improved_examples"] == [second]
    named = 'and(eq(feedback_key, "correct"), eq(feedback_score, 1))'
    assert delta(base, one, filters={one.id: [named]})[one.id]["regressed_examples"] == []


def test_a_lower_score_is_an_improvement_if_the_config_says_so(
    api, delta, make_experiment, examples, score
):
    config = {"feedback_config": {"type": "continuous"}, "is_lower_score_better": True}
    api.post("/feedback-configs", {"feedback_key": "cost", **config})
    base, one = make_experiment("base", *examples), make_experiment("one", *examples)
    score(base.runs[examples[0]][0], "cost", 2)
    score(one.runs[examples[0]][0], "cost", 1)

    assert delta(base, one, key="cost") == {
        one.id: {"improved_examples": [str(examples[0])], "regressed_examples": []}
    }


def test_an_experiment_is_not_compared_with_itself(api, dataset, make_experiment, examples):
    one = make_experiment("one", *examples)

    response = api.post(
        f"/datasets/{dataset.pk}/runs/delta",
        {
            "baseline_session_id": one.id,
            "comparison_session_ids": [one.id],
            "feedback_key": "correct",
        },
    )

    assert response.status_code == 422


def group(api, dataset, *experiments, **body):
    body = {"session_ids": [item.id for item in experiments], **body}
    response = api.post(f"/datasets/{dataset.pk}/group/runs", body)
    assert response.status_code == 200, response.content
    return response.json()["groups"]


def test_results_are_grouped_by_metadata_of_the_runs(
    api, dataset, make_experiment, examples, score
):
    one, two = make_experiment("one"), make_experiment("two")
    small, large = ({"metadata": {"model": name}} for name in ("small", "large"))
    for example_id in examples:
        one.add_run(example_id, extra=small)
    two.add_run(examples[0], extra=small)
    two.add_run(examples[1], extra=large, error="failed")
    process_all()
    run_store.rebuild_rollups()
    score(one.runs[examples[0]][0], "correct", 1)
    score(two.runs[examples[0]][0], "correct", 0)

    groups = group(api, dataset, one, two, group_by="run_metadata", metadata_key="model")

    assert [(item["group_key"], item["count"]) for item in groups] == [("small", 4), ("large", 1)]
    first, second = groups
    assert first["filter"] == (
        'and(eq(is_root, true), and(eq(metadata_key, "model"), eq(metadata_value, "small")))'
    )
    assert first["example_count"] == 1
    assert [item["id"] for item in first["examples"]] == [str(examples[0])]
    assert len(first["examples"][0]["runs"]) == 2
    assert (first["error_rate"], first["latency_p50"]) == (0, 1.0)
    assert first["feedback_stats"]["correct"]["avg"] == 0.5
    assert first["min_start_time"] is not None
    sessions = first["sessions"]
    assert [(item["id"], item["name"]) for item in sessions] == [(one.id, "one"), (two.id, "two")]
    assert [item["run_count"] for item in sessions] == [3, 1]
    assert [item["example_count"] for item in sessions] == [3, 1]
    assert [item["feedback_stats"]["correct"]["avg"] for item in sessions] == [1, 0]
    assert (second["error_rate"], second["examples"], second["example_count"]) == (1, [], 0)
    page = group(
        api, dataset, one, two, group_by="run_metadata", metadata_key="model", offset=1, limit=1
    )
    assert [item["group_key"] for item in page] == ["large"]


def test_results_are_grouped_by_metadata_of_the_examples(
    api, dataset, workspace, make_experiment, examples
):
    new = [new_example({"question": n}, metadata={"level": n % 2}) for n in range(3)]
    written = create_examples(dataset=dataset, examples=new)
    one = make_experiment("one", *examples, *written.example_ids)

    groups = group(
        api, dataset, one, group_by="example_metadata", metadata_key="level", preview=True
    )

    assert [(item["group_key"], item["count"]) for item in groups] == [(0, 2), (1, 1)]
    ids = [str(written.example_ids[index]) for index in (0, 2)]
    assert [item["id"] for item in groups[0]["examples"]] == ids
    assert "outputs" not in groups[0]["examples"][0]["runs"][0]


def test_filters_apply_before_grouping(api, dataset, make_experiment, examples):
    one = make_experiment("one")
    for example_id, name in zip(examples, ("a", "a", "b"), strict=True):
        one.add_run(example_id, name=name, extra={"metadata": {"model": "m"}})
    process_all()

    (only,) = group(
        api,
        dataset,
        one,
        group_by="run_metadata",
        metadata_key="model",
        filters={one.id: ['eq(name, "a")']},
        per_group_limit=1,
    )

    assert (only["count"], only["example_count"], len(only["examples"])) == (2, 2, 1)


def test_experiments_are_grouped_by_their_metadata(api, dataset, make_experiment, examples, score):
    for name, model in (("one", "m"), ("two", "m"), ("three", "n"), ("four", None)):
        metadata = {"metadata": {"model": model}} if model else {}
        experiment = make_experiment(name, *examples[:2], extra=metadata)
        score(experiment.runs[examples[0]][0], "correct", len(name))
        api.post("/feedback", {"key": "total", "session_id": experiment.id, "score": 1})

    response = api.post(
        f"/datasets/{dataset.pk}/experiments/grouped",
        {"metadata_keys": ["model"], "experiment_limit": 1},
    )

    assert response.status_code == 200, response.content
    groups = response.json()["groups"]
    assert groups[0]["group"] == {"model": "m"}
    assert groups[0]["count"] == 2
    assert [item["name"] for item in groups[0]["experiments"]] == ["two"]
    assert groups[0]["run_count"] == 4
    assert groups[0]["latency_p50"] == 1.0
    assert groups[0]["feedback_stats"]["correct"]["n"] == 2
    assert groups[0]["session_feedback_stats"]["total"]["n"] == 2
    assert groups[0]["experiments"][0]["feedback_stats"]["correct"]["avg"] == 3
    assert {item["group"]["model"] for item in groups[1:]} == {"n", None}
    for item in groups:
        listed = api.get("/sessions", reference_dataset=str(dataset.pk), filter=item["filter"])
        assert len(listed.json()) == item["count"], item["filter"]
    named = api.post(
        f"/datasets/{dataset.pk}/experiments/grouped",
        {"metadata_keys": ["model"], "name_contains": "thr"},
    )
    assert [item["count"] for item in named.json()["groups"]] == [1]
