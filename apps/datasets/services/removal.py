"""Restoring deleted datasets, and removing them after their delay."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import object_storage
from apps.datasets import errors
from apps.datasets.models import Dataset, IndexedExample
from apps.datasets.services import attachments
from apps.organizations.models import ResourceType, Workspace
from apps.organizations.services import tags

_BATCH_SIZE = 20_000
_DELETE_BATCH = """
DELETE FROM datasets_examplerevision WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM datasets_examplerevision WHERE workspace_id = %s AND dataset_id = %s LIMIT %s
))
"""


def restore_delay() -> timedelta:
    return timedelta(days=settings.DATASET_RESTORE_DAYS)


def removal_time(dataset: Dataset) -> datetime | None:
    """Return when the deleted dataset is removed."""
    return None if dataset.deleted_at is None else dataset.deleted_at + restore_delay()


@transaction.atomic
def restore_dataset(*, dataset: Dataset) -> Dataset:
    """Restore the deleted dataset with all versions and tags; its public link stays revoked.

    Raises `DatasetNameTaken` if another dataset has its name, and `DatasetNotFound` if it is being
    removed.
    """
    rows = Dataset.objects.for_workspace(dataset.workspace_id).deleted().select_for_update()
    row = rows.filter(pk=dataset.pk).first()
    removed_at = None if row is None else removal_time(row)
    if row is None or removed_at is None or removed_at <= timezone.now():
        raise errors.DatasetNotFound
    row.deleted_at = None
    try:
        with transaction.atomic():
            row.save(update_fields=["deleted_at", "updated_at"])
    except IntegrityError:
        raise errors.DatasetNameTaken(
            f"Dataset with name {row.name:.200} already exists."
        ) from None
    record(
        Action.DATASET_RESTORED,
        Target("dataset", row.pk, row.name),
        after={"name": row.name, "example_count": row.example_count},
        workspace_id=row.workspace_id,
    )
    return row


def delete_all(workspace: Workspace) -> None:
    """Delete the datasets of a deleted workspace without a delay."""
    expired = timezone.now() - restore_delay() - timedelta(seconds=1)
    Dataset.objects.for_workspace(workspace).update(deleted_at=expired)


def remove_deleted(now: datetime | None = None) -> int:
    """Remove the datasets whose delay is over, with all rows and objects; return their number.

    Each batch of examples is a transaction. The dataset's row is last, so that the next call
    resumes after a crash.
    """
    limit = (now or timezone.now()) - restore_delay()
    datasets = Dataset.objects.across_workspaces(reason="the sweeper serves all workspaces")
    count = 0
    for dataset in datasets.deleted().filter(deleted_at__lt=limit).order_by("deleted_at"):
        while _delete_batch(dataset):
            pass
        IndexedExample.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset).delete()
        object_storage.remove_folder(attachments.folder(dataset.workspace_id, dataset.pk))
        tags.delete_taggings(
            workspace_id=dataset.workspace_id,
            resource_type=ResourceType.DATASET,
            resource_id=dataset.pk,
        )
        dataset.delete()
        count += 1
    return count


def _delete_batch(dataset: Dataset) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_BATCH, [dataset.workspace_id, dataset.pk, _BATCH_SIZE])
        return bool(cursor.rowcount)
