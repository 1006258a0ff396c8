"""Experiments are evaluated again: all rows, or those whose evaluation failed."""

from __future__ import annotations

import pytest

from apps.datasets.models import ExampleRevision
from apps.evaluators.models import Evaluation
from apps.evaluators.services import evaluations
from apps.evaluators.services.reruns import count_by_rule
from tests.evaluators.conftest import add_run, create_rule, evaluate, feedback_of, grade
from tests.factories.evaluators import structured
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]
JUDGE = structured("Is {output} right?")


@pytest.fixture
def rows(dataset, experiment):
    """Two finished rows of the experiment."""
    return [
        add_run(experiment.workspace, experiment, reference_example_id=str(row.example_id))
        for row in ExampleRevision.unscoped.filter(dataset=dataset)
    ]


def create(api, dataset, **fields):
    return create_rule(
        api, dataset_id=str(dataset.pk), evaluators=[{"structured": JUDGE}], **fields
    )


def run_again(api, experiment, **body):
    response = api.post(f"/runs/experiments/{experiment.pk}/evaluate", body)
    assert response.status_code == 202, response.content
    return response.json()["evaluation_count"]


def test_rule_of_later_is_applied_to_the_rows_that_there_are(
    api, dataset, experiment, rows, provider
):
    create(api, dataset)
    provider.answer = Reply(grade())
    assert evaluate() == 0

    assert run_again(api, experiment) == 2
    assert run_again(api, experiment) == 0  # they wait already
    assert evaluate() == 2

    assert [feedback_of(run_id)["correctness"].score for run_id in rows] == [1.0, 1.0]


def test_result_of_later_replaces_the_feedback(api, dataset, experiment, rows, provider):
    create(api, dataset)
    provider.answer = Reply(grade())
    run_again(api, experiment)
    evaluate()
    provider.answer = Reply(grade(correctness=False))

    assert run_again(api, experiment) == 2
    evaluate()

    assert [feedback_of(run_id)["correctness"].score for run_id in rows] == [0.0, 0.0]
    assert set(Evaluation.unscoped.values_list("attempt", "earlier_attempts")) == {(2, 1)}


def test_only_failed_evaluations_are_repeated(api, dataset, experiment, rows, provider):
    rule = create(api, dataset)
    answers = iter([Reply(grade()), Reply(status=400)])
    provider.answer = lambda _: next(answers)
    run_again(api, experiment)
    evaluate()
    [progress] = count_by_rule(experiment.workspace_id, [experiment.pk])
    assert (str(progress.rule_id), progress.name) == (rule["id"], "Correctness")
    assert (progress.finished_count, progress.open_count, progress.failed_count) == (2, 0, 1)
    provider.answer = Reply(grade())

    assert run_again(api, experiment, only_failed=True) == 1
    evaluate()

    assert len(provider.requests) == 3
    [progress] = count_by_rule(experiment.workspace_id, [experiment.pk])
    assert progress.failed_count == 0


def test_attempt_of_a_worker_from_before_is_stale(api, dataset, experiment, rows, provider):
    create(api, dataset)
    provider.answer = Reply(grade())
    run_again(api, experiment)
    [first, _] = evaluations.claim(10)
    Evaluation.unscoped.update(status="failed")
    run_again(api, experiment)

    claimed = evaluations.claim(10)

    assert {item.attempt for item in claimed} == {2}
    result = evaluations.CallExecution(first.call).result(error="late")
    assert evaluations.record_end(first, result) is False


@pytest.mark.usefixtures("rows")
def test_rules_are_chosen_and_checked(api, make_api, dataset, experiment, project):
    first, second = create(api, dataset), create(api, dataset, is_enabled=False)
    url = f"/runs/experiments/{experiment.pk}/evaluate"

    assert run_again(api, experiment) == 2
    assert run_again(api, experiment, rule_ids=[second["id"]]) == 2
    assert set(Evaluation.unscoped.values_list("rule_id", flat=True).distinct()) == {
        Evaluation.unscoped.filter(rule_id=rule["id"]).first().rule_id for rule in (first, second)
    }
    assert api.post(url, {"rule_ids": [str(dataset.pk)]}).status_code == 404
    assert api.post(url, {"evaluators": []}).status_code == 422
    assert api.post(f"/runs/experiments/{project.pk}/evaluate", {}).status_code == 404
    assert make_api(experiment.workspace, "read").post(url, {}).status_code == 403
