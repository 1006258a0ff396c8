"""Chainable queries on the tables of ingest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from apps.ingest.models import DeferredOperation, RejectionCount  # noqa: F401


class DeferredOperationQuerySet(models.QuerySet["DeferredOperation"]):
    pass


class RejectionCountQuerySet(models.QuerySet["RejectionCount"]):
    pass
