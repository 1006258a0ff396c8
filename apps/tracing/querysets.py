"""Chainable questions about projects and what belongs to them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

if TYPE_CHECKING:
    from apps.organizations.models import Workspace
    from apps.tracing.models import (  # noqa: F401
        DoomedFile,
        Feedback,
        FeedbackConfig,
        FeedbackFormula,
        FeedbackToken,
        HeldOperation,
        IngestCount,
        IngestRefusal,
        KeptTrace,
        ModelPrice,
        Project,
        Retention,
        SavedView,
        Share,
        TraceDeletion,
    )


class ProjectQuerySet(models.QuerySet["Project"]):
    def present(self) -> ProjectQuerySet:
        """Those that nobody has deleted."""
        return self.filter(deleted_at=None)

    def newest_first(self) -> ProjectQuerySet:
        return self.order_by("-start_time", "-pk")

    def experiments(self) -> ProjectQuerySet:
        return self.exclude(reference_dataset_id=None)

    def plain(self) -> ProjectQuerySet:
        """Those that are no experiment."""
        return self.filter(reference_dataset_id=None)


class FeedbackQuerySet(models.QuerySet["Feedback"]):
    def on_runs(self, run_ids: Collection[UUID]) -> FeedbackQuerySet:
        return self.filter(run_id__in=run_ids)


class HeldOperationQuerySet(models.QuerySet["HeldOperation"]):
    pass


class IngestCountQuerySet(models.QuerySet["IngestCount"]):
    pass


class IngestRefusalQuerySet(models.QuerySet["IngestRefusal"]):
    pass


class TraceDeletionQuerySet(models.QuerySet["TraceDeletion"]):
    def pending(self) -> TraceDeletionQuerySet:
        return self.filter(status="pending")


class DoomedFileQuerySet(models.QuerySet["DoomedFile"]):
    pass


class KeptTraceQuerySet(models.QuerySet["KeptTrace"]):
    pass


class ModelPriceQuerySet(models.QuerySet["ModelPrice"]):
    def newest_first(self) -> ModelPriceQuerySet:
        return self.order_by("-pk")

    def version(self) -> tuple[int, datetime | None]:
        """Differs from before when anything was changed."""
        found = self.aggregate(count=models.Count("pk"), latest=models.Max("updated_at"))
        return found["count"], found["latest"]


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    pass


class RetentionQuerySet(models.QuerySet["Retention"]):
    def reaching(self, workspace: Workspace) -> RetentionQuerySet:
        """What says something about the workspace: its own word first, then its organization's."""
        return self.filter(
            models.Q(workspace=workspace)
            | models.Q(workspace=None, organization_id=workspace.organization_id)
        ).order_by(models.F("workspace").asc(nulls_last=True))


class FeedbackConfigQuerySet(models.QuerySet["FeedbackConfig"]):
    pass


class FeedbackFormulaQuerySet(models.QuerySet["FeedbackFormula"]):
    def for_project(self, project: Project) -> FeedbackFormulaQuerySet:
        """Those of the project itself and, for an experiment, of its dataset."""
        about = models.Q(project=project)
        if project.reference_dataset_id is not None:
            about |= models.Q(dataset_id=project.reference_dataset_id)
        return self.filter(about)


class FeedbackTokenQuerySet(models.QuerySet["FeedbackToken"]):
    pass


class ShareQuerySet(models.QuerySet["Share"]):
    def newest_first(self) -> ShareQuerySet:
        return self.order_by("-created_at", "-pk")
