"""Formulas: scores computed from other scores."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.feedback.models import Feedback, FeedbackFormula
from apps.feedback.services import attach_to_runs, formulas, score_stats
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.models import Project
from tests.factories.tracing import ProjectFactory, ingest, stored_run, wire_run

URL = "/feedback/formulas"
PARTS = [
    {"part_type": "weighted_key", "key": "a", "weight": 3},
    {"part_type": "weighted_key", "key": "b", "weight": 1},
]


@pytest.fixture
def run_id(workspace):
    return str(stored_run(workspace, session_name="shop"))


@pytest.fixture
def project(workspace, run_id):
    return Project.objects.for_workspace(workspace).get(name="shop")


@pytest.fixture
def formula(api, project):
    body = {
        "session_id": str(project.pk),
        "feedback_key": "total",
        "aggregation_type": "avg",
        "formula_parts": PARTS,
    }
    return api.post(URL, body).json()


def create_feedback(api, run_id, key, score, **fields):
    return api.post("/feedback", {"key": key, "run_id": run_id, "score": score, **fields}).json()


def total_scores(workspace):
    rows = Feedback.objects.for_workspace(workspace).filter(key="total")
    return [row.score for row in rows.order_by("run_id")]


def test_a_formula_is_created_read_changed_and_deleted(api, workspace, project, formula):
    url = f"{URL}/{formula['id']}"
    assert api.get(url).json() == formula
    assert api.get(URL, session_id=str(project.pk)).json() == [formula]
    assert api.get(URL, dataset_id=str(uuid4())).json() == []
    body = {"feedback_key": "sum", "aggregation_type": "sum", "formula_parts": PARTS[:1]}

    changed = api.put(url, body).json()

    assert (changed["feedback_key"], changed["aggregation_type"]) == ("sum", "sum")
    assert changed["session_id"] == str(project.pk)
    assert changed["formula_parts"] == [{**PARTS[0], "weight": 3.0}]
    assert api.delete(url).status_code == 204
    assert api.get(url).status_code == 404


def test_scores_are_computed_when_all_parts_exist_and_are_updated(api, workspace, run_id, formula):
    first = create_feedback(api, run_id, "a", 1)
    assert total_scores(workspace) == []

    second = create_feedback(api, run_id, "b", 0)
    assert total_scores(workspace) == [0.75]

    api.patch(f"/feedback/{second['id']}", {"score": 1})
    assert total_scores(workspace) == [1.0]

    create_feedback(api, run_id, "a", 0)  # several scores of one key are averaged
    assert total_scores(workspace) == [0.625]

    api.delete(f"/feedback/{second['id']}")
    assert total_scores(workspace) == []
    assert api.get(f"/feedback/{first['id']}").status_code == 200


def test_computed_feedback_is_listed_but_cannot_be_changed(
    api, workspace, run_id, project, formula
):
    create_feedback(api, run_id, "a", 1)
    create_feedback(api, run_id, "b", 1)

    (total,) = api.get("/feedback", run=run_id, key="total").json()
    by_run = score_stats.by_run(workspace.pk, [run_id])

    assert (total["score"], total["trace_id"], total["is_root"]) == (1.0, run_id, True)
    assert total["feedback_source"]["type"] == "__ls_composite_feedback"
    (run_stats,) = by_run.values()
    assert run_stats["total"]["avg"] == 1.0
    assert api.patch(f"/feedback/{total['id']}", {"score": 0}).status_code == 409
    assert api.delete(f"/feedback/{total['id']}").status_code == 409


def test_a_formula_is_computed_on_project_feedback(api, workspace, project, formula):
    for key, score in (("a", 1), ("b", 0)):
        api.post("/feedback", {"key": key, "session_id": str(project.pk), "score": score})

    by_project = score_stats.by_project(workspace.pk, [project.pk])

    assert by_project[project.pk]["total"]["avg"] == 0.75


def test_formula_is_computed_when_the_run_of_its_parts_arrives(api, workspace, formula):
    run = wire_run(session_name="shop")
    create_feedback(api, run["id"], "a", 1)
    create_feedback(api, run["id"], "b", 1)
    attach_to_runs.attach_pending()
    assert total_scores(workspace) == []

    ingest(workspace, run)
    process_all()

    assert total_scores(workspace) == [1.0]


def test_a_formula_of_a_dataset_applies_to_its_experiments(api, workspace):
    dataset_id = uuid4()
    ProjectFactory(workspace=workspace, name="experiment", reference_dataset_id=dataset_id)
    run_id = str(stored_run(workspace, session_name="experiment"))
    other_run = str(stored_run(workspace, session_name="plain"))
    body = {"feedback_key": "total", "aggregation_type": "sum", "formula_parts": PARTS}
    api.post(URL, body | {"dataset_id": str(dataset_id)})

    for scored_run in (run_id, other_run):
        create_feedback(api, scored_run, "a", 1)
        create_feedback(api, scored_run, "b", 1)

    assert total_scores(workspace) == [4.0]


def test_new_or_changed_formula_is_computed_on_existing_feedback(api, workspace, run_id, project):
    other_run = str(stored_run(workspace, session_name="shop"))
    for scored_run in (run_id, other_run):
        create_feedback(api, scored_run, "a", 1)
    create_feedback(api, run_id, "b", 1)
    body = {"feedback_key": "total", "aggregation_type": "sum", "formula_parts": PARTS}
    created = api.post(URL, body | {"session_id": str(project.pk)}).json()

    formulas.compute_stale()
    assert total_scores(workspace) == [4.0]

    api.put(f"{URL}/{created['id']}", body | {"formula_parts": PARTS[:1]})
    formulas.compute_stale()
    assert total_scores(workspace) == [3.0, 3.0]

    api.put(f"{URL}/{created['id']}", body | {"formula_parts": PARTS[1:]})
    formulas.compute_stale()
    formulas.compute_stale()  # computing twice changes nothing
    assert total_scores(workspace) == [1.0]

    api.delete(f"{URL}/{created['id']}")
    assert total_scores(workspace) == []
    assert Feedback.objects.for_workspace(workspace).count() == 3


def test_formula_on_a_project_of_another_workspace_is_rejected(make_api, other_workspace, project):
    body = {"feedback_key": "total", "aggregation_type": "sum", "formula_parts": PARTS}

    response = make_api(other_workspace).post(URL, body | {"session_id": str(project.pk)})

    assert response.status_code == 404
    assert not FeedbackFormula.unscoped.exists()


def test_second_formula_for_a_key_is_rejected(api, project, formula):
    body = {"feedback_key": "total", "aggregation_type": "sum", "formula_parts": PARTS}

    assert api.post(URL, body | {"session_id": str(project.pk)}).status_code == 409


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": None},
        {"dataset_id": str(uuid4())},
        {"aggregation_type": "median"},
        {"formula_parts": []},
        {"formula_parts": [PARTS[0], PARTS[0]]},
        {"formula_parts": [PARTS[0] | {"key": "total"}]},
        {"formula_parts": [PARTS[0] | {"weight": "x"}]},
        {"feedback_key": ""},
    ],
)
def test_invalid_formula_is_rejected(api, project, change):
    body = {
        "session_id": str(project.pk),
        "feedback_key": "total",
        "aggregation_type": "avg",
        "formula_parts": PARTS,
    }

    assert api.post(URL, body | change).status_code == 422
