"""Rules with functions: their API, and evaluations in the sandbox."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.audit.models import Entry
from apps.datasets.models import ExampleRevision
from apps.deployments.sandbox import SandboxSetupFailed, SandboxUnavailable
from apps.evaluators.code import process
from apps.evaluators.code.process import CodeReply
from apps.evaluators.models import CodeTrial, Evaluation, Evaluator, EvaluatorRule, EvaluatorSpend
from apps.evaluators.services import code_evaluations, code_runs, code_trials, evaluations
from apps.evaluators.services.code_queue import CodeQueue
from apps.tracing.services import create_project
from tests.evaluators.conftest import (
    add_run,
    create_rule,
    feedback_of,
    only_evaluation,
    run_code,
)
from tests.factories.evaluators import create_judge_prompt, structured
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db
EXACT = """
def perform_eval(run, example):
    print("comparing", run["name"])
    same = run["outputs"]["answer"] == (example["outputs"]["answer"] if example else "because")
    return {"key": "exact", "score": same, "comment": f"{run['run_type']} {run['metadata']}"}
"""


@pytest.fixture
def rule(api, dataset):
    """Return a function that creates a rule of the dataset with a function."""

    def create(code: str = EXACT, **fields):
        functions = [{"code": code, "language": "python"}]
        body = {"dataset_id": str(dataset.pk), "code_evaluators": functions} | fields
        return create_rule(api, **body)

    return create


@pytest.fixture
def revision_id(dataset) -> str:
    rows = ExampleRevision.unscoped.filter(dataset=dataset)
    return str(next(row.example_id for row in rows if row.inputs["question"] == "Question 1"))


@pytest.fixture
def replies(monkeypatch):
    """Return what functions reply, which the test sets, instead of running them."""
    state = {"calls": [], "reply": CodeReply(result=True)}

    async def run(code, uid, subjects):
        state["calls"].append((code, subjects))
        reply = state["reply"]
        return [reply for _ in subjects] if isinstance(reply, CodeReply) else reply

    monkeypatch.setattr(code_runs, "run_code", run)
    return state


@pytest.mark.integration
def test_finished_row_is_scored_by_the_function(api, workspace, experiment, rule, revision_id):
    created = rule()

    run_id = add_run(workspace, experiment, reference_example_id=revision_id)
    assert run_code() == 1

    feedback = feedback_of(run_id)["exact"]
    assert (feedback.score, feedback.project_id) == (0.0, experiment.pk)
    assert feedback.comment.startswith("chain {")
    assert feedback.source["type"] == "auto_eval"
    assert feedback.source["metadata"] == {
        "rule_id": created["id"],
        "evaluator_id": created["evaluator_id"],
    }
    [entry] = api.get(f"/runs/rules/{created['id']}/logs").json()
    assert (entry["status"], entry["evaluator_run_id"], entry["cost"]) == ("succeeded", None, None)
    assert entry["feedback"][0]["key"] == "exact"
    listed = api.get(f"/runs/rules/{created['id']}").json()
    assert (listed["trace_count"], listed["spend_usd"]) == (1, 0.0)


@pytest.mark.integration
def test_failure_has_the_traceback_and_the_rule_of_a_project_has_no_example(
    api, workspace, project
):
    code = (
        "def perform_eval(run, example):\n"
        "    assert example is None and run['error'] is None\n"
        "    return run['outputs']['nothing']\n"
    )
    body = {"session_id": str(project.pk), "code_evaluators": [{"code": code}]}
    created = create_rule(api, **body)
    add_run(workspace, project)
    Evaluation.unscoped.update(due_at=timezone.now())

    assert run_code() == 1

    [entry] = api.get(f"/runs/rules/{created['id']}/logs").json()
    assert entry["status"] == "failed"
    assert 'File "evaluator.py", line 3, in perform_eval' in entry["error"]
    assert "KeyError: 'nothing'" in entry["error"]


def test_judges_and_functions_have_queues_of_their_own(workspace, experiment, rule, replies):
    rule()
    add_run(workspace, experiment)

    assert evaluations.claim(10) == []
    assert not evaluations.has_due()
    assert run_code() == 1
    assert replies["calls"][0][0] == EXACT


def test_batch_has_the_evaluations_of_one_rule(workspace, experiment, rule, replies):
    rule()
    rule("def perform_eval(run):\n return 1", display_name="Other")
    for _ in range(3):
        add_run(workspace, experiment)

    first, second = code_evaluations.claim(5)

    assert sorted(len(batch.evaluations) for batch in (first, second)) == [3, 3]
    assert {first.code, second.code} == {EXACT, "def perform_eval(run):\n return 1"}
    assert code_evaluations.claim(5) == []


def test_organizations_take_turns(workspace, experiment, rule, replies):
    rule()
    for _ in range(3):
        add_run(workspace, experiment)
    other = WorkspaceFactory()
    row = Evaluation.unscoped.first()
    rows = EvaluatorRule.unscoped.filter(pk=row.rule_id)
    evaluator = Evaluator.unscoped.get()
    evaluator.pk, evaluator.workspace = None, other
    evaluator.save(force_insert=True)
    project = create_project(workspace_id=other.pk, name="theirs")
    theirs = rows.get()
    theirs.pk, theirs.workspace, theirs.evaluator = None, other, evaluator
    theirs.dataset, theirs.project = None, project
    theirs.save(force_insert=True)
    add_run(other, project)
    Evaluation.unscoped.filter(workspace=other).update(due_at=timezone.now())

    batches = code_evaluations.claim(2)

    assert {batch.organization_id for batch in batches} == {
        workspace.organization_id,
        other.organization_id,
    }
    assert code_evaluations.claim(2, [batch.organization_id for batch in batches]) == []


def test_limit_of_calls_a_day_applies(workspace, experiment, rule, replies):
    rule(max_calls_per_day=2)
    for _ in range(3):
        add_run(workspace, experiment)

    run_code()

    counts = list(Evaluation.unscoped.values_list("status", flat=True))
    assert sorted(counts) == ["skipped", "succeeded", "succeeded"]
    assert "2 calls of the day" in Evaluation.unscoped.get(status="skipped").error


def test_rest_of_a_slow_batch_waits_for_the_next_turn(workspace, experiment, rule, replies):
    rule()
    for _ in range(3):
        add_run(workspace, experiment)
    queue = CodeQueue()
    [batch] = queue.claim(1, ())

    queue.record_end(batch, [CodeReply(result=True), None, None])

    assert EvaluatorSpend.unscoped.get().call_count == 1
    waiting = Evaluation.unscoped.filter(status="pending")
    assert [row.attempt - row.earlier_attempts for row in waiting] == [0, 0]
    assert run_code() == 1
    assert not Evaluation.unscoped.exclude(status="succeeded").exists()


def test_lost_lease_writes_nothing(workspace, experiment, rule, replies):
    rule()
    run_id = add_run(workspace, experiment)
    queue = CodeQueue()
    [batch] = queue.claim(1, ())
    assert queue.extend([batch]) == {batch.id}
    Evaluation.unscoped.update(due_at=timezone.now() - timedelta(minutes=1))
    [again] = queue.claim(1, ())

    assert queue.extend([batch]) == set()
    queue.record_end(batch, [CodeReply(result=True)])
    assert feedback_of(run_id) == {}
    queue.record_end(again, [CodeReply(result=False)])
    assert feedback_of(run_id)["Correctness"].score == 0.0


def test_interrupted_attempts_end(workspace, experiment, rule, replies):
    rule()
    add_run(workspace, experiment)
    Evaluation.unscoped.update(attempt=6)

    assert run_code() == 0

    assert "6 attempts were interrupted" in only_evaluation().error
    assert replies["calls"] == []


def test_machine_that_starts_no_process_is_tried_again_later(
    workspace, experiment, rule, monkeypatch
):
    def fail(*_, **__):
        raise SandboxSetupFailed("busy")

    monkeypatch.setattr(process.sandbox, "spawn", fail)
    rule()
    add_run(workspace, experiment)

    run_code()

    evaluation = only_evaluation()
    assert evaluation.status == "pending"
    assert evaluation.due_at > timezone.now() + timedelta(seconds=5)
    assert EvaluatorSpend.unscoped.get().call_count == 0


def test_machine_without_a_sandbox_never_runs_functions(
    workspace, experiment, rule, monkeypatch, settings
):
    settings.ALLOW_UNSANDBOXED_AGENTS = True

    def spawn(*_, allow_unsandboxed=False, **__):
        assert not allow_unsandboxed
        raise SandboxUnavailable("no namespaces")

    monkeypatch.setattr(process.sandbox, "spawn", spawn)
    rule()
    add_run(workspace, experiment)

    run_code()

    assert "cannot run on this installation: no namespaces" in only_evaluation().error


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "returned None"),
        ({"a": 1, "b": []}, "`b` is neither"),
        ({"key": "x" * 2000, "score": 1}, "A feedback key"),
    ],
)
def test_result_that_is_no_score_is_a_failure_without_feedback(
    experiment, rule, replies, result, text
):
    replies["reply"] = CodeReply(result=result)
    rule()
    run_id = add_run(experiment.workspace, experiment)

    run_code()

    evaluation = only_evaluation()
    assert (evaluation.status, text in evaluation.error) == ("failed", True)
    assert feedback_of(run_id) == {}


def test_keys_that_a_function_returned_are_known(workspace, experiment, rule, replies):
    created = rule("def perform_eval(run):\n return dict(run)")
    assert Evaluator.unscoped.get(pk=created["evaluator_id"]).feedback_keys == []
    replies["reply"] = CodeReply(result={"tone": "kind", "length": 3})
    add_run(workspace, experiment)

    run_code()

    assert Evaluator.unscoped.get(pk=created["evaluator_id"]).feedback_keys == ["tone", "length"]


def test_rule_with_a_function_has_the_fields_that_the_clients_require(api, rule):
    created = rule(is_enabled=True, include_extended_stats=False)

    assert api.get(f"/runs/rules/{created['id']}").json() == created
    assert (created["evaluator_type"], created["evaluators"]) == ("code", None)
    [function] = created["code_evaluators"]
    assert (function["code"], function["language"]) == (EXACT, "python")
    assert function["require_attachments"] is False
    evaluator = api.get(f"/api/v1/platform/evaluators/{created['evaluator_id']}").json()
    assert (evaluator["type"], evaluator["llm_evaluator"]) == ("code", None)
    assert evaluator["code_evaluator"]["code"] == EXACT
    assert evaluator["feedback_keys"] == ["exact"]
    [entry] = Entry.objects.filter(action="evaluator.created")
    assert len(entry.after["code_digest"]) == 16
    assert "perform_eval" not in str(entry.after)


def test_change_of_a_function_is_used_from_then_on(api, rule, workspace, experiment, replies):
    created = rule()
    changed = "def perform_eval(run):\n return {'other': 1}"

    body = {"code_evaluators": [{"code": changed, "language": "python"}]}
    response = api.patch(f"/runs/rules/{created['id']}", body)

    assert response.json()["code_evaluators"][0]["code"] == changed
    add_run(workspace, experiment)
    run_code()
    assert replies["calls"][0][0] == changed
    refused = api.patch(
        f"/runs/rules/{created['id']}", {"evaluators": [{"structured": structured()}]}
    )
    assert "the rule has a function" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"code_evaluators": [{"code": "x = 1"}]}, "must define `def perform_eval"),
        ({"code_evaluators": [{"code": "def perform_eval(run"}]}, "`code`, line 1"),
        (
            {"code_evaluators": [{"code": "function performEval() {}", "language": "javascript"}]},
            "evaluators in `javascript` are not supported",
        ),
        ({"code_evaluators": [{"code": EXACT}] * 2}, "a rule has one"),
        ({"code_evaluators": [{"code": EXACT, "more": 1}]}, "`more`"),
        ({"code_evaluators": [{"code": 3}]}, "code"),
        ({"code_evaluators": "x"}, "code_evaluators"),
        (
            {"code_evaluators": [{"code": EXACT, "require_attachments": True}]},
            "`require_attachments` is not supported",
        ),
        (
            {"code_evaluators": [{"code": EXACT, "code_evaluator_input": "thread"}]},
            "`code_evaluator_input` is not supported",
        ),
        ({"spend_limit": {"limit_usd": 1}}, "a function costs nothing"),
        ({"evaluators": [{"structured": structured()}]}, "either `evaluators`, `code_evaluators`"),
    ],
)
def test_rule_that_cannot_work_is_refused_with_the_reason(api, dataset, fields, text):
    body = {
        "display_name": "Exact",
        "dataset_id": str(dataset.pk),
        "code_evaluators": [{"code": EXACT, "require_attachments": False}],
    }

    response = api.post("/runs/rules", body | fields)

    assert response.status_code == 422, response.content
    assert text in response.json()["detail"]
    assert not Evaluator.unscoped.exists()


def test_evaluator_with_a_function_is_created_changed_and_used(api, dataset):
    url = "/api/v1/platform/evaluators"
    body = {"name": "Exact", "type": "code", "code_evaluator": {"code": EXACT}}

    response = api.post(url, body)

    assert response.status_code == 201, response.content
    created = response.json()["evaluator"]
    assert [row["id"] for row in api.get(url, type="code").json()["evaluators"]] == [created["id"]]
    rule = create_rule(api, dataset_id=str(dataset.pk), evaluator_id=created["id"])
    assert rule["code_evaluators"][0]["code"] == EXACT
    changed = api.patch(
        f"{url}/{created['id']}",
        {"code_evaluator": {"code": "def perform_eval(run): return {'b': 1}"}},
    )
    assert changed.json()["evaluator"]["feedback_keys"] == ["b"]
    for fields, text in (
        ({"code_evaluator": {"code": "1"}}, "must define"),
        ({"code_evaluator": {"language": "javascript"}}, "`javascript` are not supported"),
        ({"code_evaluator": {"dependencies": "numpy"}}, "`dependencies` is not supported"),
        ({"code_evaluator": {"workspace_secrets_keys": ["K"]}}, "`workspace_secrets_keys`"),
        ({"llm_evaluator": {"prompt_repo_handle": "x"}}, "has the type `code`"),
    ):
        refused = api.patch(f"{url}/{created['id']}", fields)
        assert (refused.status_code, text in refused.json()["detail"]) == (422, True)
    missing = api.post(url, {"name": "x", "type": "code"})
    assert "`code_evaluator` is missing" in missing.json()["detail"]


@pytest.mark.usefixtures("keys")
def test_another_type_of_evaluator_moves_what_waits(api, rule, experiment, replies):
    workspace = experiment.workspace
    created = rule()
    add_run(workspace, experiment)
    create_judge_prompt(workspace)
    llm = {"prompt_repo_handle": "grader"}
    judge = api.post(
        "/v1/platform/evaluators", {"name": "Judge", "type": "llm", "llm_evaluator": llm}
    ).json()["evaluator"]

    response = api.patch(f"/runs/rules/{created['id']}", {"evaluator_id": judge["id"]})

    assert response.json()["evaluator_type"] == "llm"
    assert not only_evaluation().is_code
    Evaluation.unscoped.update(is_code=True)  # as a transaction that read the rule before
    assert run_code() == 0
    assert (only_evaluation().is_code, only_evaluation().status) == (False, "pending")


def test_old_trials_are_deleted(workspace):
    trial = CodeTrial(
        workspace=workspace, organization_id=workspace.organization_id, name="x", code="x"
    )
    trial.save()
    code_trials.delete_old()
    assert CodeTrial.unscoped.exists()
    CodeTrial.unscoped.update(created_at=timezone.now() - timedelta(hours=2))

    code_trials.delete_old()

    assert not CodeTrial.unscoped.exists()


def test_result_of_a_trial_that_no_page_waits_for_is_dropped(workspace, monkeypatch):
    trial = CodeTrial(
        workspace=workspace, organization_id=workspace.organization_id, name="x", code="x"
    )
    trial.save()
    job = code_trials.TrialJob(trial.pk, workspace.organization_id, "x", None, b"")
    read_result = code_trials.read_result

    def stop_waiting(*arguments):
        CodeTrial.unscoped.all().delete()
        return read_result(*arguments)

    monkeypatch.setattr(code_trials, "read_result", stop_waiting)

    code_trials.record_end(job, CodeReply(result=1))

    assert not CodeTrial.unscoped.exists()
