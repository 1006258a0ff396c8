"""Comparisons of experiments whose runs are ranked against each other."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.audit.models import Entry
from apps.feedback.models import Feedback
from apps.tracing.services import create_project, delete_project
from tests.factories.datasets import make_dataset


@pytest.fixture
def pair(make_experiment, examples):
    return make_experiment("one", *examples), make_experiment("two", *examples)


@pytest.fixture
def compare(api, pair):
    def create(**body):
        response = api.post(
            "/datasets/comparative", {"experiment_ids": [item.id for item in pair], **body}
        )
        assert response.status_code == 200, response.content
        return response.json()

    return create


@pytest.fixture
def rank(pair, examples, score):
    """Return a function that scores the two runs on the first example in a comparison."""

    def give(comparison_id, *values):
        for experiment, value in zip(pair, values, strict=True):
            score(
                experiment.runs[examples[0]][0],
                "preferred",
                value,
                comparative_experiment_id=comparison_id,
                feedback_group_id=str(uuid4()),
            )

    return give


def test_a_comparison_is_created_as_the_client_sends_it(compare, workspace, dataset):
    comparison_id = str(uuid4())

    comparison = compare(
        id=comparison_id,
        name="one vs. two",
        reference_dataset_id=str(dataset.pk),
        description=None,
        created_at="2026-11-02T03:04:05+00:00",
        extra={"metadata": {"judge": "x"}},
    )

    assert comparison == {
        "id": comparison_id,
        "tenant_id": str(workspace.pk),
        "name": "one vs. two",
        "description": None,
        "created_at": "2026-11-02T03:04:05Z",
        "modified_at": "2026-11-02T03:04:05Z",
        "reference_dataset_id": str(dataset.pk),
        "extra": {"metadata": {"judge": "x"}},
    }


def test_the_list_has_the_experiments_and_their_scores(api, compare, pair, rank, dataset):
    comparison = compare(name="first")
    compare(name="second")
    rank(comparison["id"], 0, 1)
    path = f"/datasets/{dataset.pk}/comparative"

    response = api.get(path, name="first")

    (listed,) = response.json()
    assert response["X-Pagination-Total"] == "1"
    assert listed["experiments_info"] == [
        {"id": item.id, "name": item.project.name} for item in pair
    ]
    stats = listed["feedback_stats"]["preferred"]
    assert (stats["n"], stats["avg"]) == (2, 0.5)
    assert {name: item["avg"] for name, item in stats["experiments"].items()} == {
        pair[0].id: 0,
        pair[1].id: 1,
    }
    assert [item["name"] for item in api.get(path).json()] == ["second", "first"]
    by_name = api.get(path, sort_by="name", sort_by_desc="false", limit=1, offset=1).json()
    assert [item["name"] for item in by_name] == ["second"]
    assert by_name[0]["feedback_stats"] == {}
    assert len(api.get(path, name_contains="IRS").json()) == 1
    assert len(api.get(path, id=comparison["id"]).json()) == 1


def test_a_deleted_experiment_leaves_the_comparison(api, compare, pair, dataset):
    compare()
    delete_project(project=pair[0].project)

    (listed,) = api.get(f"/datasets/{dataset.pk}/comparative").json()

    assert [item["name"] for item in listed["experiments_info"]] == ["two"]


def test_deletion_removes_the_scores_and_is_audited(api, compare, pair, rank, workspace):
    comparison = compare(name="gone")
    rank(comparison["id"], 0, 1)
    api.post("/feedback", {"key": "correct", "session_id": pair[0].id, "score": 1})

    response = api.delete(f"/datasets/comparative/{comparison['id']}")

    assert response.status_code == 200
    keys = Feedback.objects.for_workspace(workspace).values_list("key", flat=True)
    assert list(keys) == ["correct"]
    entry = Entry.objects.get(action="comparison.deleted")
    assert entry.before == {"name": "gone", "experiment_ids": [item.id for item in pair]}
    missing = api.delete(f"/datasets/comparative/{comparison['id']}")
    assert (missing.status_code, missing.json()["code"]) == (404, "comparison_not_found")


def test_invalid_comparisons_are_refused(api, make_api, compare, pair, other_workspace):
    workspace = pair[0].workspace
    other = make_dataset(workspace, name="other")
    foreign = create_project(
        workspace_id=other_workspace.pk, name="foreign", reference_dataset_id=uuid4()
    )
    comparison = compare()
    ids = [item.id for item in pair]

    def code(caller=api, **body):
        response = caller.post("/datasets/comparative", body)
        return response.status_code, response.json()["code"]

    assert code(experiment_ids=ids[:1]) == (422, "invalid")
    assert code(experiment_ids=[ids[0], ids[0]]) == (422, "invalid")
    assert code(experiment_ids=ids, surprise=1) == (422, "invalid")
    assert code(experiment_ids=ids, name="") == (422, "invalid")
    assert code(experiment_ids=[*ids, str(foreign.pk)]) == (404, "experiment_not_found")
    assert code(experiment_ids=[str(foreign.pk), *ids]) == (404, "experiment_not_found")
    assert code(experiment_ids=ids, reference_dataset_id=str(other.pk)) == (
        404,
        "experiment_not_found",
    )
    assert code(experiment_ids=ids, id=comparison["id"]) == (409, "comparison_id_taken")
    reader = make_api(workspace, "read")
    assert code(reader, experiment_ids=ids)[0] == 403
    assert reader.delete(f"/datasets/comparative/{comparison['id']}").status_code == 403
    foreigner = make_api(other_workspace)
    assert foreigner.delete(f"/datasets/comparative/{comparison['id']}").status_code == 404
