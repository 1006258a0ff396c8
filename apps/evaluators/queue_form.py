"""The form of a rule that only puts runs in an annotation queue."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.evaluators.forms import RuleForm
from apps.evaluators.models import EvaluatorRule
from apps.evaluators.wire import RuleBody, RuleChanges


class QueueRuleForm(RuleForm):
    """Creates or changes a rule without an evaluator."""

    is_queue = True
    may_change_judge = True

    def __init__(
        self, workspace_id: UUID, data: Any = None, *, rule: EvaluatorRule | None = None
    ) -> None:
        initial = {"name": "To review"} if rule is None else RuleForm.values_of(rule)
        super().__init__(workspace_id, data, rule=rule, initial=initial)
        del self.fields["max_calls_per_day"]
        self.fields["queue"].required = True
        self.fields["queue"].help_text = "Where people review the runs."
        self.fields["sampling"].help_text = "The share of the runs that is added."
        self.fields[
            "filter"
        ].help_text = (
            'Only matching runs are added, such as `eq(status, "error")`. Empty: all runs.'
        )

    def body(self, *, dataset_id: UUID | None, project_id: UUID | None) -> RuleBody:
        """The new rule of a valid form."""
        return RuleBody(
            display_name=self.cleaned_data["name"],
            dataset_id=dataset_id,
            session_id=project_id,
            **self.limits(),
        )

    def changes(self) -> RuleChanges:
        """The changes of a valid form."""
        return RuleChanges(display_name=self.cleaned_data["name"], **self.limits())
