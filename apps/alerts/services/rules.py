"""Create, change, silence and delete alert rules and their actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from apps.alerts import channels, errors
from apps.alerts.metrics import STEP
from apps.alerts.models import (
    AGGREGATIONS,
    ActionTarget,
    AlertAction,
    AlertAggregation,
    AlertAttribute,
    AlertIncident,
    AlertLevel,
    AlertOperator,
    AlertRule,
    AlertType,
)
from apps.alerts.querysets import AlertIncidentQuerySet
from apps.alerts.services import evaluation, notices
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.errors import NotFound
from apps.core.secrets import encrypt
from apps.core.tenancy import get_or_404
from apps.trace_store import filters
from apps.webhooks import delivery_queue
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest, generate_secret
from apps.webhooks.models import Delivery
from apps.webhooks.signed_request import send_once

MAX_RULES = 100
MAX_ACTIONS = 10
MAX_WINDOW_MINUTES = 1440
MAX_BASELINE_MINUTES = 10_080
MAX_FILTER_LENGTH = 8000
ActionFields = Mapping[str, Any]
"""`target` and `config`; `id` names the action that it replaces or, without `config`, keeps."""
Secrets = dict[UUID, str]
"""The signing secrets of new webhooks by action, which are shown once."""

_CONDITION_FIELDS = {
    AlertType.THRESHOLD: ("threshold", "warning_threshold"),
    AlertType.CHANGE: ("threshold_window_minutes", "threshold_multiplier", "warning_multiplier"),
}


def validate_rule(rule: AlertRule) -> None:
    """Raises `InvalidAlert` or `FilterError`."""
    if rule.project is not None and rule.deployment is not None:
        raise errors.InvalidAlert("deployment_id: not together with a project.")
    attribute = AlertAttribute(rule.attribute)
    if rule.aggregation not in AGGREGATIONS[attribute]:
        names = ", ".join(AGGREGATIONS[attribute])
        raise errors.InvalidAlert(f"aggregation: of {attribute} must be one of {names}.")
    if bool(rule.feedback_key) != (attribute == AlertAttribute.FEEDBACK):
        raise errors.InvalidAlert("feedback_key: required for feedback_score and only for it.")
    _validate_minutes("window_minutes", rule.window_minutes, MAX_WINDOW_MINUTES)
    _validate_thresholds(rule)
    if rule.denominator_filter and rule.aggregation != AlertAggregation.PERCENT:
        raise errors.InvalidAlert("denominator_filter: only for the aggregation pct.")
    for text in (rule.filter, rule.denominator_filter):
        if len(text) > MAX_FILTER_LENGTH:
            raise errors.InvalidAlert(f"filter: has at most {MAX_FILTER_LENGTH} characters.")
        if text:
            filters.parse(text)


def _validate_minutes(name: str, minutes: int, maximum: int) -> None:
    step = int(STEP.total_seconds()) // 60
    if not step <= minutes <= maximum or minutes % step:
        raise errors.InvalidAlert(f"{name}: must be a multiple of {step} up to {maximum}.")


def _validate_thresholds(rule: AlertRule) -> None:
    own, *_ = (names for type_, names in _CONDITION_FIELDS.items() if type_ == rule.type)
    for names in _CONDITION_FIELDS.values():
        for name in names:
            value = getattr(rule, name)
            if value is not None and name not in own:
                raise errors.InvalidAlert(f"{name}: not for rules of type {rule.type}.")
            if value is not None and not math.isfinite(value):
                raise errors.InvalidAlert(f"{name}: must be a finite number.")
    if rule.type == AlertType.CHANGE:
        if rule.threshold_window_minutes is None:
            raise errors.InvalidAlert("threshold_window_minutes: required for type change.")
        _validate_minutes(
            "threshold_window_minutes", rule.threshold_window_minutes, MAX_BASELINE_MINUTES
        )
        critical, warning = rule.threshold_multiplier, rule.warning_multiplier
        if any(value is not None and value <= 0 for value in (critical, warning)):
            raise errors.InvalidAlert("threshold_multiplier: must be positive.")
    else:
        critical, warning = rule.threshold, rule.warning_threshold
    if critical is None and warning is None:
        raise errors.InvalidAlert("threshold: a rule needs a critical or a warning threshold.")
    if critical is None or warning is None:
        return
    is_at_least = rule.operator == AlertOperator.ABOVE
    if warning >= critical if is_at_least else warning <= critical:
        raise errors.InvalidAlert("warning_threshold: must be reached before the critical one.")


@transaction.atomic
def create_rule(*, rule: AlertRule, actions: Sequence[ActionFields] = ()) -> Secrets:
    """Save the rule with its actions. Raises as `validate_rule`, `TooManyAlerts` and channels."""
    validate_rule(rule)
    rows = AlertRule.objects.for_workspace(rule.workspace_id)
    if rows.count() >= MAX_RULES:
        raise errors.TooManyAlerts(f"A workspace has at most {MAX_RULES} alert rules.")
    rule.evaluated_until = evaluation.last_window_end()
    rule.due_at = timezone.now()
    rule.save(force_insert=True)
    secrets = _replace_actions(rule, actions)
    _record(Action.ALERT_CREATED, rule, after=_audit_values(rule))
    return secrets


@transaction.atomic
def update_rule(
    *,
    rule: AlertRule,
    changes: Mapping[str, Any],
    actions: Sequence[ActionFields] | None = None,
) -> tuple[AlertRule, Secrets]:
    """Change fields and, if given, all actions. Raises as `create_rule`.

    An open incident stays open; the next evaluation applies the new condition to it. A rule that is
    disabled closes it, and one that is enabled again is not evaluated for the time between.
    """
    row = _lock(rule)
    before, was_enabled = _audit_values(row), row.is_enabled
    for name, value in changes.items():
        setattr(row, name, value)
    validate_rule(row)
    if was_enabled and not row.is_enabled:
        _close_incidents(row)
    if row.is_enabled and not was_enabled:
        row.evaluated_until = evaluation.last_window_end()
    row.due_at = timezone.now()
    row.save()
    secrets = _replace_actions(row, actions) if actions is not None else {}
    _record(Action.ALERT_UPDATED, row, before=before, after=_audit_values(row))
    return row, secrets


@transaction.atomic
def silence_rule(*, rule: AlertRule, until: datetime | None) -> AlertRule:
    """Announce no incident until the time; None ends the silence."""
    row = _lock(rule)
    before = _audit_values(row)
    row.silenced_until = until
    row.due_at = timezone.now()
    row.save(update_fields=["silenced_until", "due_at", "updated_at"])
    _record(Action.ALERT_UPDATED, row, before=before, after=_audit_values(row))
    return row


@transaction.atomic
def delete_rule(*, rule: AlertRule) -> None:
    """Delete the rule with its incidents; open ones recover. Its deliveries stay in the log."""
    row = _lock(rule)
    _record(Action.ALERT_DELETED, row, before=_audit_values(row))
    _close_incidents(row)
    row.actions.update(rule=None)
    row.delete()


@transaction.atomic
def add_action(*, rule: AlertRule, fields: ActionFields) -> Secrets:
    """Add one action. Raises as `create_rule`."""
    row = _lock(rule)
    before = _audit_values(row)
    if row.actions.count() >= MAX_ACTIONS:
        raise errors.InvalidAlert(f"A rule has at most {MAX_ACTIONS} channels.")
    secrets = _save_action(row, AlertAction(workspace_id=row.workspace_id, rule=row), fields)
    _record(Action.ALERT_UPDATED, row, before=before, after=_audit_values(row))
    return secrets


@transaction.atomic
def remove_action(*, rule: AlertRule, action: AlertAction) -> None:
    row = _lock(rule)
    before = _audit_values(row)
    _remove_actions(row, [action])
    _record(Action.ALERT_UPDATED, row, before=before, after=_audit_values(row))


def _remove_actions(rule: AlertRule, actions: Sequence[AlertAction]) -> None:
    """Remove channels; each that knows of an open incident is notified that it is over."""
    for incident in _open_incidents(rule).exclude(announced_level=AlertLevel.OK):
        for action in actions:
            evaluation.announce_recovery(
                rule, incident, at=timezone.now(), value=None, action=action
            )
    # The deliveries need their addresses.
    rule.actions.filter(pk__in=[action.pk for action in actions]).update(rule=None)


def close_incidents_of_deleted_scopes() -> None:
    """Close the incidents of rules whose project or deployment was deleted. Safe to repeat."""
    incidents = AlertIncident.objects.across_workspaces(reason="the task closes those of all")
    is_gone = Q(rule__project__deleted_at__isnull=False)
    is_gone |= Q(rule__deployment__deleted_at__isnull=False)
    rows = incidents.unclosed().filter(is_gone, workspace__deleted_at=None).select_related("rule")
    for incident in rows:
        # A rule that is deleted meanwhile has closed its incidents itself.
        with suppress(NotFound), transaction.atomic():
            rule = _lock(incident.rule)
            _close_incidents(rule)
            rule.save(update_fields=["level", "ok_count"])


def delete_unused_actions() -> None:
    """Delete the channels without a rule whose deliveries have ended. Safe to repeat."""
    actions = AlertAction.objects.across_workspaces(reason="the task deletes removed channels")
    deliveries = Delivery.objects.across_workspaces(reason="those of the removed channels")
    unfinished = deliveries.unfinished().filter(endpoint_id=OuterRef("pk"))
    actions.filter(~Exists(unfinished), rule=None).delete()


def _lock(rule: AlertRule) -> AlertRule:
    rows = AlertRule.objects.for_workspace(rule.workspace_id)
    rows = rows.select_related("project", "deployment")
    return get_or_404(rows.select_for_update(no_key=True, of=("self",)), pk=rule.pk)


def _close_incidents(rule: AlertRule) -> None:
    for incident in _open_incidents(rule):
        evaluation.close_incident(rule, incident, at=timezone.now(), value=None)
    rule.level, rule.ok_count = AlertLevel.OK, 0


def _open_incidents(rule: AlertRule) -> AlertIncidentQuerySet:
    return AlertIncident.objects.for_workspace(rule.workspace_id).filter(rule=rule).unclosed()


def _replace_actions(rule: AlertRule, actions: Sequence[ActionFields]) -> Secrets:
    if len(actions) > MAX_ACTIONS:
        raise errors.InvalidAlert(f"actions: a rule has at most {MAX_ACTIONS} channels.")
    known = {action.pk: action for action in rule.actions.all()}
    kept: set[UUID] = set()
    secrets: Secrets = {}
    saved = []
    for fields in actions:
        action = None
        if fields.get("id") is not None:
            action = known.get(fields["id"])
            if action is None or action.pk in kept:
                raise errors.InvalidAlert("actions: an id names no channel of this rule.")
            kept.add(action.pk)
        if action is None:
            action = AlertAction(workspace_id=rule.workspace_id, rule=rule)
        elif fields.get("config") is None:
            continue
        secrets |= _save_action(rule, action, fields)
        saved.append((action.target, action.config))
    removed = [action for pk, action in known.items() if pk not in kept]
    # A client that sends all channels again, without their ids, removes none.
    _remove_actions(
        rule, [action for action in removed if (action.target, action.config) not in saved]
    )
    rule.actions.filter(pk__in=[action.pk for action in removed]).update(rule=None)
    return secrets


def _save_action(rule: AlertRule, action: AlertAction, fields: ActionFields) -> Secrets:
    """Save a new or changed action; return the secret if it is a new webhook."""
    is_new = not action.secret
    target = ActionTarget(fields["target"])
    stored = None if is_new or action.target != target else action.config
    action.config = channels.validate_config(
        rule.workspace_id, target, fields.get("config") or {}, stored
    )
    action.target = target
    if not is_new:
        action.save()
        return {}
    secret = generate_secret()
    action.secret = encrypt(secret)
    action.save(force_insert=True)
    return {action.pk: secret} if target == ActionTarget.WEBHOOK else {}


def send_unsaved_test(*, rule: AlertRule, actions: Sequence[ActionFields]) -> list[DeliveryResult]:
    """Send a test notice once to unsaved actions. Raises as `create_rule`, and `RateLimited`."""
    if len(actions) > MAX_ACTIONS:
        raise errors.InvalidAlert(f"actions: a rule has at most {MAX_ACTIONS} channels.")
    notice, results = notices.build_test_notice(rule), []
    for fields in actions:
        action = AlertAction(workspace_id=rule.workspace_id, target=fields["target"])
        action.secret = encrypt(generate_secret())
        action.config = channels.validate_config(
            rule.workspace_id, ActionTarget(fields["target"]), fields.get("config") or {}, None
        )
        request = channels.build_channel_request(action, notice, "msg_test")
        if not isinstance(request, WebhookRequest):
            raise errors.InvalidAlert("actions: an email channel can be tested when it is saved.")
        results.append(send_once(request, owner_id=rule.workspace.organization_id))
    return results


def replay_delivery(*, delivery: Delivery) -> Delivery:
    """Send the notice again. Raises `DeliveryUnfinished`."""
    return delivery_queue.replay(delivery=delivery, max_per_hour=notices.MAX_DELIVERIES_PER_HOUR)


def _audit_values(rule: AlertRule) -> dict[str, Any]:
    names = (
        *("name", "type", "attribute", "aggregation", "operator", "filter", "window_minutes"),
        *("threshold", "warning_threshold", "threshold_window_minutes"),
        *("threshold_multiplier", "warning_multiplier", "is_enabled", "silenced_until"),
    )
    values = {name: getattr(rule, name) for name in names}
    values["session_id"], values["deployment_id"] = rule.project_id, rule.deployment_id
    values["channels"] = [
        f"{action.target} {channels.describe_channel(action)}"
        for action in rule.actions.order_by("created_at", "pk")
    ]
    return values


def _record(action: Action, rule: AlertRule, **values: Any) -> None:
    record(action, Target("alert", rule.pk, rule.name), workspace_id=rule.workspace_id, **values)
