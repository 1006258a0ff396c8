"""What evaluators have spent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, validate
from apps.core.errors import Invalid
from apps.evaluators.api.base import EvaluatorAPIView
from apps.evaluators.api.parameters import SpendSerializer
from apps.evaluators.models import EvaluatorRule
from apps.evaluators.services import spend, spend_days
from apps.evaluators.services.spend import DAYS_OF_WEEK, Spent
from apps.evaluators.services.spend_days import EVALUATOR, RESOURCE, RULE, SpendGroup


class EvaluatorSpendView(EvaluatorAPIView):
    @extend_schema(parameters=[SpendSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return calls and dollars of seven days, by evaluator, resource or rule.

        With `evaluator_id`, `session_id` or `dataset_id`, by each of its rules.
        """
        query = request.query_params
        params = validate(
            SpendSerializer, query.dict() | {"resource_id": query.getlist("resource_id")}
        )
        first_day = params["period_start"]
        try:
            last_day = first_day + timedelta(days=DAYS_OF_WEEK - 1)
            first_day - timedelta(days=DAYS_OF_WEEK)
        except OverflowError:
            raise Invalid("period_start: out of range.") from None
        rules = list(spend_days.select_rules(self.workspace_id, params))
        group_by = params.get("group_by", RULE)
        groups = spend_days.group_spend(self.workspace_id, rules, group_by, first_day)
        of_week = spend.spent_in_week(rules) if group_by == RULE else {}
        return Response(
            {
                "groups": [
                    _group_fields(group, group_by)
                    | _spend_fields(group)
                    | {"spend_limit": _limit(group.rules[0], of_week.get(group.rules[0].pk))}
                    for group in groups
                ],
                "period_start": first_day,
                "period_end": last_day,
            }
        )


def _group_fields(group: SpendGroup, group_by: str) -> dict[str, Any]:
    rule = group.rules[0]
    result: dict[str, Any] = {}
    if group_by in {EVALUATOR, RULE} and rule.evaluator is not None:
        result |= {"evaluator_id": rule.evaluator_id, "evaluator_name": rule.evaluator.name}
    if group_by in {RESOURCE, RULE}:
        result |= {
            "dataset_id": rule.dataset_id,
            "dataset_name": None if rule.dataset is None else rule.dataset.name,
            "session_id": rule.project_id,
            "session_name": None if rule.project is None else rule.project.name,
        }
    if group_by == RULE:
        result |= {"run_rule_id": rule.pk, "run_rule_name": rule.name}
    return result


def _spend_fields(group: SpendGroup) -> dict[str, Any]:
    return {
        "days": [
            {"date": day, "spend_usd": spent.cost, "trace_count": spent.call_count}
            for day, spent in group.days.items()
        ],
        "total_spend_usd": group.total.cost,
        "total_trace_count": group.total.call_count,
        "prev_total_spend_usd": group.previous.cost,
        "prev_total_trace_count": group.previous.call_count,
    }


def _limit(rule: EvaluatorRule, of_week: Spent | None) -> dict[str, Any] | None:
    """The limit of a rule, with the share of it that the current week has used."""
    if of_week is None or rule.weekly_limit_usd is None:
        return None
    limit = float(rule.weekly_limit_usd)
    return {
        "limit_usd": limit,
        "window": "weekly",
        "utilization_pct": 100 * of_week.cost / limit,
    }
