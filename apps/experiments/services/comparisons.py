"""Comparisons of experiments whose runs are ranked against each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import check_row_limit
from apps.datasets.models import Dataset
from apps.experiments import errors
from apps.experiments.models import ComparativeExperiment
from apps.experiments.services.results import get_experiments
from apps.feedback.models import Feedback
from apps.tracing.models import Project

MAX_COMPARISONS = 10_000


def get_comparison(
    workspace_id: UUID, comparison_id: UUID, *, dataset: Dataset | None = None
) -> ComparativeExperiment:
    """Return the comparison of a present dataset, or of this one; raises `ComparisonNotFound`."""
    rows = ComparativeExperiment.objects.for_workspace(workspace_id)
    comparison = rows.filter(pk=comparison_id, dataset__deleted_at=None).first()
    if comparison is None or (dataset is not None and comparison.dataset_id != dataset.pk):
        raise errors.ComparisonNotFound
    return comparison


def create_comparison(
    *,
    dataset: Dataset,
    experiment_ids: Sequence[UUID],
    comparison_id: UUID | None = None,
    created_at: datetime | None = None,
    modified_at: datetime | None = None,
    **fields: Any,
) -> ComparativeExperiment:
    """Compare two or more experiments on the dataset.

    Raises `ExperimentNotFound`, and `ComparisonIdTaken` for the id of another comparison.
    """
    get_experiments(dataset, experiment_ids)
    now = timezone.now()
    comparison = ComparativeExperiment(
        workspace_id=dataset.workspace_id,
        dataset=dataset,
        experiment_ids=list(dict.fromkeys(experiment_ids)),
        created_at=created_at or now,
        modified_at=modified_at or created_at or now,
        **fields,
    )
    if comparison_id is not None:
        comparison.pk = comparison_id
    try:
        with transaction.atomic():
            comparison.save(force_insert=True)
            comparisons = ComparativeExperiment.objects.for_workspace(dataset.workspace_id)
            check_row_limit(comparisons, MAX_COMPARISONS, "comparisons of a workspace")
    except IntegrityError:
        raise errors.ComparisonIdTaken from None
    return comparison


@transaction.atomic
def delete_comparison(*, comparison: ComparativeExperiment) -> None:
    """Delete the comparison with its feedback; the experiments stay."""
    workspace_id = comparison.workspace_id
    feedback = Feedback.objects.for_workspace(workspace_id)
    feedback.filter(comparative_experiment_id=comparison.pk).delete()
    record(
        Action.COMPARISON_DELETED,
        Target("comparison", comparison.pk, str(comparison)),
        before={"name": comparison.name, "experiment_ids": comparison.experiment_ids},
        workspace_id=workspace_id,
    )
    comparison.delete()


def experiment_names(
    workspace_id: UUID, comparisons: Sequence[ComparativeExperiment]
) -> dict[UUID, str]:
    """Return the names of the compared experiments that are not deleted, in one query."""
    ids = {experiment_id for item in comparisons for experiment_id in item.experiment_ids}
    projects = Project.objects.for_workspace(workspace_id).present().filter(pk__in=ids)
    return dict(projects.values_list("pk", "name"))
