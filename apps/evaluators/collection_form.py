"""The form of a rule that only collects runs, in an annotation queue or a dataset."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.evaluators.forms import RuleForm
from apps.evaluators.models import EvaluatorRule
from apps.evaluators.wire import RuleBody, RuleChanges


class CollectionRuleForm(RuleForm):
    """Creates or changes a rule without an evaluator."""

    collects_only = True
    may_change_judge = True

    def __init__(
        self, workspace_id: UUID, data: Any = None, *, rule: EvaluatorRule | None = None
    ) -> None:
        initial = {"name": "To review"} if rule is None else RuleForm.values_of(rule)
        super().__init__(workspace_id, data, rule=rule, initial=initial)
        del self.fields["max_calls_per_day"]
        for name, text in (
            ("queue", "People review the runs there."),
            ("target_dataset", "Each run becomes an example, once."),
            ("sampling", "The share of the runs that is added."),
            (
                "filter",
                'Only matching runs are added, such as `eq(status, "error")`. Empty: all runs.',
            ),
        ):
            self.fields[name].help_text = text

    def clean(self) -> dict[str, Any]:
        values = super().clean()
        if "queue" in values and not (values["queue"] or values.get("target_dataset")):
            self.add_error("queue", "Choose a queue, a dataset, or both.")
        return values

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
