"""What evaluators have spent on each day of a week, by evaluator, rule or resource."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.evaluators.models import EvaluatorRule, EvaluatorSpend
from apps.evaluators.querysets import EvaluatorRuleQuerySet
from apps.evaluators.services.spend import DAYS_OF_WEEK, Spent

EVALUATOR, RESOURCE, RULE = "evaluator", "resource", "run_rule"
SPEND_GROUPS = (EVALUATOR, RESOURCE, RULE)


@dataclass(frozen=True, slots=True)
class SpendGroup:
    """The rules of one group: of a resource, of an evaluator, or one rule."""

    rules: list[EvaluatorRule] = field(default_factory=list)
    days: dict[date, Spent] = field(default_factory=dict)
    """All of the seven days."""
    previous: Spent = field(default_factory=Spent)
    """Of the seven days before."""

    @property
    def total(self) -> Spent:
        return _sum(self.days.values())


def select_rules(workspace_id: UUID, params: Mapping[str, Any]) -> EvaluatorRuleQuerySet:
    """The rules with evaluators that the parameters name, also disabled ones."""
    rows = EvaluatorRule.objects.for_workspace(workspace_id).filter(evaluator__isnull=False)
    columns = {
        "evaluator_id": "evaluator", "session_id": "project", "dataset_id": "dataset",
        "type": "evaluator__type",
    }  # fmt: skip
    rows = rows.filter(**{columns[name]: params[name] for name in columns if name in params})
    if "feedback_key" in params:
        rows = rows.filter(evaluator__feedback_keys__contains=[params["feedback_key"]])
    for resource_id in params.get("resource_id") or ():
        bound = EvaluatorRule.objects.for_workspace(workspace_id).filter(
            Q(dataset=resource_id) | Q(project=resource_id)
        )
        rows = rows.filter(evaluator__in=bound.values("evaluator"))
    rows = rows.select_related("evaluator", "dataset", "project")
    return rows.defer("evaluator__setting", "evaluator__code").newest_first()


def group_spend(
    workspace_id: UUID, rules: Iterable[EvaluatorRule], group_by: str, first_day: date
) -> list[SpendGroup]:
    """Return the groups with what their rules spent in seven days, the costliest first."""
    groups: dict[UUID, SpendGroup] = defaultdict(SpendGroup)
    by_rule = {}
    for rule in rules:
        key = {
            EVALUATOR: rule.evaluator_id,
            RESOURCE: rule.dataset_id or rule.project_id,
            RULE: rule.pk,
        }[group_by]
        assert key is not None  # noqa: S101  (the rules have evaluators, and a dataset or project)
        groups[key].rules.append(rule)
        by_rule[rule.pk] = key
    spent = _load(workspace_id, by_rule, first_day)
    week = [first_day + timedelta(days=number) for number in range(DAYS_OF_WEEK)]
    filled = [
        SpendGroup(
            group.rules,
            {day: _sum(spent[key][day]) for day in week},
            _sum(item for day, items in spent[key].items() if day < first_day for item in items),
        )
        for key, group in groups.items()
    ]
    return sorted(filled, key=lambda group: (-group.total.cost, -group.total.call_count))


def _load(
    workspace_id: UUID, by_rule: Mapping[UUID, UUID], first_day: date
) -> Mapping[UUID, Mapping[date, list[Spent]]]:
    """The spend of these and the seven days before, by group and day."""
    earliest = first_day - timedelta(days=DAYS_OF_WEEK)
    last_day = first_day + timedelta(days=DAYS_OF_WEEK - 1)
    rows = EvaluatorSpend.objects.for_workspace(workspace_id).filter(
        rule__in=list(by_rule), day__gte=earliest, day__lte=last_day
    )
    spent: dict[UUID, dict[date, list[Spent]]] = defaultdict(lambda: defaultdict(list))
    for rule_id, day, calls, cost in rows.values_list("rule_id", "day", "call_count", "cost"):
        spent[by_rule[rule_id]][day].append(Spent(calls, cost))
    return spent


def _sum(items: Iterable[Spent]) -> Spent:
    items = list(items)
    return Spent(sum(item.call_count for item in items), sum(item.cost for item in items))
