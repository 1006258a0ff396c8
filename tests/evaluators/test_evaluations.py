"""Runs are selected by rules and scored by judges, once, and with bounds."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from apps.datasets.models import ExampleRevision
from apps.evaluators.models import Evaluation, EvaluatorRule, EvaluatorSpend
from apps.evaluators.services import evaluations, leases, selection
from apps.feedback.models import Feedback
from apps.trace_store import Payload, RunQuery, run_store
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.models import Project
from tests.evaluators.conftest import (
    add_run,
    create_rule,
    evaluate,
    feedback_of,
    grade,
    only_evaluation,
)
from tests.factories.evaluators import SCHEMA, structured
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import end_fields, ingest, start_fields, wire_run
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]


@pytest.fixture
def rule(api, dataset):
    """Return a function that creates a rule of the dataset."""

    def create(**fields):
        judge = fields.pop("judge", structured())
        body = {"dataset_id": str(dataset.pk), "evaluators": [{"structured": judge}]} | fields
        return create_rule(api, **body)

    return create


@pytest.fixture
def example_id(dataset) -> UUID:
    rows = ExampleRevision.unscoped.filter(dataset=dataset)
    return next(row.example_id for row in rows if row.inputs == {"question": "Question 1"})


@pytest.fixture
def finish_row(experiment, example_id):
    """Return a function that stores a finished run of the example; returns its id."""

    def finish(**fields) -> UUID:
        return add_run(
            experiment.workspace, experiment, reference_example_id=str(example_id), **fields
        )

    return finish


def test_finished_row_is_scored_with_reasoning_and_the_judges_trace(
    experiment, example_id, rule, provider, finish_row
):
    workspace = experiment.workspace
    created = rule(judge=structured(variable_mapping={"output": "output.answer"}))
    provider.answer = Reply(grade(correctness=False, comment="It is wrong."))

    run_id = finish_row()
    assert evaluate() == 1

    [request] = provider.bodies
    assert request["messages"][-1]["content"] == 'Grade because against {"answer":"Answer 1"}.'
    feedback = feedback_of(run_id)["correctness"]
    assert (feedback.score, feedback.comment) == (0.0, "It is wrong.")
    assert (feedback.project_id, feedback.trace_id) == (experiment.pk, run_id)
    assert feedback.source["type"] == "model"
    metadata = feedback.source["metadata"]
    assert (metadata["rule_id"], metadata["evaluator_id"]) == (
        created["id"],
        created["evaluator_id"],
    )
    judge_run = run_store.get(workspace.pk, UUID(metadata["__run"]["run_id"]))
    assert Project.unscoped.get(pk=judge_run.row.project_id).name == "evaluators"
    assert (judge_run.row.name, judge_run.row.run_type) == ("Correctness", "llm")
    assert judge_run.row.metadata["target_run_id"] == str(run_id)
    assert judge_run.row.metadata["reference_example_id"] == str(example_id)
    assert judge_run.value(Payload.OUTPUTS)["choices"][0]["message"]["role"] == "assistant"
    assert only_evaluation().status == "succeeded"


def test_log_has_each_run_with_its_scores(api, rule, provider, finish_row):
    created = rule()
    answers = iter([Reply(grade()), Reply(status=400, error="No such model.")])
    provider.answer = lambda _: next(answers)
    first = finish_row()
    evaluate()
    second = finish_row()
    evaluate()

    logs = api.get(f"/runs/rules/{created['id']}/logs").json()

    assert [(entry["run_id"], entry["status"]) for entry in logs] == [
        (str(second), "failed"),
        (str(first), "succeeded"),
    ]
    assert "No such model." in logs[0]["error"]
    assert logs[0]["feedback"] is None
    assert logs[1]["feedback"] == [{"key": "correctness", "score": 1.0, "comment": "It is right."}]
    assert logs[1]["cost"] == pytest.approx((60 * 0.4 + 40 * 0.1 + 20 * 1.6) / 1e6)
    failed = api.get(f"/runs/rules/{created['id']}/logs", status="failed").json()
    assert [entry["run_id"] for entry in failed] == [str(second)]
    applied = api.get(f"/runs/rules/{created['id']}/last_applied").json()
    assert applied["last_applied_at"] == logs[0]["end_time"]
    listed = api.get(f"/runs/rules/{created['id']}").json()
    assert (listed["trace_count"], listed["spend_usd"]) == (
        2,
        pytest.approx(logs[1]["cost"]),
    )


def test_run_is_evaluated_once_however_often_it_changes(
    workspace, experiment, example_id, rule, provider
):
    rule()
    provider.answer = Reply(grade())
    run = wire_run(session_name=experiment.name, reference_example_id=str(example_id))
    ingest(workspace, start_fields(run))
    process_all()
    assert not Evaluation.unscoped.exists()

    for _ in range(2):
        ingest(workspace, run | end_fields(run))
        process_all()
        evaluate()

    assert len(provider.requests) == 1
    assert Feedback.unscoped.count() == 1


def test_reply_of_another_shape_is_a_failure_that_is_traced(workspace, rule, provider, finish_row):
    rule()
    provider.answer = Reply('{"correctness": "perhaps"}')
    run_id = finish_row()

    evaluate()

    evaluation = only_evaluation()
    assert evaluation.status == "failed"
    assert evaluation.error.startswith("The model's reply")
    assert feedback_of(run_id) == {}
    judge_run = run_store.get(workspace.pk, evaluation.judge_run_id)
    assert judge_run.value(Payload.ERROR) == evaluation.error


def test_numbers_and_categories_become_scores_and_values(rule, provider, finish_row):
    properties = {
        "tone": {"type": "string", "enum": ["kind", "rude"]},
        "length": {"type": "integer"},
        "skipped": {"type": ["number", "null"]},
        "reasoning": {"type": "string"},
    }
    rule(judge=structured(schema={"type": "object", "properties": properties}))
    provider.answer = Reply('{"tone": "kind", "length": 7, "skipped": null, "reasoning": "So."}')
    run_id = finish_row()

    evaluate()

    found = {key: (row.score, row.value, row.comment) for key, row in feedback_of(run_id).items()}
    assert found == {"tone": (None, "kind", "So."), "length": (7.0, None, "So.")}


def test_busy_provider_is_asked_again_later(rule, provider, finish_row):
    rule()
    answers = iter([Reply(status=429), Reply(grade())])
    provider.answer = lambda _: next(answers)
    run_id = finish_row()
    evaluate()
    waiting = only_evaluation()
    assert (waiting.status, waiting.due_at > timezone.now()) == ("pending", True)
    assert evaluate() == 0

    Evaluation.unscoped.update(due_at=timezone.now())
    evaluate()

    assert feedback_of(run_id)["correctness"].score == 1.0
    assert only_evaluation().attempt == 2


def test_evaluation_of_a_killed_worker_is_made_again_and_written_once(rule, provider, finish_row):
    rule()
    provider.answer = Reply(grade())
    run_id = finish_row()
    [lost] = evaluations.claim(10)
    assert evaluations.claim(10) == []
    Evaluation.unscoped.update(due_at=timezone.now() - timedelta(seconds=1))
    assert leases.extend([lost]) == {lost.id}
    Evaluation.unscoped.update(due_at=timezone.now() - timedelta(seconds=1))

    assert evaluate() == 1
    stale = evaluations.record_end(lost, evaluations.CallExecution(lost.call).result(error="late"))

    assert stale is False
    assert leases.extend([lost]) == set()
    assert (only_evaluation().status, only_evaluation().attempt) == ("succeeded", 2)
    assert list(feedback_of(run_id)) == ["correctness"]


def test_run_without_output_is_skipped(rule, provider, finish_row):
    rule()
    finish_row(outputs=None, error="It broke.")

    evaluate()

    evaluation = only_evaluation()
    assert (evaluation.status, evaluation.error) == ("skipped", "The run has no output.")
    assert provider.requests == []


def test_missing_value_is_a_failure_with_its_path(rule, provider, finish_row):
    rule(judge=structured("{output}", variable_mapping={"output": "output.messages.0"}))
    finish_row()

    evaluate()

    assert only_evaluation().error == "The run has no `output.messages.0`."
    assert provider.requests == []


def test_calls_of_a_day_are_bounded(rule, provider, finish_row):
    rule(max_calls_per_day=2)
    provider.answer = Reply(grade())
    for _ in range(3):
        finish_row()

    assert evaluate() == 3

    assert len(provider.requests) == 2
    skipped = Evaluation.unscoped.get(status="skipped")
    assert skipped.error == "The rule has made its 2 calls of the day."
    assert EvaluatorSpend.unscoped.get().call_count == 2


def test_dollars_of_a_week_are_bounded(rule, provider, finish_row):
    rule(spend_limit={"limit_usd": 0.0001, "window": "weekly"})
    provider.answer = Reply(grade())
    for _ in range(3):
        finish_row()
        evaluate()

    # A call costs $0.00006, so that the third would begin above the limit.
    assert len(provider.requests) == 2
    assert "0.0001 dollars of the week" in Evaluation.unscoped.get(status="skipped").error


def test_limit_in_dollars_needs_a_price(rule, provider, finish_row):
    model = {"provider": "openai", "model": "nobody-knows"}
    limit = {"limit_usd": 1, "window": "weekly"}
    rule(judge=structured(model=model), spend_limit=limit)
    finish_row()

    evaluate()

    assert "price of the model" in only_evaluation().error
    assert provider.requests == []


def test_sample_of_a_rule_is_the_same_each_time(rule):
    row = EvaluatorRule.unscoped.get(pk=rule(sampling_rate=0.25)["id"])
    ids = [UUID(int=number) for number in range(2000)]

    chosen = [run_id for run_id in ids if selection.is_sampled(row, run_id)]

    assert 400 < len(chosen) < 600
    assert chosen == [run_id for run_id in ids if selection.is_sampled(row, run_id)]
    row.sampling_rate = 0
    assert not any(selection.is_sampled(row, run_id) for run_id in ids)


def test_disabled_rule_drops_what_waits_and_ignores_runs_of_the_time_between(
    api, experiment, example_id, rule, finish_row
):
    workspace = experiment.workspace
    created = rule()
    finish_row()
    url = f"/runs/rules/{created['id']}"
    api.patch(url, {"is_enabled": False})
    assert not Evaluation.unscoped.exists()
    run = wire_run(session_name=experiment.name, reference_example_id=str(example_id))
    ingest(workspace, run)
    process_all()

    api.patch(url, {"is_enabled": True})
    ingest(workspace, run | {"tags": ["late"]})
    process_all()

    assert not Evaluation.unscoped.exists()
    finish_row()
    assert Evaluation.unscoped.count() == 1


def test_project_rule_waits_and_can_be_triggered(api, workspace, project, provider):
    judge = structured("Is {output} kind?")
    created = create_rule(api, session_id=str(project.pk), evaluators=[{"structured": judge}])
    provider.answer = Reply(grade())
    run_id = add_run(workspace, project)
    assert evaluate() == 0

    response = api.post(f"/runs/rules/{created['id']}/trigger", {})

    assert (response.status_code, response.json()) == (202, {"triggered_count": 1})
    assert evaluate() == 1
    assert feedback_of(run_id)["correctness"].score == 1.0
    # The run of the judge is not evaluated in turn.
    process_all()
    assert Evaluation.unscoped.count() == 1


def test_filters_of_the_run_and_of_its_tree_must_match(api, workspace, project, provider):
    judge = [{"structured": structured("Is {output} kind?")}]
    create_rule(
        api,
        session_id=str(project.pk),
        evaluators=judge,
        filter='eq(name, "agent")',
        tree_filter='eq(name, "search")',
    )
    provider.answer = Reply(grade())
    add_run(workspace, project, name="agent")
    add_run(workspace, project, name="other")
    root = wire_run(session_name=project.name, name="agent")
    ingest(workspace, root, wire_run(root, name="search"))
    process_all()
    assert Evaluation.unscoped.count() == 3
    Evaluation.unscoped.update(due_at=timezone.now())

    evaluate()

    assert [str(row.run_id) for row in Evaluation.unscoped.all()] == [root["id"]]
    assert len(provider.requests) == 1


def test_evaluations_are_removed_with_their_runs(workspace, experiment, rule, provider, finish_row):
    rule()
    provider.answer = Reply(grade())
    run_id = finish_row()
    evaluate()

    run_store.delete_traces(workspace.pk, experiment.pk, [run_id])

    assert not Evaluation.unscoped.exists()


def test_organizations_take_turns(rule, workspace):
    row = EvaluatorRule.unscoped.get(pk=rule()["id"])
    other = WorkspaceFactory()
    now = timezone.now()
    Evaluation.unscoped.bulk_create(
        Evaluation(
            workspace=owner,
            organization_id=owner.organization_id,
            rule=row,
            run_id=UUID(int=number),
            project_id=UUID(int=1),
            due_at=now - timedelta(seconds=seconds),
        )
        for owner, count, seconds in ((workspace, 10, 100), (other, 2, 1))
        for number in range(count)
    )

    claimed = evaluations.claim(4)

    counts = [item.organization_id for item in claimed]
    assert counts.count(other.organization_id) == 2
    assert counts.count(workspace.organization_id) == 2
    rest = evaluations.claim(10, [workspace.organization_id])
    assert rest == []


def test_new_schema_replaces_the_feedback_of_the_old_one(api, rule, provider, finish_row):
    created = rule()
    provider.answer = Reply(grade())
    run_id = finish_row()
    evaluate()
    schema = SCHEMA | {"properties": {"quality": {"type": "number"}}, "required": ["quality"]}
    judge = [{"structured": structured(schema=schema)}]
    assert api.patch(f"/runs/rules/{created['id']}", {"evaluators": judge}).status_code == 200
    provider.answer = Reply('{"quality": 0.5}')
    Evaluation.unscoped.update(status="pending", due_at=timezone.now())

    evaluate()

    assert {key: row.score for key, row in feedback_of(run_id).items()} == {"quality": 0.5}


def test_query_of_the_judges_project(workspace, rule, provider, finish_row):
    rule()
    provider.answer = Reply(grade())
    finish_row()
    evaluate()

    project = Project.unscoped.get(name="evaluators")
    page = run_store.query(workspace.pk, RunQuery(project_ids=[project.pk]), limit=10)

    assert [run.row.usage.total_tokens for run in page.runs] == [120]
