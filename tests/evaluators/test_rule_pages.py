"""Pages of rules and of the runs they were applied to, spend by day, and judges that are tried."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from django.utils import timezone
from langsmith.types.rule import Rule

from apps.evaluators.models import Evaluator, EvaluatorRule, EvaluatorSpend
from apps.evaluators.services import spend
from apps.feedback.models import Feedback
from tests.evaluators.conftest import add_run, create_rule, evaluate, grade
from tests.evaluators.test_pages import shared_connection
from tests.factories.evaluators import structured
from tests.providers.fake_provider import Reply

__all__ = ["shared_connection"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]
FUNCTION = {"code": "def perform_eval(run): return {'exact': 1}", "language": "python"}
V2 = "/api/v2/runs/rules"


@pytest.fixture
def rules(api, dataset, project):
    """A rule with a judge on the dataset, then one with a function on the project."""
    judge = create_rule(
        api,
        dataset_id=str(dataset.pk),
        evaluators=[{"structured": structured("Is {output} right?")}],
        spend_limit={"limit_usd": 4, "window": "weekly"},
    )
    function = create_rule(
        api, display_name="Exact", session_id=str(project.pk), code_evaluators=[FUNCTION]
    )
    return judge, function


def test_page_of_rules_has_the_shape_of_v2(api, rules, project):
    judge, function = rules

    page = api.get(V2).json()

    assert [item["id"] for item in page["items"]] == [function["id"], judge["id"]]
    assert page["next_cursor"] is None
    first, second = page["items"]
    assert (first["project_id"], first["project_name"]) == (str(project.pk), project.name)
    assert "session_id" not in first
    assert first["code_evaluators"][0]["language"] == "PYTHON"
    assert second["spend_limit"] == {"limit_usd": "4.0000", "window": "WEEKLY"}
    for name in ("transient", "extend_only", "is_managed_evaluator", "use_corrections_dataset"):
        assert first[name] is False


def test_generated_client_reads_the_page(rules, api):
    for item in api.get(V2).json()["items"]:
        assert Rule.model_validate(item).display_name == item["display_name"]


def test_pages_are_continued_and_filtered(api, rules, dataset):
    judge, function = rules
    first = api.get(V2, page_size=1).json()
    api.patch(f"/runs/rules/{judge['id']}", {"display_name": "Right"})

    second = api.get(V2, page_size=1, cursor=first["next_cursor"]).json()

    assert [item["id"] for item in first["items"]] == [function["id"]]
    assert second == {"items": [], "next_cursor": None}  # the other is the newest now
    assert [row["id"] for row in api.get(V2).json()["items"]] == [judge["id"], function["id"]]

    def ids(**query):
        return [row["id"] for row in api.get(V2, **query).json()["items"]]

    assert ids(type="dataset") == ids(dataset_id=str(dataset.pk)) == [judge["id"]]
    assert ids(type="PROJECT") == ids(name_contains="exac") == [function["id"]]
    assert ids(id=judge["id"]) == ids(evaluator_id=judge["evaluator_id"]) == [judge["id"]]
    assert api.get(V2, cursor="x").status_code == 400
    assert api.get(V2, tag_value_id=judge["id"]).status_code == 422
    assert api.get(V2, page_size=101).status_code == 422


def test_applied_runs_have_an_outcome(api, rules, experiment, provider):
    judge, _ = rules
    EvaluatorRule.unscoped.update(weekly_limit_usd=None)
    answers = iter([Reply(grade()), Reply(status=400, error="No such model.")])
    provider.answer = lambda _: next(answers)
    run_ids = []
    for _ in range(2):
        run_ids.append(str(add_run(experiment.workspace, experiment)))
        evaluate()
    add_run(experiment.workspace, experiment)  # waits
    url = f"/runs/rules/{judge['id']}/logs/v2"

    first = api.get(url, limit=1).json()
    second = api.get(url, limit=1, cursor=first["cursor"]).json()

    [failed], [scored] = first["logs"], second["logs"]
    assert second["cursor"] is None
    assert [failed["run_id"], scored["run_id"]] == run_ids[::-1]
    assert (failed["evaluators"]["outcome"], scored["evaluators"]["outcome"]) == (
        "error",
        "success",
    )
    assert "No such model." in failed["evaluators"]["payload"]["error"]
    assert scored["evaluators"]["payload"]["feedback"][0]["key"] == "correctness"
    assert (scored["run_type"], scored["run_session_id"]) == ("chain", str(experiment.pk))
    assert api.get(url, backfill=True).json() == {"logs": [], "cursor": None}
    past = (timezone.now() - timedelta(hours=1)).isoformat()
    assert api.get(url, end_time=past).json()["logs"] == []
    assert len(api.get(url, start_time=past, session_id=str(experiment.pk)).json()["logs"]) == 2
    assert api.get(url, cursor="AAAA").status_code == 400


def test_spend_is_summed_by_day_and_group(api, rules, dataset, project):
    judge, function = rules
    today = spend.today()
    monday = spend.first_day_of_week(today)
    for rule, days_ago, calls, cost in (
        (judge, 0, 3, 1.5), (judge, 2, 1, 0.5), (judge, 9, 4, 2.0), (function, 0, 7, 0.0),
    ):  # fmt: skip
        row = EvaluatorRule.unscoped.get(pk=rule["id"])
        EvaluatorSpend.unscoped.create(
            workspace=row.workspace,
            rule=row,
            day=today - timedelta(days=days_ago),
            call_count=calls,
            cost=cost,
        )
    url = "/api/v1/platform/evaluators/spend"
    start = (today - timedelta(days=6)).isoformat()

    body = api.get(url, period_start=start, group_by="evaluator").json()

    assert (body["period_start"], body["period_end"]) == (start, today.isoformat())
    first, second = body["groups"]
    assert (first["evaluator_id"], first["evaluator_name"]) == (
        judge["evaluator_id"],
        "Correctness",
    )
    assert (first["total_spend_usd"], first["total_trace_count"]) == (2.0, 4)
    assert (first["prev_total_spend_usd"], first["prev_total_trace_count"]) == (2.0, 4)
    assert [day["trace_count"] for day in first["days"]] == [0, 0, 0, 0, 1, 0, 3]
    assert (second["total_spend_usd"], second["total_trace_count"]) == (0.0, 7)
    by_rule = api.get(url, period_start=start, group_by="run_rule").json()["groups"]
    of_week = 1.5 + (0.5 if today - timedelta(days=2) >= monday else 0)
    assert by_rule[0]["run_rule_id"] == judge["id"]
    assert by_rule[0]["spend_limit"] == {
        "limit_usd": 4.0,
        "window": "weekly",
        "utilization_pct": 25 * of_week,
    }
    resources = api.get(url, period_start=start, group_by="resource").json()["groups"]
    assert [group["dataset_name"] for group in resources] == [dataset.name, None]
    assert resources[1]["session_id"] == str(project.pk)

    def names(**query):
        groups = api.get(url, period_start=start, **query).json()["groups"]
        return [group["run_rule_name"] for group in groups]

    assert names(session_id=str(project.pk)) == ["Exact"]
    assert names(dataset_id=str(dataset.pk)) == ["Correctness"]
    assert names(evaluator_id=function["evaluator_id"]) == ["Exact"]
    assert names(group_by="run_rule", type="code") == ["Exact"]
    assert names(group_by="run_rule", feedback_key="exact") == ["Exact"]
    assert names(group_by="run_rule", resource_id=str(dataset.pk)) == ["Correctness"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"group_by": "evaluator"}, "period_start"),
        ({"period_start": "2026-11-23"}, "exactly one of"),
        (
            {"period_start": "2026-11-23", "group_by": "evaluator", "dataset_id": str(Feedback)},
            "dataset_id",
        ),
        ({"period_start": "2026-11-23", "group_by": "day"}, "group_by"),
        (
            {
                "period_start": "2026-11-23",
                "dataset_id": "00000000-0000-0000-0000-000000000000",
                "type": "llm",
            },
            "`type` needs `group_by`",
        ),
        ({"period_start": "0001-01-01", "group_by": "evaluator"}, "out of range"),
        ({"period_start": "9999-12-31", "group_by": "evaluator"}, "out of range"),
        ({"period_start": "2026-11-23", "group_by": "evaluator", "agent_id": "x"}, "`agent_id`"),
    ],
)
def test_bad_parameters_of_spend_are_refused(api, query, text):
    response = api.get("/v1/platform/evaluators/spend", **query)

    assert response.status_code == 422
    assert text in response.json()["detail"]


@pytest.mark.parametrize("start", ["0001-01-08", "9999-12-25"])
def test_first_and_last_week_of_the_calendar_have_a_spend(api, start):
    response = api.get("/v1/platform/evaluators/spend", period_start=start, group_by="evaluator")

    assert response.status_code == 200
    assert (response.json()["period_start"], response.json()["groups"]) == (start, [])


@pytest.mark.usefixtures("shared_connection")
def test_judge_of_a_rule_is_tried_on_given_values(api, dataset, provider):
    provider.answer = Reply(grade(correctness=False, comment="Wrong."))
    judge = structured(variable_mapping={"output": "output.answer"})
    body = {
        "display_name": "Correctness",
        "sampling_rate": 1,
        "dataset_id": str(dataset.pk),
        "evaluators": [{"structured": judge}],
        "test_inputs": {"question": "Why?"},
        "test_outputs": {"answer": "So."},
        "test_reference_outputs": {"answer": "Because."},
    }

    response = api.post("/runs/rules/validate", body)

    assert response.status_code == 200
    [result] = _collect(response)
    assert result["inputs"] == {"output": "So.", "reference": {"answer": "Because."}}
    assert result["outputs"] == {"correctness": 0.0}
    assert result["feedback"] == [{"key": "correctness", "score": 0.0, "comment": "Wrong."}]
    assert result["evaluator_run_id"]
    [request] = provider.bodies
    assert "Grade So. against" in request["messages"][-1]["content"]
    assert not EvaluatorRule.unscoped.exists()
    assert not Evaluator.unscoped.exists()
    assert not Feedback.unscoped.exists()


def _collect(response):
    async def read():
        return b"".join([piece async for piece in response.stream])

    return json.loads(asyncio.run(read()))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"test_outputs": None}, "no `output.answer`"),
        ({"evaluators": None, "code_evaluators": [FUNCTION]}, "only judges"),
        ({"test_attachments": {"a": 1}}, "test_attachments"),
        ({"evaluators": []}, "either `evaluators`"),
        ({"filter": "eq("}, ""),
    ],
)
def test_judge_that_cannot_be_tried_is_refused(api, dataset, changes, text):
    body = {
        "display_name": "Correctness",
        "dataset_id": str(dataset.pk),
        "evaluators": [{"structured": structured(variable_mapping={"output": "output.answer"})}],
        "test_outputs": {"answer": "So."},
        "test_reference_outputs": {},
    }

    response = api.post("/runs/rules/validate", body | changes)

    assert response.status_code in {400, 422}, response.content
    assert text in response.json()["detail"]


def test_trial_of_a_rule_needs_the_right_to_call_models(make_api, workspace, rules):
    reader = make_api(workspace, "read")

    assert reader.post("/runs/rules/validate", {}).status_code == 403
    assert reader.get(V2).status_code == 200


def test_another_workspace_sees_nothing(make_api, other_workspace, rules, provider):
    other = make_api(other_workspace)
    judge, _ = rules

    assert other.get(V2).json()["items"] == []
    assert other.get(f"/runs/rules/{judge['id']}/logs/v2").status_code == 404
    start = spend.today().isoformat()
    body = other.get("/v1/platform/evaluators/spend", period_start=start, group_by="run_rule")
    assert body.json()["groups"] == []
    entity = {"period_start": start, "evaluator_id": judge["evaluator_id"]}
    assert other.get("/v1/platform/evaluators/spend", **entity).json()["groups"] == []
