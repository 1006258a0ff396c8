"""Alert rules, their actions and incidents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from apps.alerts.querysets import (
    AlertActionQuerySet,
    AlertIncidentQuerySet,
    AlertRuleQuerySet,
)
from apps.core.json import dumps_text, loads
from apps.core.secrets import decrypt, encrypt
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.deployments.models import Deployment
from apps.tracing.models import Project


class AlertType(models.TextChoices):
    """What the value of a window is compared with. The values are part of the API."""

    THRESHOLD = "threshold", "a fixed threshold"
    CHANGE = "change", "the period before it"


class AlertAttribute(models.TextChoices):
    """What a rule measures. The values are part of the API."""

    ERROR_COUNT = "error_count", "Errors"
    LATENCY = "latency", "Latency"
    RUN_COUNT = "run_count", "Runs"
    TOKENS = "total_tokens", "Tokens"
    COST = "cost", "Cost"
    FEEDBACK = "feedback_score", "Feedback score"


class AlertAggregation(models.TextChoices):
    """How the runs of a window become one value. The values are part of the API."""

    COUNT = "count", "count"
    PERCENT = "pct", "per cent"
    SUM = "sum", "sum"
    AVERAGE = "avg", "average"
    P50 = "p50", "p50"
    P95 = "p95", "p95"
    P99 = "p99", "p99"


_COUNTED = (AlertAggregation.COUNT, AlertAggregation.PERCENT)
_QUANTILES = (AlertAggregation.P50, AlertAggregation.P95, AlertAggregation.P99)
AGGREGATIONS: dict[AlertAttribute, tuple[AlertAggregation, ...]] = {
    AlertAttribute.ERROR_COUNT: _COUNTED,
    AlertAttribute.RUN_COUNT: _COUNTED,
    AlertAttribute.LATENCY: (AlertAggregation.AVERAGE, *_QUANTILES),
    AlertAttribute.TOKENS: (AlertAggregation.SUM, AlertAggregation.AVERAGE, *_QUANTILES),
    AlertAttribute.COST: (AlertAggregation.SUM, AlertAggregation.AVERAGE, *_QUANTILES),
    AlertAttribute.FEEDBACK: (AlertAggregation.AVERAGE,),
}
"""The aggregations of each attribute."""


class AlertOperator(models.TextChoices):
    """The side of the threshold on which a rule fires. The values are part of the API."""

    ABOVE = "gte", "at least"
    BELOW = "lte", "at most"


class AlertLevel(models.TextChoices):
    """The state of a rule, from good to bad. The values are part of the API."""

    OK = "ok", "OK"
    WARNING = "warning", "Warning"
    CRITICAL = "critical", "Critical"

    @property
    def rank(self) -> int:
        return list(AlertLevel).index(self)


class AlertRule(WorkspaceOwned):
    """A condition over the runs of a project, a deployment or the whole workspace, and its state.

    Without project and deployment the rule covers all projects except experiments.
    """

    project = models.ForeignKey(
        Project, models.CASCADE, null=True, related_name="+", db_index=False
    )
    deployment = models.ForeignKey(
        Deployment, models.CASCADE, null=True, related_name="+", db_index=False
    )
    name = models.CharField(max_length=200)
    description = models.CharField(max_length=2000, blank=True)
    type = models.CharField(max_length=10, choices=AlertType, default=AlertType.THRESHOLD)
    attribute = models.CharField(max_length=20, choices=AlertAttribute)
    aggregation = models.CharField(max_length=10, choices=AlertAggregation)
    operator = models.CharField(max_length=3, choices=AlertOperator, default=AlertOperator.ABOVE)
    feedback_key = models.CharField(max_length=200, blank=True)
    filter = models.TextField(blank=True)
    """The runs that are measured; empty for all."""
    denominator_filter = models.TextField(blank=True)
    """The runs of which a percentage is taken; empty for those of `filter` (errors) or all."""
    window_minutes = models.PositiveIntegerField(default=15)
    threshold = models.FloatField(null=True)
    """Seconds, tokens, US dollars, a score, a count, or per cent from 0 to 100."""
    warning_threshold = models.FloatField(null=True)
    threshold_window_minutes = models.PositiveIntegerField(null=True)
    """Rules of type change: the length of the period before the window that it is compared with."""
    threshold_multiplier = models.FloatField(null=True)
    """Rules of type change: the threshold is the value of that period times this."""
    warning_multiplier = models.FloatField(null=True)
    min_run_count = models.PositiveIntegerField(default=0)
    """Windows with fewer runs never fire."""
    is_enabled = models.BooleanField(default=True)
    silenced_until = models.DateTimeField(null=True)
    """No incident is announced before this time."""
    level = models.CharField(max_length=10, choices=AlertLevel, default=AlertLevel.OK)
    ok_count = models.PositiveSmallIntegerField(default=0)
    """Consecutive evaluations below the thresholds during an incident."""
    evaluated_until = models.DateTimeField()
    """The end of the newest evaluated window."""
    due_at = models.DateTimeField(db_default=Now())
    """The time of the next evaluation; while a worker evaluates the rule, the end of its lease."""
    last_value = models.FloatField(null=True)
    """The value of the newest evaluated window; null without runs."""
    last_error = models.CharField(max_length=500, blank=True)
    """Why the newest evaluation failed."""
    created_by_id = models.UUIDField(null=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(AlertRuleQuerySet)
    unscoped = AlertRuleQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None) | Q(deployment=None), name="alert_rule_one_scope"
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="alert_rule_newest"),
            models.Index(fields=["project"], name="alert_rule_of_project"),
            models.Index(fields=["deployment"], name="alert_rule_of_deployment"),
            models.Index(fields=["due_at"], condition=Q(is_enabled=True), name="alert_rule_due"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def window(self) -> timedelta:
        return timedelta(minutes=self.window_minutes)

    @property
    def baseline_window(self) -> timedelta:
        """The length of the period that the window is compared with; zero without one."""
        is_change = self.type == AlertType.CHANGE
        return timedelta(minutes=(self.threshold_window_minutes or 0) if is_change else 0)

    @property
    def is_silenced(self) -> bool:
        return self.silenced_until is not None and self.silenced_until > timezone.now()

    @property
    def scope_name(self) -> str:
        if self.project is not None:
            return self.project.name
        return self.deployment.name if self.deployment is not None else "All projects"


class ActionTarget(models.TextChoices):
    """The kind of a channel. The values are part of the API."""

    WEBHOOK = "webhook", "Webhook"
    EMAIL = "email", "Email"
    SLACK = "slack", "Slack or compatible"
    PAGERDUTY = "pagerduty", "PagerDuty or compatible"


class AlertAction(WorkspaceOwned):
    """A channel that a rule notifies."""

    rule = models.ForeignKey(
        AlertRule, models.CASCADE, null=True, related_name="actions", db_index=False
    )
    """Null once the rule or the channel is removed, until its last deliveries have ended."""
    target = models.CharField(max_length=10, choices=ActionTarget)
    encrypted_config = models.BinaryField(editable=False)
    """JSON of the address and options: they may contain credentials."""
    secret = models.BinaryField(editable=False)
    """The encrypted secret that signs the requests of a webhook."""

    objects = TenantManager(AlertActionQuerySet)
    unscoped = AlertActionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "rule", "created_at"], name="alert_action_order"),
            models.Index(fields=["rule"], name="alert_action_of_rule"),
        ]

    def __str__(self) -> str:
        return f"{self.target} of {self.rule_id}"

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = loads(decrypt(self.encrypted_config))
        return config

    @config.setter
    def config(self, config: dict[str, Any]) -> None:
        self.encrypted_config = encrypt(dumps_text(config))


class AlertIncident(WorkspaceOwned):
    """A period in which a rule was above its thresholds. A rule has one open incident at most."""

    rule = models.ForeignKey(AlertRule, models.CASCADE, related_name="incidents", db_index=False)
    level = models.CharField(max_length=10, choices=AlertLevel)
    """The worst level of the incident."""
    value = models.FloatField(null=True)
    """The value that reached the level."""
    threshold = models.FloatField(null=True)
    opened_at = models.DateTimeField()
    """The end of the window that fired."""
    closed_at = models.DateTimeField(null=True)
    announced_level = models.CharField(max_length=10, choices=AlertLevel, default=AlertLevel.OK)
    """The worst level that the actions were notified of."""

    objects = TenantManager(AlertIncidentQuerySet)
    unscoped = AlertIncidentQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["rule"], condition=Q(closed_at=None), name="alert_incident_open_once"
            ),
            models.UniqueConstraint(fields=["rule", "opened_at"], name="alert_incident_once"),
        ]
        indexes = [
            models.Index(
                fields=["workspace", "rule", "-opened_at", "-id"], name="alert_incident_newest"
            )
        ]

    def __str__(self) -> str:
        return f"{self.level} since {self.opened_at:%Y-%m-%d %H:%M}"
