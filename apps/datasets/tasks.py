"""Scheduled tasks of datasets. Each task may run twice or late."""

from __future__ import annotations

from celery import shared_task

from apps.datasets.services import removal, search


@shared_task(name="datasets.remove_deleted", time_limit=3600)
def remove_deleted_datasets() -> None:
    """Remove the deleted datasets that can no longer be restored."""
    removal.remove_deleted()


@shared_task(name="datasets.sync_indexes", time_limit=600)
def sync_example_indexes() -> None:
    """Bring the few-shot indexes to the versions of their tags."""
    search.sync_all()
