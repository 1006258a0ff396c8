"""Permanent removal: of examples from all versions, and of datasets after their delay."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import transaction
from django.db.models import Count, F

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import object_storage
from apps.datasets import errors
from apps.datasets.models import Dataset, DatasetVersion, ExampleRevision
from apps.datasets.querysets import ExampleRevisionQuerySet
from apps.datasets.services import attachments
from apps.datasets.services.versions import write_version


def erase_examples(*, workspace_id: UUID, example_ids: Collection[UUID]) -> None:
    """Remove the examples and their attachments from all versions of their datasets.

    Raises `ExampleNotFound` if one does not exist; then none is removed. The counts of earlier
    versions stay as they were when written. Attachments are removed after the commit: a crash in
    between leaves objects that the removal of the dataset removes.
    """
    rows = ExampleRevision.objects.for_workspace(workspace_id)
    rows = rows.filter(example_id__in=example_ids, dataset__deleted_at=None)
    with transaction.atomic():
        dataset_by_example = dict(rows.values_list("example_id", "dataset_id"))
        missing = set(example_ids) - dataset_by_example.keys()
        if missing:
            raise errors.ExampleNotFound(f"There is no example {min(missing)}.")
        for dataset_id in sorted(set(dataset_by_example.values())):
            ids = [item for item, owner in dataset_by_example.items() if owner == dataset_id]
            with write_version(workspace_id, dataset_id) as version:
                version.remove(ids)
                erased = rows.filter(dataset_id=dataset_id, example_id__in=ids)
                _subtract_from_versions(version.dataset, erased)
                erased.delete()
            record(
                Action.EXAMPLES_ERASED,
                Target("examples", dataset_id, version.dataset.name),
                before={"count": len(ids), "example_ids": ids},
                workspace_id=workspace_id,
            )
        paths = [
            attachments.folder(workspace_id, dataset_id, example_id)
            for example_id, dataset_id in dataset_by_example.items()
        ]
        transaction.on_commit(lambda: _remove_folders(paths), robust=True)


def _subtract_from_versions(dataset: Dataset, erased: ExampleRevisionQuerySet) -> None:
    versions = DatasetVersion.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    counts = erased.order_by().values("valid_from").annotate(count=Count("*"))
    for as_of, count in counts.values_list("valid_from", "count"):
        versions.filter(as_of=as_of).update(added_count=F("added_count") - count)


def _remove_folders(paths: list[str]) -> None:
    for path in paths:
        object_storage.remove_folder(path)
