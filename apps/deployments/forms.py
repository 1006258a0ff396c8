from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import QueryDict

from apps.deployments.env_file import InvalidStatement, parse_env_file
from apps.deployments.models import MAX_REQUEST_LIMIT, Deployment


class VariablesField(forms.CharField):
    """The text of a `.env` file as a dict."""

    widget = forms.Textarea

    def clean(self, value: Any) -> Any:
        try:
            return parse_env_file(super().clean(value), {}, strict=True)
        except InvalidStatement as error:
            raise forms.ValidationError(str(error)) from None


class SourceForm(forms.Form):
    """The source of a deployment's next revision."""

    branch = forms.CharField(
        max_length=255,
        required=False,
        help_text="Leave empty to use the default branch of the repository.",
    )
    config_path = forms.CharField(max_length=500, label="Path of langgraph.json")
    tracing = forms.BooleanField(
        required=False,
        label="Trace all runs",
        help_text="Traces go to the project with the name of the deployment.",
    )

    @staticmethod
    def initial_values(deployment: Deployment) -> dict[str, Any]:
        return {name: getattr(deployment, name) for name in ("branch", "config_path", "tracing")}


class SettingsForm(SourceForm):
    """The editable settings of a deployment."""

    request_limit = forms.IntegerField(
        label="Request limit",
        min_value=1,
        max_value=MAX_REQUEST_LIMIT,
        required=False,
        help_text="Shared by all callers. Empty for no limit.",
    )
    request_limit_seconds = forms.IntegerField(
        label="Limit window, seconds", min_value=1, max_value=86_400, required=False
    )

    @staticmethod
    def initial_values(deployment: Deployment) -> dict[str, Any]:
        limit = ("request_limit", "request_limit_seconds")
        return SourceForm.initial_values(deployment) | {
            name: getattr(deployment, name) for name in limit
        }

    def clean_request_limit_seconds(self) -> int:
        seconds: int | None = self.cleaned_data["request_limit_seconds"]
        return seconds or int(self.initial["request_limit_seconds"])


class NewDeploymentForm(SourceForm):
    """A deployment from a Git repository."""

    name = forms.CharField(max_length=63, help_text="Use letters, digits and dashes.")
    repo_url = forms.CharField(max_length=2000, label="Git URL")
    variables = VariablesField(
        required=False,
        label="Environment variables",
        help_text="One NAME=value per line. Values are stored encrypted and never shown again.",
    )

    field_order = ["name", "repo_url", "branch", "config_path", "variables", "tracing"]


VALUE_PREFIX = "value."


class VariablesForm(forms.Form):
    """Changes to single variables: new values, names to remove, and added variables.

    An empty field `value.<NAME>` leaves the variable unchanged.
    """

    removed = forms.MultipleChoiceField(required=False)
    added = VariablesField(
        required=False,
        label="Add variables",
        help_text="One NAME=value per line. Values are stored encrypted and never shown again.",
    )

    def __init__(self, data: QueryDict | None, *, names: Sequence[str]) -> None:
        super().__init__(data)
        removed = self.fields["removed"]
        assert isinstance(removed, forms.MultipleChoiceField)  # noqa: S101
        removed.choices = [(name, name) for name in names]
        self._names = names

    @property
    def values(self) -> dict[str, str]:
        """The new values by name."""
        fields = {name: self.data.get(f"{VALUE_PREFIX}{name}", "") for name in self._names}
        changed = {name: value for name, value in fields.items() if value}
        return changed | dict(self.cleaned_data["added"])
