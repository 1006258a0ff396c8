"""Chainable questions about deployments and revisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from apps.deployments.statuses import FINAL

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


class RevisionQuerySet(models.QuerySet["Revision"]):
    def newest_first(self) -> RevisionQuerySet:
        return self.order_by("-number")

    def unfinished(self) -> RevisionQuerySet:
        return self.exclude(status__in=sorted(FINAL))


class EnvironmentVariableQuerySet(models.QuerySet["EnvironmentVariable"]):
    pass


class StatusChangeQuerySet(models.QuerySet["StatusChange"]):
    pass


class LogLineQuerySet(models.QuerySet["LogLine"]):
    pass


class RevisionGraphQuerySet(models.QuerySet["RevisionGraph"]):
    pass
