"""API routes of annotation queues."""

from apps.annotation.api import items, queues, reviewers, runs

urlpatterns = [*queues.routes, *runs.routes, *items.routes, *reviewers.routes]
