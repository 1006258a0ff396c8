"""The Celery application. Required work is a database row; messages only start it."""

import os

from celery import Celery

import apps.core.observability.readiness  # noqa: F401  (connects its signals)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("slipway")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
