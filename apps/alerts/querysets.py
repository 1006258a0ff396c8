"""Chainable queries of alert rules, actions and incidents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

if TYPE_CHECKING:
    from apps.alerts.models import AlertAction, AlertIncident, AlertRule  # noqa: F401


class AlertRuleQuerySet(models.QuerySet["AlertRule"]):
    def due(self) -> AlertRuleQuerySet:
        """Enabled rules whose next evaluation is due; the index on `due_at` serves them."""
        return self.filter(is_enabled=True, due_at__lte=Now())

    def with_present_scope(self) -> AlertRuleQuerySet:
        """Rules whose workspace and project or deployment are not deleted."""
        return self.filter(
            Q(project=None) | Q(project__deleted_at=None),
            Q(deployment=None) | Q(deployment__deleted_at=None),
            workspace__deleted_at=None,
        )

    def newest_first(self) -> AlertRuleQuerySet:
        return self.order_by("-created_at", "-pk")


class AlertActionQuerySet(models.QuerySet["AlertAction"]):
    def in_order(self) -> AlertActionQuerySet:
        return self.order_by("created_at", "pk")


class AlertIncidentQuerySet(models.QuerySet["AlertIncident"]):
    def unclosed(self) -> AlertIncidentQuerySet:
        return self.filter(closed_at=None)

    def newest_first(self) -> AlertIncidentQuerySet:
        return self.order_by("-opened_at", "-pk")
