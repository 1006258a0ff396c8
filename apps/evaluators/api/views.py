"""The API of evaluators and of the rules that bind them to runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID

from django.db.models import Max, Q
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, validate
from apps.core.errors import Invalid
from apps.core.http.loop_response import LoopResponse
from apps.core.json import dumps
from apps.datasets.api.request_schema import request_schema
from apps.evaluators.api.base import EvaluatorAPIView, rules_json
from apps.evaluators.api.parameters import (
    BulkDeletionSerializer,
    DeletionSerializer,
    EvaluatorListSerializer,
    LogPageSerializer,
    RuleListSerializer,
)
from apps.evaluators.models import Evaluation, EvaluatorRule, RuleBackfill
from apps.evaluators.services import backfills, evaluators, reruns, rules, trials
from apps.evaluators.services.rules import CREATE_PERMISSIONS
from apps.evaluators.services.trials import PreparedTrial
from apps.evaluators.wire import (
    BackfillBody,
    EvaluateExperimentBody,
    EvaluatorBody,
    EvaluatorChanges,
    RuleBody,
    RuleChanges,
    RuleTrialBody,
    TriggerBody,
    backfill_detail_json,
    decode_evaluator,
    decode_rule,
    evaluator_json,
    last_applied_json,
    log_json,
    rule_trial_json,
)
from apps.organizations.permissions import Permission
from apps.playground.setting import decode

MAX_RULES_PER_TRIGGER = 100


class EvaluatorsView(EvaluatorAPIView):
    @extend_schema(parameters=[EvaluatorListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """List the evaluators of the workspace with the rules that use them."""
        query = request.query_params
        params = validate(
            EvaluatorListSerializer, query.dict() | {"resource_id": query.getlist("resource_id")}
        )
        rows = evaluators.evaluators_of(self.workspace_id)
        if "name_contains" in params:
            text = params["name_contains"]
            rows = rows.filter(Q(name__icontains=text) | Q(created_by__name__icontains=text))
        if "type" in params:
            rows = rows.filter(type=params["type"])
        if "feedback_key" in params:
            rows = rows.filter(feedback_keys__contains=[params["feedback_key"]])
        for resource_id in params.get("resource_id") or ():
            bound = EvaluatorRule.objects.for_workspace(self.workspace_id).filter(
                Q(dataset=resource_id) | Q(project=resource_id)
            )
            rows = rows.filter(pk__in=bound.values("evaluator_id"))
        if "metadata" in params:
            if not isinstance(params["metadata"], dict):
                raise Invalid("metadata: must be a JSON object.")
            rows = rows.filter(metadata__contains=params["metadata"])
        sign = "-" if params["sort_by_desc"] else ""
        start = params["offset"]
        page = rows.order_by(f"{sign}{params['sort_by']}", "pk")[start : start + params["limit"]]
        return Response(
            {"evaluators": [evaluator_json(row) for row in page], "total": rows.count()}
        )

    @extend_schema(request=request_schema(EvaluatorBody), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create an LLM judge from a commit of a prompt with a response schema."""
        body = decode_evaluator(request.body, EvaluatorBody)
        created = evaluators.create_evaluator(caller=request.auth, body=body)
        evaluator = evaluators.get_evaluator(self.workspace_id, created.pk)
        return Response({"evaluator": evaluator_json(evaluator)}, status=201)

    @extend_schema(parameters=[BulkDeletionSerializer], responses=dict)
    def delete(self, request: ApiRequest) -> Response:
        """Delete several evaluators; the response names those that were not deleted."""
        query = request.query_params
        ids = [part for text in query.getlist("evaluator_ids") for part in text.split(",")]
        params = validate(BulkDeletionSerializer, query.dict() | {"evaluator_ids": ids})
        deleted, failed = evaluators.delete_evaluators(
            workspace_id=self.workspace_id,
            evaluator_ids=params["evaluator_ids"],
            with_rules=params["delete_run_rules"],
        )
        errors = [{"id": evaluator_id, "error": text} for evaluator_id, text in failed.items()]
        return Response({"succeeded": deleted, "failed": errors})


