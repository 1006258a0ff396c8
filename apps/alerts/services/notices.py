"""Notices of incidents: their texts, and the deliveries to the actions of a rule."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from apps.alerts import channels
from apps.alerts.models import (
    AlertAction,
    AlertAggregation,
    AlertAttribute,
    AlertIncident,
    AlertLevel,
    AlertOperator,
    AlertRule,
    AlertType,
)
from apps.core.ids import uuid7
from apps.web_ui.formatting import format_count, format_duration, format_money
from apps.webhooks import delivery_queue
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.delivery_worker import OutboundRequest
from apps.webhooks.models import Delivery

KIND = "alert"
MAX_DELIVERIES_PER_HOUR = 200
"""Deliveries of a workspace; further ones are logged as given up."""
FIRED, RECOVERED, TEST = "fired", "recovered", "test"
_METRIC_NAMES = {
    AlertAttribute.ERROR_COUNT: "errors",
    AlertAttribute.RUN_COUNT: "runs",
    AlertAttribute.LATENCY: "latency",
    AlertAttribute.TOKENS: "tokens",
    AlertAttribute.COST: "cost",
    AlertAttribute.FEEDBACK: "feedback score",
}


def announce(
    rule: AlertRule,
    incident: AlertIncident,
    *,
    status: str,
    at: datetime,
    value: float | None,
    threshold: float | None,
    action: AlertAction | None = None,
) -> None:
    """Enqueue a delivery to each action of the rule, or to one, in the change's transaction."""
    notice = build_notice(
        rule,
        incident.pk,
        status=status,
        level=AlertLevel.OK if status == RECOVERED else AlertLevel(incident.level),
        at=at,
        value=value,
        threshold=threshold,
    )
    _enqueue(notice, rule, _actions(rule) if action is None else [action])


def send_test(*, rule: AlertRule) -> int:
    """Enqueue a test notice to each action; return the number of deliveries."""
    return _enqueue(build_test_notice(rule), rule, _actions(rule))


def build_test_notice(rule: AlertRule) -> dict[str, Any]:
    """Return the notice that tests the actions of a rule, which may be unsaved."""
    return build_notice(
        rule,
        uuid7(),
        status=TEST,
        level=AlertLevel.OK,
        at=timezone.now(),
        value=rule.last_value,
        threshold=rule.threshold,
    )


def _actions(rule: AlertRule) -> Any:
    return AlertAction.objects.for_workspace(rule.workspace_id).filter(rule=rule).in_order()


def _enqueue(notice: dict[str, Any], rule: AlertRule, actions: Iterable[AlertAction]) -> int:
    """Enqueue the deliveries of the notice and return their number."""
    deliveries = [
        Delivery(
            workspace_id=rule.workspace_id,
            kind=KIND,
            endpoint_id=action.pk,
            subject_id=rule.pk,
            event=notice["status"],
            payload=payload,
        )
        for action in actions
        for payload in channels.split_notice(action, notice)
    ]
    delivery_queue.enqueue(deliveries, max_per_hour=MAX_DELIVERIES_PER_HOUR)
    return len(deliveries)


def build_notice(
    rule: AlertRule,
    incident_id: UUID,
    *,
    status: str,
    level: AlertLevel,
    at: datetime,
    value: float | None,
    threshold: float | None,
) -> dict[str, Any]:
    """The payload of deliveries. Its names are those of the webhooks' body."""
    path = reverse("alert-detail", args=[rule.workspace_id, rule.pk])
    words = {FIRED: str(level.label), RECOVERED: "Recovered", TEST: "Test"}
    return {
        "status": status,
        "level": level,
        "incident_id": str(incident_id),
        "alert_rule_id": str(rule.pk),
        "alert_rule_name": rule.name,
        "alert_rule_type": rule.type,
        "alert_rule_attribute": rule.attribute,
        "alert_rule_aggregation": rule.aggregation,
        "project_name": rule.scope_name,
        "triggered_metric_value": value,
        "triggered_threshold": threshold,
        "window_minutes": rule.window_minutes,
        "timestamp": at.isoformat(),
        "title": f"{words[status]}: {rule.name}".replace("\n", " "),
        "text": f"{describe_value(rule, value)} on {rule.scope_name}; {describe_condition(rule)}.",
        "description": rule.description,
        "url": f"{settings.BASE_URL}{path}",
    }


def build_request(delivery: Delivery) -> OutboundRequest | DeliveryResult:
    """Build the request with the action's current address and secret."""
    actions = AlertAction.objects.for_workspace(delivery.workspace_id)
    action = actions.filter(pk=delivery.endpoint_id).first()
    if action is None:
        return DeliveryResult(error="The channel was deleted.", is_final=True)
    message_id = f"msg_{delivery.message_id}"
    return channels.build_channel_request(action, delivery.payload, message_id)


def format_metric(rule: AlertRule, value: float | None) -> str:
    """Format a value of the rule with its unit."""
    if value is None:
        return "no value"
    if rule.aggregation == AlertAggregation.PERCENT:
        return f"{value:.3g} %"
    match AlertAttribute(rule.attribute):
        case AlertAttribute.LATENCY:
            return format_duration(value)
        case AlertAttribute.COST:
            return format_money(value)
        case AlertAttribute.FEEDBACK:
            return f"{value:.4g}"
    return format_count(round(value)) if float(value).is_integer() else f"{value:,.2f}"


def describe_metric(rule: AlertRule) -> str:
    """Return the measured quantity as a text, such as `p95 of latency`."""
    name = _METRIC_NAMES[AlertAttribute(rule.attribute)]
    if rule.attribute == AlertAttribute.FEEDBACK:
        name = f"{name} {rule.feedback_key}"
    match AlertAggregation(rule.aggregation):
        case AlertAggregation.COUNT:
            return f"number of {name}"
        case AlertAggregation.PERCENT:
            is_errors = rule.attribute == AlertAttribute.ERROR_COUNT
            return "error rate" if is_errors else "share of runs"
        case AlertAggregation.SUM:
            return f"total {name}"
        case AlertAggregation.AVERAGE:
            return f"average {name}"
    return f"{rule.aggregation} of {name}"


def describe_value(rule: AlertRule, value: float | None) -> str:
    text = f"{describe_metric(rule)} {format_metric(rule, value)} in {rule.window_minutes} min"
    return text[:1].upper() + text[1:]


def describe_condition(rule: AlertRule) -> str:
    """Return the thresholds as a text, such as `critical at 5 % or more, warning at 2 %`."""
    suffix = "or more" if rule.operator == AlertOperator.ABOVE else "or less"
    if rule.type == AlertType.THRESHOLD:
        levels = [
            (name, format_metric(rule, threshold))
            for name, threshold in (
                ("critical", rule.threshold),
                ("warning", rule.warning_threshold),
            )
            if threshold is not None
        ]
        return ", ".join(f"{name} at {text} {suffix}" for name, text in levels)
    levels = [
        (name, f"{multiplier:g}")
        for name, multiplier in (
            ("critical", rule.threshold_multiplier),
            ("warning", rule.warning_multiplier),
        )
        if multiplier is not None
    ]
    texts = ", ".join(f"{name} at {text} times {suffix}" for name, text in levels)
    return f"{texts} of the {rule.threshold_window_minutes} min before"
