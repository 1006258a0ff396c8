"""Rules add the runs that they match to a dataset, once, with an evaluator or without."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services.datasets import create_dataset, delete_dataset
from apps.datasets.services.examples import delete_from_dataset
from apps.evaluators.models import Evaluation, EvaluatorRule
from apps.evaluators.services import evaluations
from apps.evaluators.services.run_collection import collect
from apps.organizations.permissions import SCOPES, Permission
from apps.trace_store import run_store
from apps.trace_store.models import RetainedTrace
from tests.evaluators.conftest import add_run, create_rule, evaluate, only_evaluation
from tests.factories.annotation import make_queue
from tests.factories.evaluators import structured

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]
FIELDS = ("add_to_dataset_id", "add_to_dataset_name", "evaluator_id")


@pytest.fixture
def target(workspace) -> Dataset:
    return create_dataset(workspace_id=workspace.pk, name="failures")


@pytest.fixture
def body(project, target):
    return {
        "display_name": "x",
        "session_id": str(project.pk),
        "add_to_dataset_id": str(target.pk),
    }


@pytest.fixture
def rule(api, body):
    """Return a function that creates a rule of the project which fills the dataset."""
    return lambda **fields: create_rule(api, **(body | fields))


@pytest.fixture
def add(workspace, project):
    """Return a function that stores a finished run of the project; returns its id."""
    return lambda **fields: add_run(workspace, project, **fields)


def apply() -> None:
    """Apply the rules to what they have found, as a worker does after the time for the trace."""
    Evaluation.unscoped.update(due_at=timezone.now() - timedelta(seconds=1))
    evaluate()


def examples(dataset: Dataset) -> list[ExampleRevision]:
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).current()
    return list(rows.filter(dataset=dataset).order_by("created_at"))


def test_matching_run_becomes_an_example_once(api, target, rule, add):
    created = rule(filter='eq(name, "agent")')
    run_id = add(name="agent", inputs={"question": "Why?"}, outputs={"answer": "So."})
    add(name="other")

    apply()
    Evaluation.unscoped.update(status="pending")  # it is asked for once more
    apply()

    [example] = examples(target)
    assert (example.inputs, example.outputs) == ({"question": "Why?"}, {"answer": "So."})
    assert example.source_run_id == run_id
    [log] = api.get(f"/runs/rules/{created['id']}/logs").json()
    assert (log["status"], log["added_to_annotation_queue_at"]) == ("succeeded", None)
    assert log["added_to_dataset_at"] is not None
    [entry] = api.get(f"/runs/rules/{created['id']}/logs/v2").json()["logs"]
    assert entry["add_to_dataset"] == {"outcome": "success", "payload": {"error": None}}
    assert (entry["evaluators"], entry["add_to_annotation_queue"]) == (None, None)


def test_removed_example_is_not_added_again(target, rule, add):
    rule()
    add()
    apply()
    delete_from_dataset(dataset=target, example_ids=[examples(target)[0].example_id])

    Evaluation.unscoped.update(status="pending")
    apply()

    assert examples(target) == []


def test_newest_correction_of_a_run_is_its_reference_output(api, target, rule, add):
    rule(add_to_dataset_prefer_correction=True)
    corrected, plain = add(inputs={"q": "1"}), add(inputs={"q": "2"}, outputs={"a": "2"})
    for correction in ({"a": "first"}, {"a": "second"}, "a text", None):
        feedback = {"run_id": str(corrected), "key": "right", "correction": correction}
        assert api.post("/feedback", feedback).status_code == 200

    apply()

    outputs = {example.source_run_id: example.outputs for example in examples(target)}
    assert outputs == {corrected: {"a": "second"}, plain: {"a": "2"}}


def test_failed_run_becomes_an_example_without_outputs(target, rule, add):
    rule(filter='eq(status, "error")')
    add(inputs={"q": "1"}, outputs=None, error="It broke.")

    apply()

    [example] = examples(target)
    assert (example.inputs, example.outputs) == ({"q": "1"}, None)


def test_run_that_does_not_fit_the_schema_is_a_failure(api, workspace, rule, add):
    schema = {"type": "object", "required": ["question"]}
    strict = create_dataset(workspace_id=workspace.pk, name="strict", inputs_schema=schema)
    created = rule(add_to_dataset_id=str(strict.pk))
    add(inputs={"q": "1"})

    apply()

    assert examples(strict) == []
    assert only_evaluation().status == "failed"
    assert "was not added to the dataset" in only_evaluation().error
    [entry] = api.get(f"/runs/rules/{created['id']}/logs/v2").json()["logs"]
    assert entry["add_to_dataset"]["outcome"] == "error"


def test_rule_may_fill_a_queue_and_a_dataset(workspace, target, rule, add):
    queue = make_queue(workspace, "to review")
    rule(add_to_annotation_queue_id=str(queue.pk))
    run_id = add()

    apply()

    assert [item.run_id for item in queue.items.all()] == [run_id]
    assert [example.source_run_id for example in examples(target)] == [run_id]


def test_attempt_without_its_lease_adds_nothing(workspace, target, rule, add):
    rule()
    run_id = add()
    Evaluation.unscoped.update(due_at=timezone.now())
    [first] = evaluations.claim(10)  # and is killed before it records the end
    Evaluation.unscoped.update(due_at=timezone.now() - timedelta(seconds=1))
    stale = Evaluation.unscoped.select_related("rule__target_dataset").get()

    assert evaluate() == 1

    assert collect(stale, run_store.get(workspace.pk, run_id).row) == ""
    assert len(examples(target)) == 1
    result = evaluations.ModelCallResult(ended_at=timezone.now())
    assert evaluations.record_end(first, result) is False


def test_retention_of_the_traces_is_extended(workspace, rule, add):
    rule(extend_dataset_trace_retention=True)
    run_id = add()

    apply()

    assert RetainedTrace.objects.for_workspace(workspace).get().trace_id == run_id


def test_deleted_dataset_leaves_a_rule_that_does_nothing(api, page, target, rule, add):
    created = rule()
    add()
    delete_dataset(dataset=target)

    apply()
    add()

    assert (only_evaluation().status, only_evaluation().error) == (
        "skipped",
        "The annotation queue or dataset of the rule was deleted.",
    )
    read = api.get(f"/runs/rules/{created['id']}").json()
    assert [read[name] for name in FIELDS] == [None, None, None]
    content = page.get(f"/o/{target.workspace_id}/evaluators/{created['id']}").content.decode()
    assert "dataset of the rule was deleted." in content


def test_rule_has_the_fields_of_the_dataset(api, workspace, target, rule):
    created = rule()

    assert [created[name] for name in FIELDS] == [str(target.pk), "failures", None]
    other = create_dataset(workspace_id=workspace.pk, name="other")
    url = f"/runs/rules/{created['id']}"
    changes = {"add_to_dataset_id": str(other.pk), "add_to_dataset_prefer_correction": True}
    changed = api.patch(url, changes).json()
    assert changed["add_to_dataset_name"] == "other"
    assert changed["add_to_dataset_prefer_correction"] is True
    assert api.patch(url, {"display_name": "New"}).json()["add_to_dataset_name"] == "other"
    queue = make_queue(workspace, "to review")
    changes = {"add_to_dataset_id": None, "add_to_annotation_queue_id": str(queue.pk)}
    changed = api.patch(url, changes).json()
    assert changed["add_to_dataset_id"] is None
    assert changed["add_to_dataset_prefer_correction"] is False
    assert "does nothing" in api.patch(url, {"add_to_annotation_queue_id": None}).json()["detail"]


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"add_to_dataset_id": None}, 422, "`add_to_dataset_id`"),
        ({"add_to_dataset_id": "x"}, 422, "add_to_dataset_id"),
        ({"add_to_dataset_id": str(UUID(int=1))}, 404, "Dataset not found."),
        (
            {
                "add_to_dataset_id": None,
                "evaluators": [{"structured": structured()}],
                "add_to_dataset_prefer_correction": True,
            },
            422,
            "`add_to_dataset_prefer_correction` needs an `add_to_dataset_id`",
        ),
        (
            {
                "add_to_dataset_id": None,
                "evaluators": [{"structured": structured()}],
                "extend_dataset_trace_retention": True,
            },
            422,
            "`extend_dataset_trace_retention` needs an `add_to_dataset_id`",
        ),
    ],
)
def test_rule_that_cannot_be_is_refused(api, body, fields, status, text):
    response = api.post("/runs/rules", body | fields)

    assert response.status_code == status, response.content
    assert text in response.content.decode()
    assert not EvaluatorRule.unscoped.exists()


def test_experiments_on_a_dataset_cannot_extend_it(api, dataset, body):
    scope = {"session_id": None, "dataset_id": str(dataset.pk)}

    response = api.post("/runs/rules", body | scope | {"add_to_dataset_id": str(dataset.pk)})

    assert response.status_code == 422
    assert "cannot extend it" in response.json()["detail"]


def test_dataset_of_another_workspace_is_unknown(api, other_workspace, body):
    foreign = create_dataset(workspace_id=other_workspace.pk, name="theirs")

    response = api.post("/runs/rules", body | {"add_to_dataset_id": str(foreign.pk)})

    assert response.status_code == 404
    assert not EvaluatorRule.unscoped.exists()


def test_rule_needs_the_right_to_change_datasets(make_api, workspace, body, rule, monkeypatch):
    monkeypatch.setitem(SCOPES, "write", SCOPES["write"] - {Permission.DATASETS_WRITE})
    api = make_api(workspace, "write")
    existing = f"/runs/rules/{rule()['id']}"
    other = create_dataset(workspace_id=workspace.pk, name="other")

    created = api.post("/runs/rules", body)
    changed = api.patch(existing, {"add_to_dataset_id": str(other.pk)})

    assert (created.status_code, changed.status_code) == (403, 403)
    assert EvaluatorRule.unscoped.get().target_dataset.name == "failures"


def test_form_creates_a_rule_that_fills_a_dataset(page, workspace, project, target):
    url = f"/o/{workspace.pk}/evaluators/new?project={project.pk}&template=collect"
    fields = {"name": "Failures", "sampling": "100", "filter": "", "queue": ""}
    refused = page.post(url, fields | {"target_dataset": ""})
    without = page.post(url, fields | {"target_dataset": "", "prefers_correction": "on"})
    assert (refused.status_code, without.status_code) == (422, 422)
    assert "Choose a queue, a dataset, or both." in refused.content.decode()

    created = page.post(
        url, fields | {"target_dataset": str(target.pk), "prefers_correction": "on"}
    )

    rule = EvaluatorRule.unscoped.get()
    assert (rule.target_dataset, rule.prefers_correction, rule.evaluator) == (target, True, None)
    assert f"/datasets/{target.pk}" in page.get(created.headers["Location"]).content.decode()
    edit = f"/o/{workspace.pk}/evaluators/{rule.pk}/edit"
    assert f'<option value="{target.pk}" selected>' in page.get(edit).content.decode()