class EvaluatorView(EvaluatorAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, evaluator_id: UUID) -> Response:
        """Return an evaluator with the rules that use it."""
        return Response(evaluator_json(evaluators.get_evaluator(self.workspace_id, evaluator_id)))

    @extend_schema(request=request_schema(EvaluatorChanges), responses=dict)
    def patch(self, request: ApiRequest, evaluator_id: UUID) -> Response:
        """Change an evaluator; absent fields stay."""
        evaluator = evaluators.get_evaluator(self.workspace_id, evaluator_id)
        changes = decode_evaluator(request.body, EvaluatorChanges)
        changed = evaluators.update_evaluator(
            caller=request.auth, evaluator=evaluator, changes=changes
        )
        return Response({"evaluator": evaluator_json(changed)})

    @extend_schema(parameters=[DeletionSerializer], responses={204: None})
    def delete(self, request: ApiRequest, evaluator_id: UUID) -> Response:
        """Delete an evaluator, and with `delete_run_rules` its rules."""
        evaluator = evaluators.get_evaluator(self.workspace_id, evaluator_id)
        params = validate(DeletionSerializer, request.query_params)
        evaluators.delete_evaluator(evaluator=evaluator, with_rules=params["delete_run_rules"])
        return Response(status=204)


class EvaluatorRulesView(EvaluatorAPIView):
    @extend_schema(parameters=[RuleListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """List the rules of the workspace, newest first."""
        query = request.query_params
        params = validate(RuleListSerializer, query.dict() | {"id": query.getlist("id")})
        rows = rules.rules_of(self.workspace_id)
        columns = {
            "session_id": "project", "dataset_id": "dataset", "evaluator_id": "evaluator",
            "name_contains": "name__icontains",
        }  # fmt: skip
        for name, column in columns.items():
            if name in params:
                rows = rows.filter(**{column: params[name]})
        if params.get("id"):
            rows = rows.filter(pk__in=params["id"])
        if "type" in params:
            rows = rows.filter(project__isnull=params["type"] == "dataset")
        return Response(
            rules_json(list(rows.newest_first()), with_progress=params["include_backfill_progress"])
        )

    @extend_schema(request=request_schema(RuleBody), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a rule: an evaluator for the experiments on a dataset, or a project's traces."""
        for permission in CREATE_PERMISSIONS:
            request.auth.require(permission)
        body = decode_rule(request.body, RuleBody)
        rule = rules.create_rule(caller=request.auth, body=body)
        return Response(rules_json([rule])[0])


class ValidateRuleView(EvaluatorAPIView):
    @extend_schema(request=request_schema(RuleTrialBody), responses=list[dict[str, Any]])
    def post(self, request: ApiRequest) -> HttpResponseBase:
        """Ask the judge of a rule about the given values, without saving the rule."""
        for permission in (*CREATE_PERMISSIONS, Permission.PROMPTS_WRITE):
            request.auth.require(permission)
        body = decode_rule(request.body, RuleTrialBody)
        trial = trials.prepare_rule_trial(caller=request.auth, body=body)
        return LoopResponse(_try_judge(trial), content_type="application/json")


async def _try_judge(trial: PreparedTrial) -> AsyncGenerator[bytes, None]:
    result = await trials.make_trial(trial)
    yield dumps([rule_trial_json(trial.values, result.scores, result.judge_run_id)])


class RuleBackfillView(EvaluatorAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Return the last backfill of the rule with its progress."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        return Response(_backfill_json(backfills.get_last(rule)))

    @extend_schema(request=request_schema(BackfillBody), responses={202: dict})
    def post(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Apply the rule to the runs that started in a range of time."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        for permission in CREATE_PERMISSIONS:
            request.auth.require(permission)
        body = decode(request.body, BackfillBody)
        backfill = backfills.start(
            caller=request.auth,
            rule=rule,
            started_from=body.start_time,
            started_until=body.end_time,
        )
        return Response(_backfill_json(backfill), status=202)

    @extend_schema(responses=dict)
    def delete(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Cancel the last backfill, with its evaluations that wait."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        return Response(_backfill_json(backfills.cancel(rule=rule)))


def _backfill_json(backfill: RuleBackfill) -> dict[str, Any]:
    return backfill_detail_json(backfill, backfills.count_waiting(backfill))


class EvaluatorRuleView(EvaluatorAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Return a rule."""
        return Response(rules_json([rules.get_rule(self.workspace_id, evaluator_rule_id)])[0])

    @extend_schema(request=request_schema(RuleChanges), responses=dict)
    def patch(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Change a rule; absent fields stay."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        for permission in CREATE_PERMISSIONS:
            request.auth.require(permission)
        changes = decode_rule(request.body, RuleChanges)
        changed = rules.update_rule(caller=request.auth, rule=rule, changes=changes)
        return Response(rules_json([changed])[0])

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Delete a rule; the feedback that it wrote stays."""
        rules.delete_rule(rule=rules.get_rule(self.workspace_id, evaluator_rule_id))
        return Response(status=204)


class EvaluatorRuleLogsView(EvaluatorAPIView):
    @extend_schema(parameters=[LogPageSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """List the evaluations of the rule, newest first."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        params = validate(LogPageSerializer, request.query_params)
        rows = Evaluation.objects.for_workspace(self.workspace_id).filter(rule=rule)
        rows = rows.filter(
            **{name: params[name] for name in ("status", "run_id") if name in params}
        )
        start, stop = params["offset"], params["offset"] + params["limit"]
        return Response([log_json(row) for row in rows.newest_first()[start:stop]])


class EvaluatorRuleLastAppliedView(EvaluatorAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Return when the rule last evaluated a run."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        rows = Evaluation.objects.for_workspace(self.workspace_id).filter(rule=rule)
        return Response(last_applied_json(rule, rows.aggregate(at=Max("ended_at"))["at"]))


class EvaluateExperimentView(EvaluatorAPIView):
    @extend_schema(request=request_schema(EvaluateExperimentBody), responses={202: dict})
    def post(self, request: ApiRequest, experiment_id: UUID) -> Response:
        """Apply rules of the dataset again to the rows of an experiment."""
        for permission in CREATE_PERMISSIONS:
            request.auth.require(permission)
        body = decode(request.body or b"{}", EvaluateExperimentBody)
        count = reruns.evaluate_experiment(
            workspace_id=self.workspace_id,
            experiment_id=experiment_id,
            rule_ids=body.rule_ids,
            only_failed=body.only_failed,
        )
        return Response({"evaluation_count": count}, status=202)


class TriggerEvaluatorRuleView(EvaluatorAPIView):
    @extend_schema(request=None, responses={202: dict})
    def post(self, request: ApiRequest, evaluator_rule_id: UUID) -> Response:
        """Evaluate the runs now that the rule has found, instead of at their time."""
        rule = rules.get_rule(self.workspace_id, evaluator_rule_id)
        return Response({"triggered_count": rules.trigger_rules(rules=[rule])}, status=202)


class TriggerEvaluatorRulesView(EvaluatorAPIView):
    @extend_schema(request=request_schema(TriggerBody), responses={202: dict})
    def post(self, request: ApiRequest) -> Response:
        """Evaluate the runs now that these rules have found."""
        ids = decode(request.body, TriggerBody).rule_ids
        if len(ids) > MAX_RULES_PER_TRIGGER:
            raise Invalid(f"`rule_ids` has at most {MAX_RULES_PER_TRIGGER} ids.")
        rows = [rules.get_rule(self.workspace_id, rule_id) for rule_id in dict.fromkeys(ids)]
        return Response({"triggered_count": rules.trigger_rules(rules=rows)}, status=202)
