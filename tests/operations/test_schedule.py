"""The schedule of periodic tasks."""

from __future__ import annotations

from django.conf import settings

from config.celery import app


def test_each_scheduled_task_exists():
    app.loader.import_default_modules()

    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}

    assert scheduled - set(app.tasks) == set()
