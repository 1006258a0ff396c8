"""What tracing has done for it on a schedule. Each task may run twice, or late."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task


@shared_task(name="tracing.make_partitions", time_limit=60)
def make_partitions() -> None:
    """Make the days of runs that are to come."""
    from apps.trace_store.store import partitions  # noqa: PLC0415  (services import this module)

    partitions.make_ahead()


@shared_task(name="tracing.settle_held", time_limit=300)
def settle_held() -> None:
    """Place held operations whose run came at the same moment, and those that waited too long."""
    from apps.tracing.services import maintenance  # noqa: PLC0415  (services import this module)

    maintenance.settle_held()


@shared_task(name="tracing.compact_counts", time_limit=300)
def compact_counts() -> None:
    """Make one row of the counts of each past hour."""
    from apps.tracing.services import maintenance  # noqa: PLC0415  (services import this module)

    maintenance.compact_counts()


@shared_task(name="tracing.remove_deleted_projects", time_limit=3600)
def remove_deleted_projects() -> None:
    """Remove the runs and files of projects that were deleted, then their rows."""
    from apps.tracing.services import maintenance  # noqa: PLC0415  (services import this module)

    maintenance.remove_deleted_projects()


@shared_task(name="tracing.settle", time_limit=120)
def settle() -> None:
    """Do what follows from the runs that came."""
    from apps.trace_store.postprocess import processor  # noqa: PLC0415  (services import this module)

    processor.run_for(seconds=10)


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


@shared_task(name="tracing.attach_feedback", time_limit=300)
def attach_feedback() -> None:
    """Look for the runs of feedback that came in the stream of runs."""
    from apps.feedback.services import attach_to_runs  # noqa: PLC0415  (services import this)

    attach_to_runs.attach_pending()


@shared_task(name="tracing.compute_formulas", time_limit=3600)
def compute_formulas() -> None:
    """Compute what new and changed formulas of feedback give."""
    from apps.feedback.services import formulas  # noqa: PLC0415  (services import this)

    formulas.compute_stale()


@shared_task(name="tracing.forget_feedback_tokens", time_limit=600)
def forget_feedback_tokens() -> None:
    """Remove tokens that expired long ago."""
    from apps.feedback.services import tokens  # noqa: PLC0415  (services import this)

    tokens.forget_expired()


@shared_task(name="tracing.make_rollups", time_limit=300, expires=30)
def make_rollups() -> None:
    """Make statistics of quarters, hours and days again in which runs have changed."""
    from apps.trace_store.store import rollup_build  # noqa: PLC0415  (services import this module)

    rollup_build.make_dirty()


@shared_task(name="tracing.close_quiet_traces", time_limit=300)
def close_quiet_traces() -> None:
    """End what stands in for roots of spans that did not come; forget traces long over."""
    from apps.ingest.otlp import upkeep  # noqa: PLC0415  (services import this module)

    upkeep.close_quiet_traces()
