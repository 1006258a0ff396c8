from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from apps.alerts.models import AlertAction, AlertIncident, AlertRule
from apps.core.secrets import encrypt
from apps.tracing.models import Project
from apps.webhooks.models import Delivery

DAY = datetime(2026, 3, 1, tzinfo=UTC)
SECRET = "whsec_AAAA"


def build_alert_rule(project: Project, /, **fields: Any) -> AlertRule:
    """An unsaved rule: critical when half of the runs fail, warning at a fifth."""
    return AlertRule(
        **{
            "workspace_id": project.workspace_id,
            "project": project,
            "name": "Error rate",
            "attribute": "error_count",
            "aggregation": "pct",
            "window_minutes": 15,
            "threshold": 50.0,
            "warning_threshold": 20.0,
            "evaluated_until": DAY,
            **fields,
        }
    )


def create_alert_rule(project: Project, /, **fields: Any) -> AlertRule:
    rule = build_alert_rule(project, **fields)
    rule.save(force_insert=True)
    return rule


def create_alert_action(rule: AlertRule, target: str = "webhook", **config: Any) -> AlertAction:
    action = AlertAction(
        workspace_id=rule.workspace_id, rule=rule, target=target, secret=encrypt(SECRET)
    )
    defaults = {"url": "https://alerts.example/hook", "headers": {}, "body": {}}
    action.config = (defaults if target == "webhook" else {}) | config
    action.save(force_insert=True)
    return action


def create_delivery(rule: AlertRule, action_id: UUID | None = None, **fields: Any) -> Delivery:
    delivery = Delivery(
        **{
            "workspace_id": rule.workspace_id,
            "kind": "alert",
            "endpoint_id": action_id or uuid4(),
            "subject_id": rule.pk,
            "event": "fired",
            "payload": {},
            **fields,
        }
    )
    delivery.save(force_insert=True)
    return delivery


def create_alert_rows(project: Project, mark: str) -> dict[str, object]:
    """One row of each table, marked; the keys are route parameters."""
    rule = create_alert_rule(project, name=mark, description=mark, last_error=mark)
    action = create_alert_action(rule, url=f"https://{mark}.example/")
    AlertIncident(
        workspace_id=rule.workspace_id, rule=rule, level="critical", opened_at=DAY, value=1.0
    ).save(force_insert=True)
    delivery = create_delivery(
        rule, action.pk, payload={"title": mark}, status="delivered", last_error=mark
    )
    return {"rule_id": rule.pk, "action_id": action.pk, "delivery_id": delivery.pk}
