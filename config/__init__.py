"""The project: settings, entry points, and the processes that `make up` runs."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
