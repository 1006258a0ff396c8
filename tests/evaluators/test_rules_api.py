"""The rules that bind evaluators to runs, through the routes of the public clients."""

from __future__ import annotations

from uuid import UUID

import pytest

from apps.audit.models import Entry
from apps.evaluators.models import Evaluator, EvaluatorRule
from apps.tracing.services import ensure_project
from tests.evaluators.conftest import create_rule
from tests.factories.evaluators import create_judge_prompt, structured

pytestmark = pytest.mark.django_db


@pytest.fixture
def body(dataset):
    return {
        "display_name": "Correctness",
        "sampling_rate": 1.0,
        "dataset_id": str(dataset.pk),
        "evaluators": [{"structured": structured()}],
    }


def test_rule_has_the_fields_that_the_clients_require(api, body, workspace):
    created = create_rule(api, **body, is_enabled=True, include_extended_stats=False, webhooks=None)

    assert api.get(f"/runs/rules/{created['id']}").json() == created
    assert api.get("/runs/rules").json() == [created]
    expected = {
        "display_name": "Correctness",
        "tenant_id": str(workspace.pk),
        "sampling_rate": 1.0,
        "is_enabled": True,
        "dataset_name": "questions",
        "session_id": None,
        "evaluator_name": "Correctness",
        "evaluator_type": "llm",
        "evaluator_version": 1,
        "max_calls_per_day": 10_000,
        "spend_limit": None,
        "spend_usd": 0.0,
        "trace_count": 0,
    }
    assert {name: created[name] for name in expected} == expected
    [judge] = created["evaluators"]
    assert judge["structured"]["prompt"][0] == ["system", "You grade answers."]
    assert judge["structured"]["schema"] == structured()["schema"]
    actions = Entry.objects.values_list("action", flat=True)
    assert set(actions) >= {"evaluator.created", "evaluator_rule.created"}


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"dataset_id": None}, 422, "either a `session_id` or a `dataset_id`"),
        ({"session_id": str(UUID(int=1))}, 422, "either a `session_id` or a `dataset_id`"),
        ({"sampling_rate": 1.5}, 422, "`sampling_rate`"),
        ({"display_name": ""}, 422, "`display_name`"),
        ({"filter": "eq(nothing, 1)"}, 400, "nothing"),
        ({"evaluators": []}, 422, "either `evaluators`, `code_evaluators` or an `evaluator_id`"),
        ({"evaluators": [{"structured": structured()}] * 2}, 422, "a rule has one"),
        ({"evaluators": [{"structured": structured(prompt=None)}]}, 422, "`hub_ref` or `prompt`"),
        ({"evaluators": [{"structured": structured(schema=None)}]}, 422, "no response schema"),
        ({"evaluators": [{"structured": structured(model=None)}]}, 422, "no model"),
        (
            {"evaluators": [{"structured": structured(model={"provider": "x", "model": "y"})}]},
            422,
            "not supported",
        ),
        ({"spend_limit": {"limit_usd": 0, "window": "weekly"}}, 422, "`spend_limit.limit_usd`"),
        ({"spend_limit": {"limit_usd": "many"}}, 422, "`spend_limit.limit_usd`"),
        ({"spend_limit": {"limit_usd": 1, "window": "daily"}}, 422, "`spend_limit.window`"),
        ({"max_calls_per_day": 0}, 422, "`max_calls_per_day`"),
        ({"webhooks": [{"url": "https://a.example"}]}, 422, "`webhooks` is not supported"),
        (
            {"code_evaluators": [{"code": "def perform_eval(run): ..."}]},
            422,
            "either `evaluators`, `code_evaluators`",
        ),
        ({"group_by": "thread_id"}, 422, "`group_by` is not supported"),
        ({"backfill_from": "2999-01-01T00:00:00Z"}, 422, "The range of a backfill"),
        ({"target": "x"}, 422, "`target`"),
    ],
)
def test_rule_that_cannot_work_is_refused_with_the_reason(api, body, changes, status, text):
    response = api.post("/runs/rules", body | changes)

    assert response.status_code == status, response.content
    assert text in response.json()["detail"]
    assert not EvaluatorRule.unscoped.exists()
    assert not Evaluator.unscoped.exists()


