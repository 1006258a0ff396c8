"""What the views of evaluators and rules have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.core.api import WorkspaceAPIView
from apps.evaluators.models import EvaluatorRule
from apps.evaluators.services import backfills, spend
from apps.evaluators.wire import backfill_json, rule_json
from apps.organizations.permissions import Permission


class EvaluatorAPIView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.EVALUATORS_READ,
        "*": Permission.EVALUATORS_WRITE,
    }


def rules_json(
    rows: Sequence[EvaluatorRule], *, with_progress: bool = False
) -> list[dict[str, Any]]:
    """The rules with their calls and dollars of the week, and their last backfill."""
    spent = spend.spent_in_week(rows)
    last = backfills.find_last(rows)
    return [
        rule_json(rule)
        | {"spend_usd": spent[rule.pk].cost, "trace_count": spent[rule.pk].call_count}
        | backfill_json(last.get(rule.pk), with_progress=with_progress)
        for rule in rows
    ]
