"""Comparisons of experiments. An experiment is a project with a reference dataset."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.datasets.models import Dataset
from apps.experiments.querysets import ComparativeExperimentQuerySet

NAME_LENGTH = 1000


class ComparativeExperiment(WorkspaceOwned):
    """Experiments on one dataset whose runs are ranked against each other.

    The ranks are feedback on the runs that names the comparison.
    """

    created_at = models.DateTimeField(default=timezone.now)
    """The time that the client sent, or the server time if it sent none."""
    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="+", db_index=False)
    name = models.CharField(max_length=NAME_LENGTH, null=True)  # noqa: DJ001  (null: no name)
    description = models.TextField(null=True)  # noqa: DJ001  (null and "" differ on the wire)
    extra = models.JSONField(default=dict)
    """Data attached by the client; its `metadata` is the comparison's metadata."""
    experiment_ids = ArrayField(models.UUIDField())
    """The compared experiments in the client's order; some may be deleted."""
    modified_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager(ComparativeExperimentQuerySet)
    unscoped = ComparativeExperimentQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(
                fields=["workspace", "dataset", "-created_at", "-id"], name="comparison_newest"
            ),
            models.Index(fields=["dataset"], name="comparison_of_dataset"),
        ]

    def __str__(self) -> str:
        return self.name or str(self.pk)
