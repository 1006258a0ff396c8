"""Chainable queries on the tables of ingest."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import Exists, OuterRef

if TYPE_CHECKING:
    from apps.ingest.models import DeferredOperation, RejectionCount  # noqa: F401


class DeferredOperationQuerySet(models.QuerySet["DeferredOperation"]):
    def received_before(self, time: datetime) -> Self:
        return self.filter(created_at__lt=time)

    def orphans(self) -> Self:
        """Creates, in the order of promotion: those whose parent is deferred itself come last."""
        parents = self.filter(workspace=OuterRef("workspace"), run_id=OuterRef("awaited_run_id"))
        creates = self.filter(is_update=False)
        awaits_orphan = Exists(parents.filter(is_update=False))
        return creates.order_by(awaits_orphan, "created_at", "pk")


class RejectionCountQuerySet(models.QuerySet["RejectionCount"]):
    pass
