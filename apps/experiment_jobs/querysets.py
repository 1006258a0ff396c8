"""Chainable queries on experiment jobs and their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Count, Q

from apps.experiment_jobs.statuses import OPEN, StepStatus

if TYPE_CHECKING:
    from apps.experiment_jobs.models import ExperimentJob, ExperimentStep  # noqa: F401


class ExperimentJobQuerySet(models.QuerySet["ExperimentJob"]):
    def unfinished(self) -> ExperimentJobQuerySet:
        return self.filter(status__in=sorted(OPEN))

    def newest_first(self) -> ExperimentJobQuerySet:
        return self.order_by("-created_at", "-pk")

    def with_running(self) -> ExperimentJobQuerySet:
        """Annotate the number of steps whose agent run has not ended as `running_count`."""
        running = Q(steps__status=StepStatus.RUNNING)
        return self.annotate(running_count=Count("steps", filter=running))


class ExperimentStepQuerySet(models.QuerySet["ExperimentStep"]):
    def pending(self) -> ExperimentStepQuerySet:
        return self.filter(status=StepStatus.PENDING)

    def running(self) -> ExperimentStepQuerySet:
        return self.filter(status=StepStatus.RUNNING)
