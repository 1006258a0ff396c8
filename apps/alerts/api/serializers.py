"""Serializers of alert rules and their actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from rest_framework import serializers

from apps.alerts import channels
from apps.alerts.models import (
    ActionTarget,
    AlertAction,
    AlertAggregation,
    AlertAttribute,
    AlertIncident,
    AlertOperator,
    AlertRule,
    AlertType,
)
from apps.alerts.services.preview import AlertPreview
from apps.alerts.services.rules import MAX_FILTER_LENGTH

MAX_COUNT = 1_000_000_000
ATTRIBUTE_ALIASES = {"run_latency": AlertAttribute.LATENCY}
"""Names of clients for our attributes."""


class AttributeField(serializers.ChoiceField):
    def to_internal_value(self, data: Any) -> Any:
        alias = ATTRIBUTE_ALIASES.get(data) if isinstance(data, str) else None
        return super().to_internal_value(alias or data)


def _optional_text(max_length: int) -> serializers.CharField:
    return serializers.CharField(
        required=False, allow_blank=True, allow_null=True, max_length=max_length
    )


def _optional_number() -> serializers.FloatField:
    return serializers.FloatField(required=False, allow_null=True)


def _optional_integer() -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=MAX_COUNT
    )


class RuleSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=200)
    description = _optional_text(2000)
    type = serializers.ChoiceField(choices=AlertType.values, default=AlertType.THRESHOLD)
    attribute = AttributeField(choices=AlertAttribute.values)
    aggregation = serializers.ChoiceField(choices=AlertAggregation.values)
    operator = serializers.ChoiceField(choices=AlertOperator.values, default=AlertOperator.ABOVE)
    feedback_key = _optional_text(200)
    filter = _optional_text(MAX_FILTER_LENGTH)
    denominator_filter = _optional_text(MAX_FILTER_LENGTH)
    window_minutes = serializers.IntegerField(min_value=1, max_value=MAX_COUNT)
    threshold = _optional_number()
    warning_threshold = _optional_number()
    threshold_window_minutes = _optional_integer()
    threshold_multiplier = _optional_number()
    warning_multiplier = _optional_number()
    min_run_count = _optional_integer()
    is_enabled = serializers.BooleanField(required=False, allow_null=True)


class WorkspaceRuleSerializer(RuleSerializer):
    """A rule with its scope: a project, a deployment, or without both the workspace."""

    session_id = serializers.UUIDField(required=False, allow_null=True)
    deployment_id = serializers.UUIDField(required=False, allow_null=True)


class ActionSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(required=False, allow_null=True)
    target = serializers.ChoiceField(choices=ActionTarget.values)
    config = serializers.DictField(required=False, allow_null=True)


def _actions_field(**options: Any) -> Any:
    return ActionSerializer(many=True, required=False, **options)


class CreateAlertSerializer(serializers.Serializer[Any]):
    rule = RuleSerializer()
    actions = _actions_field()


class CreateWorkspaceAlertSerializer(serializers.Serializer[Any]):
    rule = WorkspaceRuleSerializer()
    actions = _actions_field()


class AlertChangesSerializer(serializers.Serializer[Any]):
    rule = serializers.DictField(required=False, allow_null=True)
    """The changed fields of the rule."""
    actions = _actions_field(allow_null=True)


class PreviewSerializer(serializers.Serializer[Any]):
    rule = WorkspaceRuleSerializer()


class SilenceSerializer(serializers.Serializer[Any]):
    minutes = serializers.IntegerField(min_value=1, max_value=43_200, allow_null=True)
    """None ends the silence."""


class AlertPageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=100, min_value=1, max_value=100)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=1_000_000)


class AlertListSerializer(AlertPageSerializer):
    session_id = serializers.UUIDField(required=False)
    deployment_id = serializers.UUIDField(required=False)


_BLANK_FIELDS = ("description", "feedback_key", "filter", "denominator_filter")


def rule_fields(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of validated fields; null texts are empty."""
    fields = {
        name: value for name, value in params.items() if name not in {"session_id", "deployment_id"}
    }
    for name in _BLANK_FIELDS:
        if name in fields:
            fields[name] = fields[name] or ""
    if fields.get("min_run_count", 0) is None:
        fields["min_run_count"] = 0
    if fields.get("is_enabled", True) is None:
        del fields["is_enabled"]
    return fields


def rule_json(rule: AlertRule) -> dict[str, Any]:
    names = (
        *("name", "description", "type", "attribute", "aggregation", "operator"),
        *("window_minutes", "threshold", "warning_threshold", "threshold_window_minutes"),
        *("threshold_multiplier", "warning_multiplier", "min_run_count", "is_enabled"),
        *("silenced_until", "level", "last_value", "created_at", "updated_at"),
    )
    return {
        "id": rule.pk,
        "tenant_id": rule.workspace_id,
        "session_id": rule.project_id,
        "deployment_id": rule.deployment_id,
        **{name: getattr(rule, name) for name in names},
        "feedback_key": rule.feedback_key or None,
        "filter": rule.filter or None,
        "denominator_filter": rule.denominator_filter or None,
        "evaluated_until": rule.evaluated_until,
        "last_error": rule.last_error or None,
    }


def alert_json(rule: AlertRule, secrets: Mapping[UUID, str] | None = None) -> dict[str, Any]:
    """A rule with its actions. Only the response that created a webhook has its signing secret."""
    actions = sorted(rule.actions.all(), key=lambda action: (action.created_at, action.pk))
    return {
        "rule": rule_json(rule),
        "actions": [action_json(action, secrets or {}) for action in actions],
    }


def action_json(action: AlertAction, secrets: Mapping[UUID, str]) -> dict[str, Any]:
    body = {
        "id": action.pk,
        "target": action.target,
        "config": channels.mask_config(action),
        "created_at": action.created_at,
    }
    if action.pk in secrets:
        body["signing_secret"] = secrets[action.pk]
    return body


def incident_json(incident: AlertIncident) -> dict[str, Any]:
    return {
        "id": incident.pk,
        "level": incident.level,
        "value": incident.value,
        "threshold": incident.threshold,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "announced_level": incident.announced_level,
    }


def preview_json(result: AlertPreview) -> dict[str, Any]:
    return {
        "start_time": result.since,
        "end_time": result.until,
        "step_minutes": int(result.step.total_seconds()) // 60,
        "is_exact": result.is_exact,
        "incidents": [
            {
                "level": incident.level,
                "value": incident.value,
                "threshold": incident.threshold,
                "opened_at": incident.opened_at,
                "closed_at": incident.closed_at,
            }
            for incident in result.incidents
        ],
    }
