"""What tracing has done for it on a schedule. Each task may run twice, or late."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task


@shared_task(name="tracing.make_partitions", time_limit=60)
def make_partitions() -> None:
    """Make the days of runs that are to come."""
    from apps.trace_store.postgres import partitions  # noqa: PLC0415  (services import this module)

    partitions.create_partitions()


@shared_task(name="tracing.compact_run_counts", time_limit=300)
def compact_run_counts() -> None:
    """Merge the run counts of each past hour."""
    from apps.tracing.services import maintenance  # noqa: PLC0415  (services import this module)

    maintenance.compact_run_counts()


@shared_task(name="tracing.remove_deleted_projects", time_limit=3600)
def remove_deleted_projects() -> None:
    """Remove the runs and files of projects that were deleted, then their rows."""
    from apps.tracing.services import maintenance  # noqa: PLC0415  (services import this module)

    maintenance.remove_deleted_projects()


@shared_task(name="tracing.settle", time_limit=120)
def settle() -> None:
    """Do what follows from the runs that came."""
    from apps.trace_store.postgres.postprocess import processor  # noqa: PLC0415  (services import this module)

    processor.process_for(seconds=10)


@shared_task(name="tracing.delete_traces", time_limit=3600)
def delete_traces(deletion_id: str) -> None:
    """Go on with a deletion that was too large for its request."""
    from apps.tracing.services import deletion  # noqa: PLC0415  (services import this module)

    deletion.work_off(UUID(deletion_id))


@shared_task(name="tracing.go_on_deleting", time_limit=3600)
def go_on_deleting() -> None:
    """Take up deletions whose message was lost, and files whose runs are gone."""
    from apps.tracing.services import deletion  # noqa: PLC0415  (services import this module)

    deletion.go_on()


@shared_task(name="tracing.expire", time_limit=10_800)
def expire() -> None:
    """Remove the traces that have lived long enough."""
    from apps.tracing.services import expiry  # noqa: PLC0415  (services import this module)

    expiry.expire()


@shared_task(name="tracing.make_rollups", time_limit=300, expires=30)
def make_rollups() -> None:
    """Make statistics of quarters, hours and days again in which runs have changed."""
    from apps.trace_store.postgres.rollups import build  # noqa: PLC0415  (services import this module)

    build.rebuild_dirty_intervals()
