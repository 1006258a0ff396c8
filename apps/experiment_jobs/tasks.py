"""The periodic tasks of experiment jobs."""

from __future__ import annotations

from celery import shared_task

from apps.experiment_jobs.services import execution


@shared_task(name="experiment_jobs.advance", acks_late=False, time_limit=300)
def advance_jobs() -> None:
    """Record the ends of runs and start the next ones, for one slice.

    Safe to repeat and to run concurrently: an organization is advanced by one task at a time.
    """
    execution.run_slice()


@shared_task(name="experiment_jobs.delete_old_steps", acks_late=False, time_limit=3600)
def delete_old_steps() -> None:
    """Delete the steps of jobs that ended a day ago. Safe to repeat."""
    execution.delete_old_steps()
