"""Chainable questions about projects and what belongs to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

if TYPE_CHECKING:
    from apps.tracing.models import Feedback, HeldOperation, IngestCount, Project  # noqa: F401


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
