"""Exports go on in slices, so that none keeps a worker from its other work."""

from __future__ import annotations

from celery import shared_task


@shared_task(name="exports.go_on", time_limit=900, acks_late=False)
def go_on() -> None:
    """Write some files of what is unfinished. Safe to run twice: each part is claimed."""
    from apps.exports import runner  # noqa: PLC0415  (services import this module)

    if runner.work_for(seconds=30):
        go_on.delay()


@shared_task(name="exports.spawn", time_limit=300, acks_late=False)
def spawn() -> None:
    """Make the exports of schedules whose window is over, and take up what was left."""
    from apps.exports import services  # noqa: PLC0415  (services import this module)

    services.spawn_due()
    go_on.delay()
