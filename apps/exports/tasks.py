"""Celery tasks of exports. They work in slices, so that a worker can do other work in between."""

from __future__ import annotations

from celery import shared_task

from apps.exports import dispatch, runner, services


@shared_task(name="exports.run_exports", time_limit=900, acks_late=False)
def run_exports() -> None:
    """Write files of unfinished exports for one slice. Idempotent: each part is claimed."""
    if runner.run_slice(seconds=30):
        dispatch.send_run_exports()


@shared_task(name="exports.schedule_exports", time_limit=300, acks_late=False)
def schedule_exports() -> None:
    """Create the due exports of schedules, and resume unfinished exports."""
    services.create_due_exports()
    dispatch.send_run_exports()
