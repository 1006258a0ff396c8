"""Forms of the alert pages."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms

from apps.alerts.models import (
    AGGREGATIONS,
    ActionTarget,
    AlertAggregation,
    AlertAttribute,
    AlertOperator,
    AlertRule,
    AlertType,
)
from apps.alerts.services.notices import describe_metric
from apps.alerts.services.rules import MAX_FILTER_LENGTH
from apps.deployments.models import Deployment
from apps.tracing.forms import RunFilterField
from apps.tracing.models import Project
from apps.webhooks.pages import HeadersField

MAX_SCOPES = 500
TRACES_FILTER = "eq(is_root, true)"
_UNITS = {
    AlertAttribute.LATENCY: " (seconds)",
    AlertAttribute.COST: " (US dollars)",
}
_WINDOWS = {
    5: "5 minutes", 10: "10 minutes", 15: "15 minutes", 30: "30 minutes", 60: "1 hour",
    120: "2 hours", 360: "6 hours", 720: "12 hours", 1440: "1 day",
}  # fmt: skip
_BASELINES = {60: "the hour before", 1440: "the day before", 10_080: "the week before"}


def _metric_choices() -> list[tuple[str, str]]:
    choices = []
    for attribute, aggregations in AGGREGATIONS.items():
        for aggregation in aggregations:
            rule = AlertRule(attribute=attribute, aggregation=aggregation)
            name = describe_metric(rule).strip()
            is_percentage = aggregation == AlertAggregation.PERCENT
            unit = " (per cent)" if is_percentage else _UNITS.get(attribute, "")
            choices.append((f"{attribute}:{aggregation}", f"{name[:1].upper()}{name[1:]}{unit}"))
    return choices


class AlertForm(forms.Form):
    """Creates or changes a rule. Settings that it cannot show are kept."""

    name = forms.CharField(max_length=200, label="Name")
    scope = forms.ChoiceField(required=False, label="Runs of")
    metric = forms.ChoiceField(label="Metric")
    feedback_key = forms.CharField(
        max_length=200,
        required=False,
        label="Feedback key",
        help_text="Only for a feedback score.",
    )
    filter = RunFilterField(
        max_length=MAX_FILTER_LENGTH,
        required=False,
        label="Filter",
        initial=TRACES_FILTER,
        help_text="`eq(is_root, true)` counts traces. Empty: all runs.",
    )
    window_minutes = forms.TypedChoiceField(
        coerce=int,
        label="Window",
        initial=15,
        help_text="The rule measures this period every 5 minutes. A run counts when it starts, so"
        " the window should be longer than a run.",
    )
    operator = forms.ChoiceField(
        label="Fires if the value is",
        choices=[(AlertOperator.ABOVE, "at least"), (AlertOperator.BELOW, "at most")],
    )
    baseline = forms.TypedChoiceField(
        coerce=int,
        empty_value=None,
        required=False,
        label="Compared with",
        help_text="The thresholds of a comparison are multiples: 2 is twice the value before.",
    )
    critical = forms.FloatField(required=False, label="Critical")
    warning = forms.FloatField(required=False, label="Warning")
    min_run_count = forms.IntegerField(
        min_value=0,
        max_value=1_000_000,
        initial=0,
        required=False,
        label="Minimum number of runs",
        help_text="Windows with fewer runs do not fire.",
    )
    description = forms.CharField(
        max_length=2000,
        required=False,
        label="Description",
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Sent with each notice, for example what to do.",
    )

    def __init__(
        self,
        workspace_id: UUID,
        data: Any = None,
        *,
        rule: AlertRule | None = None,
        scope: str = "",
    ) -> None:
        super().__init__(data, initial=_initial(rule) if rule is not None else {"scope": scope})
        self.workspace_id, self.rule = workspace_id, rule
        self._set_choices("scope", self._scope_choices())
        self._set_choices("metric", _metric_choices())
        windows, baselines = dict(_WINDOWS), dict(_BASELINES)
        if rule is not None:
            windows.setdefault(rule.window_minutes, f"{rule.window_minutes} minutes")
            minutes = rule.threshold_window_minutes
            if minutes is not None:
                baselines.setdefault(minutes, f"the {minutes} minutes before")
        self._set_choices("window_minutes", sorted(windows.items()))
        self._set_choices("baseline", [("", "fixed values"), *sorted(baselines.items())])

    def _set_choices(self, name: str, choices: list[Any]) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def _scope_choices(self) -> list[Any]:
        projects = Project.objects.for_workspace(self.workspace_id).present()
        projects = projects.without_experiments().order_by("name")
        deployments = Deployment.objects.for_workspace(self.workspace_id).present()
        self.projects = {f"project:{row.pk}": row for row in projects[:MAX_SCOPES]}
        self.deployments = {
            f"deployment:{row.pk}": row for row in deployments.order_by("name")[:MAX_SCOPES]
        }
        groups: list[Any] = [("", "All projects")]
        for label, rows in (("Projects", self.projects), ("Deployments", self.deployments)):
            if rows:
                groups.append((label, [(key, row.name) for key, row in rows.items()]))
        return groups

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        metric = values.get("metric") or ""
        is_feedback = metric.startswith(AlertAttribute.FEEDBACK)
        if is_feedback and not values.get("feedback_key"):
            self.add_error("feedback_key", "Name the feedback key.")
        if values.get("critical") is None and values.get("warning") is None and not self.errors:
            self.add_error("critical", "Enter a critical or a warning threshold.")
        return values

    @property
    def changes(self) -> dict[str, Any]:
        """The columns of the rule."""
        values = self.cleaned_data
        attribute, _, aggregation = values["metric"].partition(":")
        is_feedback = attribute == AlertAttribute.FEEDBACK
        is_change = values["baseline"] is not None
        critical, warning = values["critical"], values["warning"]
        changes = {
            **{name: values[name] for name in ("name", "filter", "window_minutes", "operator")},
            "description": values["description"],
            "project": self.projects.get(values["scope"]),
            "deployment": self.deployments.get(values["scope"]),
            "attribute": attribute,
            "aggregation": aggregation,
            "feedback_key": values["feedback_key"] if is_feedback else "",
            "type": AlertType.CHANGE if is_change else AlertType.THRESHOLD,
            "threshold": None if is_change else critical,
            "warning_threshold": None if is_change else warning,
            "threshold_window_minutes": values["baseline"],
            "threshold_multiplier": critical if is_change else None,
            "warning_multiplier": warning if is_change else None,
            "min_run_count": values["min_run_count"] or 0,
        }
        if aggregation != AlertAggregation.PERCENT:
            changes["denominator_filter"] = ""
        return changes

    def build_rule(self) -> AlertRule:
        """Return the unsaved rule, or a changed copy of the saved one, for a preview."""
        rule = AlertRule(workspace_id=self.workspace_id)
        if self.rule is not None:
            rule.denominator_filter = self.rule.denominator_filter
        for name, value in self.changes.items():
            setattr(rule, name, value)
        return rule


def _initial(rule: AlertRule) -> dict[str, Any]:
    scope = ""
    if rule.project_id is not None:
        scope = f"project:{rule.project_id}"
    elif rule.deployment_id is not None:
        scope = f"deployment:{rule.deployment_id}"
    is_change = rule.type == AlertType.CHANGE
    names = ("name", "description", "filter", "window_minutes", "operator", "feedback_key")
    return {
        **{name: getattr(rule, name) for name in names},
        "scope": scope,
        "metric": f"{rule.attribute}:{rule.aggregation}",
        "baseline": rule.threshold_window_minutes or "",
        "critical": rule.threshold_multiplier if is_change else rule.threshold,
        "warning": rule.warning_multiplier if is_change else rule.warning_threshold,
        "min_run_count": rule.min_run_count,
    }


class ChannelForm(forms.Form):
    """Adds a channel to a rule."""

    target = forms.ChoiceField(choices=ActionTarget.choices, label="Channel")
    address = forms.CharField(
        max_length=4096,
        label="Address",
        help_text="The URL of a webhook or of an incoming webhook of Slack, the integration key of"
        " PagerDuty, or email addresses of members, separated by commas.",
    )
    headers = HeadersField(
        rows=2,
        help_text="Only for a webhook: one `Name: value` in each line, stored encrypted.",
    )

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("headers") and values.get("target") != ActionTarget.WEBHOOK:
            self.add_error("headers", "Only a webhook has headers.")
        return values

    @property
    def action_fields(self) -> dict[str, Any]:
        target, address = self.cleaned_data["target"], self.cleaned_data["address"].strip()
        config: dict[str, Any]
        match target:
            case ActionTarget.EMAIL:
                config = {"recipients": [part for part in address.split(",") if part.strip()]}
            case ActionTarget.PAGERDUTY:
                config = {"routing_key": address}
            case ActionTarget.SLACK:
                config = {"url": address}
            case _:
                config = {"url": address, "headers": self.cleaned_data["headers"]}
        return {"target": target, "config": config}
