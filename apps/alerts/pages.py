"""What the alert pages show: rows of rules, and charts of a rule's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from apps.alerts import channels
from apps.alerts.metrics import Measurement
from apps.alerts.models import (
    AlertAction,
    AlertAggregation,
    AlertAttribute,
    AlertIncident,
    AlertOperator,
    AlertRule,
    AlertType,
)
from apps.alerts.querysets import AlertRuleQuerySet
from apps.alerts.services import notices
from apps.alerts.services.preview import AlertPreview, preview
from apps.core.errors import AppError
from apps.web_ui.charts import Line, LineChart

MAX_POINTS = 336
"""Points of a chart: the preview of four weeks has one for each two hours."""
CHART_PERIOD = timedelta(days=1)
_UNITS = {
    AlertAttribute.LATENCY: "s",
    AlertAttribute.COST: "usd",
    AlertAttribute.TOKENS: "tokens",
    AlertAttribute.FEEDBACK: "score",
}


@dataclass(frozen=True)
class AlertRow:
    """A rule in a list."""

    rule: AlertRule
    condition: str
    value: str
    channels: str
    incident: AlertIncident | None
    """The newest incident."""

    @property
    def status(self) -> str:
        """The key of the rule's badge."""
        return self.rule.level if self.rule.is_enabled else "disabled"


def load_rows(rules: AlertRuleQuerySet, workspace_id: UUID) -> list[AlertRow]:
    """Return the rules, those with incidents first."""
    rows = list(rules.select_related("project", "deployment").prefetch_related("actions"))
    incidents = AlertIncident.objects.for_workspace(workspace_id)
    newest = {
        incident.rule_id: incident
        for incident in incidents.filter(rule__in=rows)
        .order_by("rule_id", "-opened_at", "-pk")
        .distinct("rule_id")
    }
    rows.sort(key=lambda rule: (not rule.is_enabled, rule.level == "ok", rule.name.lower()))
    return [build_row(rule, newest.get(rule.pk)) for rule in rows]


def build_row(rule: AlertRule, incident: AlertIncident | None) -> AlertRow:
    targets = sorted({action.get_target_display().split()[0] for action in rule.actions.all()})
    metric = notices.describe_metric(rule)
    return AlertRow(
        rule,
        f"{metric[:1].upper()}{metric[1:]} in {rule.window_minutes} min:"
        f" {notices.describe_condition(rule)}",
        notices.format_metric(rule, rule.last_value),
        ", ".join(targets),
        incident,
    )


@dataclass(frozen=True)
class ChannelRow:
    action: AlertAction
    text: str


def load_channels(rule: AlertRule) -> list[ChannelRow]:
    actions = AlertAction.objects.for_workspace(rule.workspace_id).filter(rule=rule).in_order()
    return [ChannelRow(action, channels.describe_channel(action)) for action in actions]


@dataclass(frozen=True)
class PreviewIncidentRow:
    """An incident of a preview with its texts."""

    opened_at: object
    closed_at: object
    level: str
    value: str


@dataclass(frozen=True)
class PreviewCard:
    """A chart of a rule's values, and the incidents of the period."""

    chart: LineChart | None = None
    preview: AlertPreview | None = None
    incidents: Sequence[PreviewIncidentRow] = ()
    error: str = ""

    @property
    def step_minutes(self) -> int:
        return int(self.preview.step.total_seconds()) // 60 if self.preview else 0


def load_preview(rule: AlertRule, title: str, *, period: timedelta | None = None) -> PreviewCard:
    """Measure the rule; the card has the reason if that is impossible."""
    try:
        result = preview(rule, period=period)
    except AppError as error:
        return PreviewCard(error=error.detail)
    incidents = [
        PreviewIncidentRow(
            incident.opened_at,
            incident.closed_at,
            incident.level,
            notices.format_metric(rule, incident.value),
        )
        for incident in reversed(result.incidents)
    ]
    return PreviewCard(_build_chart(rule, result, title), result, incidents)


def _build_chart(rule: AlertRule, result: AlertPreview, title: str) -> LineChart:
    is_share = rule.aggregation == AlertAggregation.PERCENT
    unit = "share" if is_share else _UNITS.get(AlertAttribute(rule.attribute), "count")
    scale = 0.01 if is_share else 1.0
    size = max(1, -(-len(result.measurements) // MAX_POINTS))
    parts = [
        result.measurements[first : first + size]
        for first in range(0, len(result.measurements), size)
    ]
    values = [_worst(rule, part) for part in parts]
    lines = [Line("Value", "1", [None if v is None else v * scale for v in values])]
    if rule.type == AlertType.THRESHOLD:
        for name, hue, threshold in (
            ("Critical", "error", rule.threshold),
            ("Warning", "warning", rule.warning_threshold),
        ):
            if threshold is not None:
                lines.append(Line(name, hue, [threshold * scale] * len(parts), dash=1))
    edges = [part[0].at - result.step for part in parts] + [result.measurements[-1].at]
    return LineChart(f"alert-{rule.pk}", title, unit, "line", edges, lines)


def _worst(rule: AlertRule, part: Sequence[Measurement]) -> float | None:
    """The value that is nearest to firing, so that no incident is averaged away."""
    values = [measurement.value for measurement in part if measurement.value is not None]
    if not values:
        return None
    return max(values) if rule.operator == AlertOperator.ABOVE else min(values)
