"""An experiment of the platform is scored by the rules that were chosen when it was started."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from apps.core.errors import Invalid
from apps.evaluators.models import Evaluation
from apps.experiment_jobs.evaluator_choice import check_choice
from apps.experiment_jobs.forms import ExperimentJobForm
from apps.experiment_jobs.models import ExperimentJob
from tests.evaluators.conftest import add_run, create_rule
from tests.factories.evaluators import judge_setting, structured
from tests.playground.conftest import send

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]


@pytest.fixture
def rules(api, dataset):
    """Two enabled rules and a disabled one."""
    judge = [{"structured": structured("Is {output} right?")}]
    body = {"dataset_id": str(dataset.pk), "evaluators": judge}
    names = ("First", "Second", "Off")
    return [create_rule(api, **body, display_name=name, is_enabled=name != "Off") for name in names]


def test_only_chosen_rules_score_the_rows(workspace, dataset, experiment, rules):
    job = ExperimentJob(
        workspace=workspace,
        dataset=dataset,
        experiment=experiment,
        version_at=dataset.latest_version_at,
        evaluator_rule_ids=[rules[0]["id"]],
        repetitions=1,
        concurrency=1,
    )
    job.save()

    add_run(workspace, experiment)
    assert [str(row.rule_id) for row in Evaluation.unscoped.all()] == [rules[0]["id"]]

    job.evaluator_rule_ids = []
    job.save()
    add_run(workspace, experiment)
    assert Evaluation.unscoped.count() == 1
    job.evaluator_rule_ids = None
    job.save()
    add_run(workspace, experiment)
    assert Evaluation.unscoped.count() == 3


def test_form_offers_the_enabled_rules_and_checks_all(dataset, rules):
    form = ExperimentJobForm(dataset)

    names = [label for _, label in form.fields["evaluators"].choices]
    assert names == ["Second", "First"]
    assert form.initial["evaluators"] == [rules[1]["id"], rules[0]["id"]]


def test_columns_of_the_playground_take_the_choice(page, workspace, dataset, rules):
    base = f"/o/{workspace.pk}/playground"
    listed = page.get(f"{base}/datasets/{dataset.pk}").json()["evaluators"]
    assert listed == [{"id": rule["id"], "name": rule["display_name"]} for rule in rules[1::-1]]
    column = {"letter": "A", "setting": msgspec.to_builtins(judge_setting("{question}"))}
    body = {"dataset_id": str(dataset.pk), "columns": [column]}

    created = send(page, f"{base}/experiments", body | {"evaluator_rule_ids": [rules[0]["id"]]})

    assert created.status_code == 201, created.content
    job = ExperimentJob.unscoped.get()
    assert [str(rule_id) for rule_id in job.evaluator_rule_ids] == [rules[0]["id"]]
    refused = send(page, f"{base}/experiments", body | {"evaluator_rule_ids": [rules[2]["id"]]})
    assert refused.status_code == 422


def test_rule_of_another_dataset_or_a_disabled_one_cannot_be_chosen(dataset, rules):
    chosen = [UUID(rules[0]["id"])]
    assert check_choice(dataset, chosen * 2) == chosen

    for rule_id in (rules[2]["id"], str(dataset.pk)):
        with pytest.raises(Invalid, match="no enabled rule"):
            check_choice(dataset, [UUID(rule_id)])
