"""Query sets of projects and related models."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from apps.organizations.models import Workspace
    from apps.tracing.models import (  # noqa: F401
        ModelPrice,
        PendingFileDeletion,
        Project,
        RetainedTrace,
        Retention,
        RunCount,
        SavedView,
        Share,
        TraceDeletion,
    )


class ProjectQuerySet(models.QuerySet["Project"]):
    def present(self) -> ProjectQuerySet:
        """Projects that are not deleted."""
        return self.filter(deleted_at=None)

    def newest_first(self) -> ProjectQuerySet:
        return self.order_by("-start_time", "-pk")

    def experiments(self) -> ProjectQuerySet:
        return self.exclude(reference_dataset_id=None)

    def plain(self) -> ProjectQuerySet:
        """Projects that are not experiments."""
        return self.filter(reference_dataset_id=None)


class RunCountQuerySet(models.QuerySet["RunCount"]):
    pass


class TraceDeletionQuerySet(models.QuerySet["TraceDeletion"]):
    def pending(self) -> TraceDeletionQuerySet:
        return self.filter(status="pending")


class PendingFileDeletionQuerySet(models.QuerySet["PendingFileDeletion"]):
    pass


class RetainedTraceQuerySet(models.QuerySet["RetainedTrace"]):
    pass


class ModelPriceQuerySet(models.QuerySet["ModelPrice"]):
    def newest_first(self) -> ModelPriceQuerySet:
        return self.order_by("-pk")

    def version(self) -> tuple[int, datetime | None]:
        """Return a value that changes with any change of the entries."""
        result = self.aggregate(count=models.Count("pk"), latest=models.Max("updated_at"))
        return result["count"], result["latest"]


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    pass


class RetentionQuerySet(models.QuerySet["Retention"]):
    def reaching(self, workspace: Workspace) -> RetentionQuerySet:
        """Return the settings of the workspace, then those of its organization."""
        return self.filter(
            models.Q(workspace=workspace)
            | models.Q(workspace=None, organization_id=workspace.organization_id)
        ).order_by(models.F("workspace").asc(nulls_last=True))


class ShareQuerySet(models.QuerySet["Share"]):
    def newest_first(self) -> ShareQuerySet:
        return self.order_by("-created_at", "-pk")
