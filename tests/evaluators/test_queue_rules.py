"""Rules put the runs that they match in an annotation queue, once, with an evaluator or without."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from apps.annotation.models import AnnotationQueue, QueueItem
from apps.annotation.services import items
from apps.annotation.services.items import remove_items
from apps.annotation.services.queues import delete_queues
from apps.evaluators.code.process import CodeReply
from apps.evaluators.models import Evaluation, EvaluatorRule
from apps.evaluators.services import backfills, code_runs, evaluations
from apps.evaluators.services.queueing import add_to_queue
from apps.organizations.permissions import SCOPES, Permission
from apps.trace_store import run_store
from apps.trace_store.models import RetainedTrace
from apps.trace_store.postgres.postprocess.processor import process_all
from tests.evaluators.conftest import (
    add_run,
    create_rule,
    evaluate,
    feedback_of,
    grade,
    only_evaluation,
    run_code,
)
from tests.factories.annotation import make_queue
from tests.factories.evaluators import structured
from tests.factories.tracing import end_fields, ingest, wire_run
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]
FIELDS = ("add_to_annotation_queue_id", "add_to_annotation_queue_name", "evaluator_id")


@pytest.fixture
def queue(workspace) -> AnnotationQueue:
    return make_queue(workspace, "to review")


@pytest.fixture
def rule(api, project, queue):
    """Return a function that creates a rule of the project which fills the queue."""

    def create(**fields):
        scope = {"session_id": str(project.pk), "add_to_annotation_queue_id": str(queue.pk)}
        return create_rule(api, **(scope | fields))

    return create


@pytest.fixture
def body(project, queue):
    return {
        "display_name": "x",
        "session_id": str(project.pk),
        "add_to_annotation_queue_id": str(queue.pk),
    }


@pytest.fixture
def add(workspace, project):
    """Return a function that stores a finished run of the project; returns its id."""
    return lambda **fields: add_run(workspace, project, **fields)


def apply() -> None:
    """Apply the rules to what they have found, as a worker does after the time for the trace."""
    Evaluation.unscoped.update(due_at=timezone.now() - timedelta(seconds=1))
    evaluate()


def queued(queue: AnnotationQueue) -> set[UUID]:
    return set(QueueItem.unscoped.filter(queue=queue).values_list("run_id", flat=True))


def test_matching_run_is_put_in_the_queue_once(api, project, queue, rule, add):
    created = rule(filter='eq(name, "agent")')
    run = wire_run(session_name=project.name, name="agent")
    ingest(project.workspace, run)
    process_all()
    add(name="other")

    apply()
    ingest(project.workspace, run | end_fields(run))
    process_all()
    apply()

    assert queued(queue) == {UUID(run["id"])}
    [log] = api.get(f"/runs/rules/{created['id']}/logs").json()
    assert (log["run_id"], log["status"], log["feedback"]) == (run["id"], "succeeded", None)
    assert log["added_to_annotation_queue_at"] is not None
    [entry] = api.get(f"/runs/rules/{created['id']}/logs/v2").json()["logs"]
    assert entry["add_to_annotation_queue"] == {"outcome": "success", "payload": {"error": None}}
    assert entry["evaluators"] is None


def test_failed_run_without_output_is_put_in_the_queue(queue, rule, add):
    rule(filter='eq(status, "error")')
    run_id = add(outputs=None, error="It broke.")

    apply()

    assert queued(queue) == {run_id}


def test_removed_item_is_not_added_again(api, dataset, experiment, queue, provider):
    judge = [{"structured": structured("Is {output} kind?")}]
    create_rule(
        api,
        dataset_id=str(dataset.pk),
        evaluators=judge,
        add_to_annotation_queue_id=str(queue.pk),
    )
    provider.answer = Reply(status=400, error="No such model.")
    run_id = add_run(experiment.workspace, experiment)
    apply()
    # The judge failed, and the run waits for people nevertheless.
    assert (queued(queue), only_evaluation().status) == ({run_id}, "failed")
    remove_items(queue=queue, run_ids=[run_id])
    provider.answer = Reply(grade())

    api.post(f"/runs/experiments/{experiment.pk}/evaluate", {"only_failed": True})
    apply()

    assert queued(queue) == set()
    assert only_evaluation().status == "succeeded"
    assert feedback_of(run_id)["correctness"].score == 1.0


def test_run_of_a_killed_worker_is_added_once(queue, rule, add):
    rule()
    run_id = add()
    Evaluation.unscoped.update(due_at=timezone.now())
    [first] = evaluations.claim(10)  # and is killed before it records the end
    assert queued(queue) == {run_id}
    remove_items(queue=queue, run_ids=[run_id])
    Evaluation.unscoped.update(due_at=timezone.now() - timedelta(seconds=1))

    assert evaluate() == 1

    assert queued(queue) == set()
    assert (only_evaluation().status, only_evaluation().attempt) == ("succeeded", 2)
    result = evaluations.ModelCallResult(ended_at=timezone.now())
    assert evaluations.record_end(first, result) is False


def test_full_queue_is_a_failure_that_is_retried(api, queue, rule, add, monkeypatch):
    created = rule()
    run_id = add()
    monkeypatch.setattr(items, "MAX_ITEMS", 0)

    apply()

    assert queued(queue) == set()
    assert only_evaluation().status == "failed"
    assert "was not put in the annotation queue" in only_evaluation().error
    [entry] = api.get(f"/runs/rules/{created['id']}/logs/v2").json()["logs"]
    assert entry["add_to_annotation_queue"]["outcome"] == "error"
    monkeypatch.undo()
    Evaluation.unscoped.update(status="pending")
    apply()
    assert queued(queue) == {run_id}


def test_functions_score_and_add(api, dataset, experiment, queue, monkeypatch):
    async def reply(_code, _uid, subjects):
        return [CodeReply(result=True) for _ in subjects]

    monkeypatch.setattr(code_runs, "run_code", reply)
    create_rule(
        api,
        dataset_id=str(dataset.pk),
        code_evaluators=[{"code": "def perform_eval(run, example): return True"}],
        add_to_annotation_queue_id=str(queue.pk),
    )
    run_id = add_run(experiment.workspace, experiment)

    assert run_code() == 1

    assert queued(queue) == {run_id}
    assert feedback_of(run_id)["Correctness"].score == 1.0
    assert only_evaluation().queued_at is not None


def test_earlier_runs_are_added_by_a_backfill(api, queue, rule, add):
    run_id = add()
    created = rule()
    since = (timezone.now() - timedelta(days=1)).isoformat()

    api.post(f"/runs/rules/{created['id']}/backfill", {"start_time": since})
    backfills.advance()
    evaluate()

    assert queued(queue) == {run_id}


def test_attempt_without_its_lease_adds_nothing(workspace, queue, rule, add):
    rule()
    run_id = add()
    Evaluation.unscoped.update(status="running", attempt=2)
    stale = Evaluation.unscoped.select_related("rule__annotation_queue").get()
    stale.attempt = 1
    run = run_store.get(workspace.pk, run_id)

    assert add_to_queue(stale, run.row) == ""

    assert queued(queue) == set()
    stale.attempt = 2
    add_to_queue(stale, run.row)
    assert queued(queue) == {run_id}


def test_retention_of_the_traces_is_extended(workspace, rule, add):
    created = rule(extend_annotation_queue_trace_retention=True)
    run_id = add()

    apply()

    assert created["extend_annotation_queue_trace_retention"] is True
    assert RetainedTrace.objects.for_workspace(workspace).get().trace_id == run_id


def test_deleted_queue_leaves_a_rule_that_does_nothing(api, page, queue, rule, add):
    created = rule()
    add()
    delete_queues(queues=[queue])

    apply()
    add()

    assert (only_evaluation().status, only_evaluation().error) == (
        "skipped",
        "The annotation queue of the rule was deleted.",
    )
    read = api.get(f"/runs/rules/{created['id']}").json()
    assert [read[name] for name in FIELDS] == [None, None, None]
    content = page.get(f"/o/{queue.workspace_id}/evaluators/{created['id']}").content.decode()
    assert "The annotation queue of the rule was deleted." in content


def test_rule_has_the_fields_of_the_queue(api, workspace, queue, rule):
    created = rule()

    assert [created[name] for name in FIELDS] == [str(queue.pk), "to review", None]
    assert (created["evaluators"], created["code_evaluators"]) == (None, None)
    [listed] = api.get("/v2/runs/rules").json()["items"]
    assert listed["add_to_annotation_queue_id"] == str(queue.pk)
    other = make_queue(workspace, "other")
    url = f"/runs/rules/{created['id']}"
    assert api.patch(url, created | {"is_enabled": True}).status_code == 422  # has read-only fields
    changed = api.patch(url, {"add_to_annotation_queue_id": str(other.pk)}).json()
    assert changed["add_to_annotation_queue_name"] == "other"
    assert api.patch(url, {"display_name": "New"}).json()["add_to_annotation_queue_name"] == "other"
    assert api.get("/v1/platform/evaluators").json()["total"] == 0
    period = {"period_start": timezone.now().date().isoformat(), "group_by": "run_rule"}
    assert api.get("/v1/platform/evaluators/spend", **period).json()["groups"] == []


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"add_to_annotation_queue_id": None}, 422, "`add_to_annotation_queue_id`"),
        ({"add_to_annotation_queue_id": "x"}, 422, "add_to_annotation_queue_id"),
        ({"add_to_annotation_queue_id": str(UUID(int=1))}, 404, "No such annotation queue."),
        ({"spend_limit": {"limit_usd": 1}}, 422, "without a judge costs nothing"),
        (
            {
                "add_to_annotation_queue_id": None,
                "evaluators": [{"structured": structured()}],
                "extend_annotation_queue_trace_retention": True,
            },
            422,
            "needs an `add_to_annotation_queue_id`",
        ),
    ],
)
def test_queue_that_cannot_be_filled_is_refused(api, body, fields, status, text):
    response = api.post("/runs/rules", body | fields)

    assert response.status_code == status, response.content
    assert text in response.json()["detail"]
    assert not EvaluatorRule.unscoped.exists()


def test_change_that_leaves_a_rule_without_an_action_is_refused(api, rule):
    url = f"/runs/rules/{rule()['id']}"

    for fields, text in (
        ({"add_to_annotation_queue_id": None}, "does nothing"),
        ({"evaluators": [{"structured": structured()}]}, "has no evaluator"),
        ({"spend_limit": {"limit_usd": 1}}, "costs nothing"),
    ):
        response = api.patch(url, fields)
        assert response.status_code == 422, response.content
        assert text in response.json()["detail"]
    assert EvaluatorRule.unscoped.get().annotation_queue_id is not None


def test_queue_of_another_workspace_is_unknown(api, other_workspace, body):
    foreign = make_queue(other_workspace, "theirs")

    response = api.post("/runs/rules", body | {"add_to_annotation_queue_id": str(foreign.pk)})

    assert (response.status_code, response.json()["code"]) == (404, "annotation_queue_not_found")
    assert not EvaluatorRule.unscoped.exists()


def test_rule_needs_the_right_to_fill_queues(make_api, workspace, body, rule, monkeypatch):
    without = SCOPES["write"] - {Permission.ANNOTATION_QUEUES_WRITE}
    monkeypatch.setitem(SCOPES, "write", without)
    api = make_api(workspace, "write")
    existing = f"/runs/rules/{rule()['id']}"
    other = make_queue(workspace, "other")

    created = api.post("/runs/rules", body)
    changed = api.patch(existing, {"add_to_annotation_queue_id": str(other.pk)})

    assert (created.status_code, changed.status_code) == (403, 403)
    assert EvaluatorRule.unscoped.get().annotation_queue.name == "to review"


def test_form_creates_a_rule_without_an_evaluator(page, workspace, project, queue):
    url = f"/o/{workspace.pk}/evaluators/new?project={project.pk}&template=queue"
    form = page.get(url).content.decode()
    assert "To a queue" in form
    assert "Try it" not in form
    fields = {"name": "Errors", "queue": str(queue.pk), "sampling": "100", "filter": ""}
    assert page.post(url, fields | {"queue": ""}).status_code == 422

    created = page.post(url, fields | {"filter": 'eq(status, "error")'})

    rule = EvaluatorRule.unscoped.get()
    assert (rule.annotation_queue, rule.evaluator, rule.filter) == (
        queue, None, 'eq(status, "error")',
    )  # fmt: skip
    detail = page.get(created.headers["Location"]).content.decode()
    assert f"/annotation/{queue.pk}" in detail
    edit = f"/o/{workspace.pk}/evaluators/{rule.pk}/edit"
    assert f'<option value="{queue.pk}" selected>' in page.get(edit).content.decode()
    page.post(edit, fields | {"name": "All"})
    rule.refresh_from_db()
    assert (rule.name, rule.filter, rule.annotation_queue) == ("All", "", queue)
    listed = page.get(f"/o/{workspace.pk}/projects/p/{project.pk}/evaluators").content.decode()
    assert "to to review" in listed


def test_log_says_which_runs_wait_in_the_queue(page, workspace, rule, add):
    created = rule()
    add()
    apply()

    content = page.get(f"/o/{workspace.pk}/evaluators/{created['id']}").content.decode()

    assert "In the queue" in content
