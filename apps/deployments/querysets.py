"""QuerySets of deployments and revisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.deployments.statuses import FINAL, IN_PROGRESS, PENDING

if TYPE_CHECKING:
    from apps.deployments.models import (  # noqa: F401
        Deployment,
        DeploymentWebhook,
        EnvironmentVariable,
        LogLine,
        Revision,
        RevisionGraph,
        StatusChange,
    )


class DeploymentQuerySet(models.QuerySet["Deployment"]):
    def present(self) -> DeploymentQuerySet:
        """Exclude deleted deployments."""
        return self.filter(deleted_at=None)

    def newest_first(self) -> DeploymentQuerySet:
        return self.order_by("-created_at", "-pk")


class RevisionQuerySet(models.QuerySet["Revision"]):
    def newest_first(self) -> RevisionQuerySet:
        return self.order_by("-number")

    def unfinished(self) -> RevisionQuerySet:
        return self.exclude(status__in=sorted(FINAL))

    def pending(self) -> RevisionQuerySet:
        """Keep revisions that no builder has started."""
        return self.filter(status__in=sorted(PENDING))

    def in_progress(self) -> RevisionQuerySet:
        """Keep revisions that a builder holds, or held before it died."""
        return self.filter(status__in=sorted(IN_PROGRESS))

    def abandoned(self) -> RevisionQuerySet:
        """Keep revisions whose builder let the lease expire."""
        return self.in_progress().filter(lease_expires_at__lt=timezone.now())

    def unclaimed(self) -> RevisionQuerySet:
        """Keep revisions that a builder can claim now."""
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
        """Keep lines with a higher id, oldest first."""
        return self.filter(pk__gt=line_id).order_by("pk")


class RevisionGraphQuerySet(models.QuerySet["RevisionGraph"]):
    def in_order(self) -> RevisionGraphQuerySet:
        return self.order_by("graph_id")


class DeploymentWebhookQuerySet(models.QuerySet["DeploymentWebhook"]):
    pass
