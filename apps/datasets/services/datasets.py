"""Creating, changing and deleting datasets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Count, Max
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import check_row_limit
from apps.datasets import errors
from apps.datasets.models import Dataset, DatasetShare, DatasetVersion
from apps.organizations.models import ResourceType
from apps.organizations.services import tags
from apps.tracing.models import Project

MAX_DATASETS = 10_000
"""Of a workspace; with deleted ones, until their examples are removed."""


def get_dataset(workspace_id: UUID, dataset_id: UUID) -> Dataset:
    """Return the workspace's dataset; raises `DatasetNotFound`."""
    dataset = Dataset.objects.for_workspace(workspace_id).present().filter(pk=dataset_id).first()
    if dataset is None:
        raise errors.DatasetNotFound
    return dataset


def dataset_exists(workspace_id: UUID, dataset_id: UUID) -> bool:
    return Dataset.objects.for_workspace(workspace_id).present().filter(pk=dataset_id).exists()


@transaction.atomic
def create_dataset(
    *, workspace_id: UUID, tag_value_ids: Collection[UUID] = (), **fields: Any
) -> Dataset:
    """Create an empty dataset with its first version.

    Raises `DatasetNameTaken`, or `DatasetIdTaken` for the id of another dataset.
    """
    now = timezone.now()
    dataset = Dataset(workspace_id=workspace_id, latest_version_at=now, **fields)
    try:
        with transaction.atomic():
            dataset.save(force_insert=True)
    except IntegrityError:
        names = Dataset.objects.for_workspace(workspace_id).present().filter(name=dataset.name)
        raise (
            errors.DatasetNameTaken(f"Dataset with name {dataset.name:.200} already exists.")
            if names.exists()
            else errors.DatasetIdTaken
        ) from None
    datasets = Dataset.objects.for_workspace(workspace_id)
    check_row_limit(datasets, MAX_DATASETS, "datasets of a workspace")
    DatasetVersion(workspace_id=workspace_id, dataset=dataset, as_of=now).save(force_insert=True)
    _record(Action.DATASET_CREATED, dataset, after={"name": dataset.name})
    if tag_value_ids:
        tags.add_tags(
            workspace_id=workspace_id,
            value_ids=tag_value_ids,
            resource_type=ResourceType.DATASET,
            resource_id=dataset.pk,
        )
    return dataset


@transaction.atomic
def update_dataset(*, dataset: Dataset, changes: Mapping[str, Any]) -> Dataset:
    """Set the changed fields; `metadata` replaces the client's. Examples stay as they are.

    Raises `DatasetNameTaken`, and `ExperimentNotFound` for a baseline of another dataset.
    """
    if not changes:
        return dataset
    baseline_id = changes.get("baseline_experiment_id")
    if baseline_id is not None and not _is_experiment_on(dataset, baseline_id):
        raise errors.ExperimentNotFound
    if "metadata" in changes:
        metadata = changes["metadata"]
        changes = {name: value for name, value in changes.items() if name != "metadata"}
        changes |= {"extra": dataset.extra | {"metadata": metadata}}
    before = {name: getattr(dataset, name) for name in changes}
    for name, value in changes.items():
        setattr(dataset, name, value)
    try:
        with transaction.atomic():
            dataset.save(update_fields=[*changes, "updated_at"])
    except IntegrityError:
        raise errors.DatasetNameTaken(
            f"Dataset with name {dataset.name:.200} already exists."
        ) from None
    _record(Action.DATASET_UPDATED, dataset, before=before, after=changes)
    return dataset


def _is_experiment_on(dataset: Dataset, project_id: UUID) -> bool:
    experiments = Project.objects.for_workspace(dataset.workspace_id).present()
    return experiments.filter(pk=project_id, reference_dataset_id=dataset.pk).exists()


@transaction.atomic
def delete_dataset(*, dataset: Dataset) -> None:
    """Hide the dataset, free its name and revoke its link. A task removes it after a delay."""
    datasets = Dataset.objects.for_workspace(dataset.workspace_id)
    if not datasets.present().filter(pk=dataset.pk).update(deleted_at=timezone.now()):
        return
    DatasetShare.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset).delete()
    _record(
        Action.DATASET_DELETED,
        dataset,
        before={"name": dataset.name, "example_count": dataset.example_count},
    )


def _record(
    action: Action,
    dataset: Dataset,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    record(
        action,
        Target("dataset", dataset.pk, dataset.name),
        before=before,
        after=after,
        workspace_id=dataset.workspace_id,
    )


@dataclass(frozen=True, slots=True)
class ExperimentCounts:
    """The experiments on a dataset."""

    count: int = 0
    last_start_time: datetime | None = None


def count_experiments(
    workspace_id: UUID, dataset_ids: Collection[UUID]
) -> dict[UUID, ExperimentCounts]:
    """Return the number and the last start of the experiments on each dataset, in one query."""
    experiments = Project.objects.for_workspace(workspace_id).present()
    rows = (
        experiments.filter(reference_dataset_id__in=dataset_ids)
        .values("reference_dataset_id")
        .annotate(count=Count("pk"), last=Max("start_time"))
    )
    return {
        row["reference_dataset_id"]: ExperimentCounts(row["count"], row["last"])
        for row in rows
        if row["reference_dataset_id"] is not None
    }
