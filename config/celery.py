"""The Celery application: messages to the worker fleet; what must happen is a row."""

import os

from celery import Celery

import apps.core.observability.readiness  # noqa: F401  (connects its signals)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("slipway")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
