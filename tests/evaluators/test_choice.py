"""An experiment of the platform is scored by the rules that were chosen when it was started."""

from __future__ import annotations

import pytest

from apps.evaluators.models import Evaluation
from apps.experiment_jobs.forms import ExperimentJobForm
from apps.experiment_jobs.models import ExperimentJob
from tests.evaluators.conftest import add_run, create_rule
from tests.factories.agent_server import AgentFactory
from tests.factories.evaluators import structured

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


def test_rule_of_another_dataset_or_a_disabled_one_cannot_be_chosen(api, workspace, dataset, rules):
    agent = AgentFactory(workspace=workspace)
    url = f"/datasets/{dataset.pk}/experiment-jobs"

    for rule_id in (rules[2]["id"], str(dataset.pk)):
        body = {"deployment_id": str(agent.pk), "evaluator_rule_ids": [rule_id]}
        response = api.post(url, body)
        assert response.status_code == 422, response.content
        assert "no enabled rule" in response.json()["detail"]
    assert not ExperimentJob.unscoped.exists()
