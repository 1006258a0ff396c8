"""Query sets of projects and related models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from apps.organizations.models import Workspace
    from apps.tracing.models import (  # noqa: F401
        Project,
        Retention,
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

    def without_experiments(self) -> ProjectQuerySet:
        """Projects that are not experiments."""
        return self.filter(reference_dataset_id=None)


class TraceDeletionQuerySet(models.QuerySet["TraceDeletion"]):
    def pending(self) -> TraceDeletionQuerySet:
        return self.filter(status="pending")


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