def test_runs_of_judges_and_of_experiments_have_no_rule_of_a_project(api, workspace, experiment):
    judges = ensure_project(workspace.pk, "evaluators")
    body = {"display_name": "x", "evaluators": [{"structured": structured()}]}

    for project in (judges, experiment):
        response = api.post("/runs/rules", body | {"session_id": str(project.pk)})
        assert response.status_code == 422, response.content


def test_rules_are_filtered(api, body, project):
    first = create_rule(api, **body)
    online = {"session_id": str(project.pk), "evaluators": body["evaluators"]}
    second = create_rule(api, **(online | {"display_name": "Tone"}))

    def ids(**query):
        return [rule["id"] for rule in api.get("/runs/rules", **query).json()]

    assert ids() == [second["id"], first["id"]]
    assert ids(type="dataset") == ids(dataset_id=first["dataset_id"]) == [first["id"]]
    assert ids(type="session") == ids(session_id=str(project.pk)) == [second["id"]]
    assert ids(name_contains="tone") == ids(evaluator_id=second["evaluator_id"]) == [second["id"]]
    assert ids(id=first["id"]) == [first["id"]]
    assert api.get("/runs/rules", type="thread").status_code == 422


def test_change_of_a_rule_keeps_absent_fields(api, body):
    created = create_rule(api, **body, filter='eq(name, "step")')

    response = api.patch(
        f"/runs/rules/{created['id']}",
        {
            "display_name": "Right",
            "is_enabled": False,
            "spend_limit": {"limit_usd": "2.5", "window": "weekly"},
            "evaluators": [{"structured": structured("Is {output} right?")}],
        },
    )

    changed = response.json()
    assert response.status_code == 200, response.content
    assert (changed["display_name"], changed["is_enabled"]) == ("Right", False)
    assert changed["filter"] == 'eq(name, "step")'
    assert changed["spend_limit"] == {"limit_usd": "2.5000", "window": "weekly"}
    assert changed["evaluators"][0]["structured"]["prompt"][1] == ["human", "Is {output} right?"]
    moved = api.patch(f"/runs/rules/{created['id']}", {"dataset_id": None})
    assert (moved.status_code, moved.json()["code"]) == (422, "bad_evaluator_rule")


def test_evaluator_that_others_may_use_is_not_changed_through_a_rule(api, body, workspace):
    create_judge_prompt(workspace)
    llm = {"prompt_repo_handle": "grader"}
    shared = api.post(
        "/v1/platform/evaluators", {"name": "Shared", "type": "llm", "llm_evaluator": llm}
    ).json()["evaluator"]
    bound = {name: value for name, value in body.items() if name != "evaluators"}
    rule = create_rule(api, **bound, evaluator_id=shared["id"])

    response = api.patch(f"/runs/rules/{rule['id']}", {"evaluators": body["evaluators"]})

    assert response.status_code == 422
    assert rule["evaluators"][0]["structured"]["hub_ref"] == "grader:latest"
    assert api.delete(f"/runs/rules/{rule['id']}").status_code == 204
    assert Evaluator.unscoped.filter(pk=shared["id"]).exists()


def test_deleting_a_rule_deletes_the_evaluator_that_is_a_part_of_it(api, body):
    rule = create_rule(api, **body)

    assert api.delete(f"/runs/rules/{rule['id']}").status_code == 204

    assert not EvaluatorRule.unscoped.exists()
    assert not Evaluator.unscoped.exists()


def test_rule_of_another_workspace_is_unknown(api, make_api, body, other_workspace):
    rule = create_rule(api, **body)
    other = make_api(other_workspace)

    assert other.get("/runs/rules").json() == []
    for response in (
        other.get(f"/runs/rules/{rule['id']}"),
        other.patch(f"/runs/rules/{rule['id']}", {"is_enabled": False}),
        other.delete(f"/runs/rules/{rule['id']}"),
        other.get(f"/runs/rules/{rule['id']}/logs"),
        other.post(f"/runs/rules/{rule['id']}/trigger", {}),
        other.post("/runs/rules/trigger", {"rule_ids": [rule["id"]]}),
        other.post("/runs/rules", body),
        other.post("/runs/rules", body | {"evaluators": [], "evaluator_id": rule["evaluator_id"]}),
    ):
        assert response.status_code == 404, response.content


def test_rule_needs_rights_on_runs_and_feedback(make_api, workspace, body):
    assert make_api(workspace, "read").post("/runs/rules", body).status_code == 403
