"""The form of a rule with a function."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms

from apps.core.errors import AppError
from apps.evaluators.code.checks import MAX_CODE_BYTES, check_code
from apps.evaluators.forms import RuleForm
from apps.evaluators.models import EvaluatorRule
from apps.evaluators.wire import CodeBody, RuleBody, RuleChanges

TEMPLATE = '''\
def perform_eval(run, example):
    """Return scores by feedback key: numbers, yes or no, or a category.

    `run` has inputs, outputs, error, metadata and so on, as the API has them. `example` is that of
    an experiment's row, None for the traces of a project.
    """
    expected = (example or {}).get("outputs")
    return {"exact": run["outputs"] == expected}
'''


class CodeRuleForm(RuleForm):
    """Creates or changes a rule with its function."""

    is_code = True

    code = forms.CharField(
        max_length=MAX_CODE_BYTES,
        strip=False,
        label="Python",
        widget=forms.Textarea(attrs={"rows": 22}),
        help_text="`perform_eval(run, example)`, or `perform_eval(run)`. The standard library is"
        " there, a network is not; a run has 20 seconds and 512 MB.",
    )

    def __init__(
        self, workspace_id: UUID, data: Any = None, *, rule: EvaluatorRule | None = None
    ) -> None:
        evaluator = None if rule is None else rule.evaluator
        initial = {"code": TEMPLATE}
        if rule is not None and evaluator is not None:
            initial = RuleForm.values_of(rule) | {"code": evaluator.code}
        super().__init__(workspace_id, data, rule=rule, initial=initial)
        self.may_change_judge = evaluator is None or evaluator.is_part_of_rule
        if not self.may_change_judge:
            self.fields["code"].disabled = True

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"].replace("\r\n", "\n")
        try:
            if self.may_change_judge:
                check_code(code, self.cleaned_data.get("name", ""))
        except AppError as error:
            raise forms.ValidationError(error.detail) from None
        return code

    def function(self) -> CodeBody:
        """The function of a valid form."""
        return CodeBody(self.cleaned_data["code"])

    def body(self, *, dataset_id: UUID | None, project_id: UUID | None) -> RuleBody:
        """The new rule of a valid form."""
        return RuleBody(
            display_name=self.cleaned_data["name"],
            dataset_id=dataset_id,
            session_id=project_id,
            code_evaluators=[self.function()],
            **self.limits(),
        )

    def changes(self) -> RuleChanges:
        """The changes of a valid form."""
        changes = RuleChanges(display_name=self.cleaned_data["name"], **self.limits())
        if self.may_change_judge:
            changes.code_evaluators = [self.function()]
        return changes
