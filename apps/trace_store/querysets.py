"""Query sets of the store's models."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from apps.trace_store.models import (  # noqa: F401
        ModelPrice,
        PendingFileDeletion,
        RetainedTrace,
        RunCount,
    )


class RunCountQuerySet(models.QuerySet["RunCount"]):
    pass


class RetainedTraceQuerySet(models.QuerySet["RetainedTrace"]):
    pass


class PendingFileDeletionQuerySet(models.QuerySet["PendingFileDeletion"]):
    pass


class ModelPriceQuerySet(models.QuerySet["ModelPrice"]):
    def newest_first(self) -> ModelPriceQuerySet:
        return self.order_by("-pk")

    def version(self) -> tuple[int, datetime | None]:
        """Return a value that changes with any change of the entries."""
        result = self.aggregate(count=models.Count("pk"), latest=models.Max("updated_at"))
        return result["count"], result["latest"]
