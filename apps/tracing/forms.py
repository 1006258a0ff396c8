"""Forms of the project settings and of the workspace settings of tracing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms

from apps.core.errors import AppError
from apps.core.linear_regex import compile_pattern
from apps.feedback.models import FeedbackConfig
from apps.trace_store import filters
from apps.trace_store.models import ModelPrice
from apps.trace_store.pricing.entries import MATCH_PATHS
from apps.tracing.models import Project, TraceTier
from apps.tracing.services.projects import MAX_NAME_LENGTH
from apps.tracing.services.retention import RetentionPolicy


class RunFilterField(forms.CharField):
    """A filter of runs in the API's language; the error names the place of a fault."""

    def clean(self, value: Any) -> str:
        text: str = super().clean(value)
        try:
            if text:
                filters.parse(text)
        except AppError as error:
            raise forms.ValidationError(error.detail) from None
        return text


class ProjectForm(forms.Form):
    name = forms.CharField(max_length=MAX_NAME_LENGTH, label="Name")
    description = forms.CharField(
        max_length=10_000, required=False, widget=forms.Textarea, label="Description"
    )
    trace_tier = forms.ChoiceField(
        choices=[(TraceTier.LONG, "Long-lived"), (TraceTier.SHORT, "Short-lived")],
        label="Retention tier",
        help_text=(
            "Short-lived applies to new traces only. "
            "Long-lived applies to all traces of the project."
        ),
    )
    long_days = forms.IntegerField(
        min_value=1,
        max_value=36_600,
        required=False,
        label="Long-lived retention, days",
        help_text="Leave empty to use the workspace default.",
    )

    @classmethod
    def for_project(cls, project: Project, data: Any = None) -> ProjectForm:
        initial = {
            "name": project.name,
            "description": project.description or "",
            "trace_tier": project.trace_tier,
            "long_days": project.long_days,
        }
        return cls(data, initial=initial)

    @property
    def changes(self) -> dict[str, Any]:
        """Return the fields that the user changed."""
        return {name: self.cleaned_data[name] for name in self.changed_data}


_MILLION = Decimal(1_000_000)
_DAY = 86_400


class PriceForm(forms.Form):
    name = forms.CharField(max_length=500, label="Name")
    match_pattern = forms.CharField(
        max_length=1000,
        label="Model pattern",
        help_text="A regular expression that matches any part of the model name.",
    )
    provider = forms.CharField(max_length=200, required=False, label="Provider")
    start_time = forms.DateTimeField(
        required=False,
        label="Valid from",
        help_text="Applies to runs that start at or after this time, in your time zone. Empty for"
        " all runs.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )
    prompt_cost = forms.DecimalField(
        min_value=0, max_digits=20, decimal_places=12, label="Prompt, $ per million tokens"
    )
    completion_cost = forms.DecimalField(
        min_value=0, max_digits=20, decimal_places=12, label="Completion, $ per million tokens"
    )

    @staticmethod
    def initial_values(price: ModelPrice) -> dict[str, Any]:
        return {
            "name": price.name,
            "match_pattern": price.match_pattern,
            "provider": price.provider or "",
            "start_time": price.start_time,
            "prompt_cost": (price.prompt_cost * _MILLION).normalize(),
            "completion_cost": (price.completion_cost * _MILLION).normalize(),
        }

    def clean_match_pattern(self) -> str:
        pattern: str = self.cleaned_data["match_pattern"]
        try:
            compile_pattern(pattern)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        return pattern

    @property
    def price_fields(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {
            "name": data["name"],
            "match_pattern": data["match_pattern"],
            "match_path": list(MATCH_PATHS),
            "provider": data["provider"] or None,
            "start_time": data["start_time"],
            "prompt_cost": data["prompt_cost"] / _MILLION,
            "completion_cost": data["completion_cost"] / _MILLION,
        }


class FeedbackConfigForm(forms.Form):
    key = forms.CharField(max_length=1000, label="Key")
    type = forms.ChoiceField(
        choices=[("continuous", "Numeric"), ("categorical", "Categorical"), ("freeform", "Text")],
        label="Type",
    )
    min = forms.FloatField(required=False, label="Minimum", widget=forms.TextInput)
    max = forms.FloatField(required=False, label="Maximum", widget=forms.TextInput)
    categories = forms.CharField(
        max_length=10_000,
        required=False,
        widget=forms.Textarea,
        label="Categories",
        help_text="One category per line: the value, then the label, as in `1 good`.",
    )
    is_lower_score_better = forms.BooleanField(required=False, label="Lower scores are better")

    @staticmethod
    def initial_values(row: FeedbackConfig) -> dict[str, Any]:
        config = row.config
        lines = [f"{item['value']:g} {item['label']}" for item in config.get("categories") or []]
        return {
            "key": row.key,
            "type": config.get("type"),
            "min": config.get("min"),
            "max": config.get("max"),
            "categories": "\n".join(lines),
            "is_lower_score_better": bool(row.is_lower_score_better),
        }

    def clean_categories(self) -> list[dict[str, Any]]:
        categories = []
        for number, line in enumerate(self.cleaned_data["categories"].splitlines(), 1):
            if not line.strip():
                continue
            value, _, label = line.strip().partition(" ")
            try:
                categories.append({"value": float(value), "label": label.strip() or value})
            except ValueError:
                raise forms.ValidationError(
                    f"Line {number} must start with a number, as in `1 good`."
                ) from None
        return categories

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = self.cleaned_data
        if data.get("type") == "categorical" and len(data.get("categories") or []) < 2:
            self.add_error("categories", "Enter at least two categories.")
        minimum, maximum = data.get("min"), data.get("max")
        if minimum is not None and maximum is not None and minimum >= maximum:
            self.add_error("max", "The maximum must be greater than the minimum.")
        return data

    @property
    def config(self) -> dict[str, Any]:
        data = self.cleaned_data
        if data["type"] == "categorical":
            return {"type": "categorical", "categories": data["categories"]}
        if data["type"] == "continuous":
            return {"type": "continuous", "min": data["min"], "max": data["max"]}
        return {"type": "freeform"}


class RetentionForm(forms.Form):
    default_trace_tier = forms.ChoiceField(
        choices=[(TraceTier.LONG, "Long-lived"), (TraceTier.SHORT, "Short-lived")],
        label="Default tier of new projects",
    )
    long_days = forms.IntegerField(
        min_value=1, max_value=36_500, required=False, label="Long-lived retention, days"
    )
    short_days = forms.IntegerField(
        min_value=1, max_value=36_500, required=False, label="Short-lived retention, days"
    )
    all_projects = forms.BooleanField(required=False, label="Apply the tier to existing projects")

    @staticmethod
    def initial_values(policy: RetentionPolicy) -> dict[str, Any]:
        return {
            "default_trace_tier": policy.default_tier,
            "long_days": policy.long_seconds and policy.long_seconds // _DAY,
            "short_days": policy.short_seconds and policy.short_seconds // _DAY,
        }

    @property
    def changes(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {
            "default_trace_tier": data["default_trace_tier"],
            "longlived_ttl_seconds": data["long_days"] and data["long_days"] * _DAY,
            "shortlived_ttl_seconds": data["short_days"] and data["short_days"] * _DAY,
        }
