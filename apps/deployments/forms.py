from __future__ import annotations

from typing import Any

from django import forms

from apps.deployments.models import MOST_REQUESTS, Deployment


class VariablesField(forms.CharField):
    """Lines `NAME=value` as in an env file; comments and empty lines are left out."""

    widget = forms.Textarea

    def clean(self, value: Any) -> Any:
        found: dict[str, str] = {}
        for number, line in enumerate(super().clean(value).splitlines(), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            name, sign, given = text.removeprefix("export ").partition("=")
            if not sign or not name.strip():
                raise forms.ValidationError(f"Line {number} is not in the form NAME=value.")
            found[name.strip()] = _unquoted(given.strip())
        return found


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


class SourceForm(forms.Form):
    """Where the code of a deployment's next revision comes from."""

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
    def of(deployment: Deployment) -> dict[str, Any]:
        return {name: getattr(deployment, name) for name in ("branch", "config_path", "tracing")}


class SettingsForm(SourceForm):
    """What may be changed about a deployment that is there."""

    request_limit = forms.IntegerField(
        label="Request limit",
        min_value=1,
        max_value=MOST_REQUESTS,
        required=False,
        help_text="Shared by all callers. Empty for no limit.",
    )
    request_limit_seconds = forms.IntegerField(
        label="Limit window, seconds", min_value=1, max_value=86_400, required=False
    )

    @staticmethod
    def of(deployment: Deployment) -> dict[str, Any]:
        limit = ("request_limit", "request_limit_seconds")
        return SourceForm.of(deployment) | {name: getattr(deployment, name) for name in limit}

    def clean_request_limit_seconds(self) -> int:
        given: int | None = self.cleaned_data["request_limit_seconds"]
        return given or int(self.initial["request_limit_seconds"])


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


class VariablesForm(forms.Form):
    """The whole environment of a deployment, anew."""

    variables = VariablesField(
        label="All variables",
        help_text="One NAME=value per line. These variables replace all existing ones.",
    )
