"""Chainable questions about deployments and revisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.deployments.statuses import FINAL, WAITING, WORKING

if TYPE_CHECKING:
    from apps.deployments.models import (  # noqa: F401
        Deployment,
        EnvironmentVariable,
        LogLine,
        Revision,
        RevisionGraph,
        StatusChange,
    )


class DeploymentQuerySet(models.QuerySet["Deployment"]):
    def present(self) -> DeploymentQuerySet:
        """Those that nobody has deleted."""
        return self.filter(deleted_at=None)

    def newest_first(self) -> DeploymentQuerySet:
        return self.order_by("-created_at", "-pk")


class RevisionQuerySet(models.QuerySet["Revision"]):
    def newest_first(self) -> RevisionQuerySet:
        return self.order_by("-number")

    def unfinished(self) -> RevisionQuerySet:
        return self.exclude(status__in=sorted(FINAL))

    def waiting(self) -> RevisionQuerySet:
        """Those that no builder has begun."""
        return self.filter(status__in=sorted(WAITING))

    def working(self) -> RevisionQuerySet:
        """Those that a builder has, or had before it died."""
        return self.filter(status__in=sorted(WORKING))

    def abandoned(self) -> RevisionQuerySet:
        """Those whose builder gave no sign of life for too long."""
        return self.working().filter(lease_expires_at__lt=timezone.now())

    def unclaimed(self) -> RevisionQuerySet:
        """Those that a builder may take up as soon as it hears of them."""
        return self.filter(
            Q(lease_expires_at=None), status__in=["AWAITING_BUILD", "AWAITING_DEPLOY"]
        )

    def in_status(self, statuses: Iterable[str]) -> RevisionQuerySet:
        return self.filter(status__in=list(statuses))


class EnvironmentVariableQuerySet(models.QuerySet["EnvironmentVariable"]):
    pass


class StatusChangeQuerySet(models.QuerySet["StatusChange"]):
    def in_order(self) -> StatusChangeQuerySet:
        return self.order_by("created_at", "pk")


class LogLineQuerySet(models.QuerySet["LogLine"]):
    def after(self, line_id: int) -> LogLineQuerySet:
        """The lines behind that one, oldest first."""
        return self.filter(pk__gt=line_id).order_by("pk")


class RevisionGraphQuerySet(models.QuerySet["RevisionGraph"]):
    def in_order(self) -> RevisionGraphQuerySet:
        return self.order_by("graph_id")
