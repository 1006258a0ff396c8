"""Counts the calls and the dollars of rules by day, and keeps their limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

from django.db.models import F, Sum
from django.utils import timezone

from apps.evaluators.models import EvaluatorRule, EvaluatorSpend
from apps.evaluators.querysets import EvaluatorSpendQuerySet

DAYS_OF_WEEK = 7


@dataclass(frozen=True, slots=True)
class Spent:
    """What a rule has spent in a period."""

    call_count: int = 0
    cost: float = 0.0
    """In dollars."""


def first_day_of_week(day: date) -> date:
    """The Monday of the day's week; days are those of UTC."""
    return day - timedelta(days=day.weekday())


def today() -> date:
    return timezone.now().date()


def spent_in_week(rules: Collection[EvaluatorRule]) -> Mapping[UUID, Spent]:
    """Return what each of a workspace's rules has spent since Monday."""
    if not rules:
        return {}
    workspace_id = next(iter(rules)).workspace_id
    rows = EvaluatorSpend.objects.for_workspace(workspace_id).filter(
        rule__in=[rule.pk for rule in rules], day__gte=first_day_of_week(today())
    )
    sums = rows.order_by().values("rule_id").annotate(calls=Sum("call_count"), total=Sum("cost"))
    result = {rule.pk: Spent() for rule in rules}
    result |= {row["rule_id"]: Spent(row["calls"], row["total"]) for row in sums}
    return result


def count_call(rule: EvaluatorRule) -> str:
    """Count a call of today; return why there may be none, or an empty text.

    Calls that are made side by side may exceed the limit in dollars by their own cost.
    """
    limit = rule.weekly_limit_usd
    if limit is not None and spent_in_week([rule])[rule.pk].cost >= limit:
        return f"The rule has spent its {limit.normalize():f} dollars of the week."
    rows = _rows_of(rule)
    EvaluatorSpend.objects.for_workspace(rule.workspace_id).bulk_create(
        [EvaluatorSpend(workspace_id=rule.workspace_id, rule=rule, day=today())],
        ignore_conflicts=True,
    )
    updated = rows.filter(day=today(), call_count__lt=rule.max_calls_per_day).update(
        call_count=F("call_count") + 1
    )
    if not updated:
        return f"The rule has made its {rule.max_calls_per_day:,} calls of the day."
    return ""


def calls_of_today(rule: EvaluatorRule) -> int:
    return _rows_of(rule).filter(day=today()).values_list("call_count", flat=True).first() or 0


def return_call(rule: EvaluatorRule) -> None:
    """Take back the count of a call that was not made."""
    rows = _rows_of(rule).filter(day=today(), call_count__gt=0)
    rows.update(call_count=F("call_count") - 1)


def add_cost(rule: EvaluatorRule, cost: float) -> None:
    """Add the cost of a counted call."""
    _rows_of(rule).filter(day=today()).update(cost=F("cost") + cost)


def _rows_of(rule: EvaluatorRule) -> EvaluatorSpendQuerySet:
    return EvaluatorSpend.objects.for_workspace(rule.workspace_id).filter(rule=rule)
