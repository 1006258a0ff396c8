"""Querysets of exports and their parts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from apps.exports.models import BulkExport, Destination, ExportPart  # noqa: F401


class DestinationQuerySet(models.QuerySet["Destination"]):
    pass


class BulkExportQuerySet(models.QuerySet["BulkExport"]):
    def unfinished(self) -> BulkExportQuerySet:
        return self.filter(finished_at=None)

    def scheduled(self) -> BulkExportQuerySet:
        return self.exclude(next_window_at=None)


class ExportPartQuerySet(models.QuerySet["ExportPart"]):
    def unfinished(self) -> ExportPartQuerySet:
        return self.filter(finished_at=None)

    def claimable(self, now: datetime) -> ExportPartQuerySet:
        """Unfinished parts without a current lease or retry delay."""
        return self.unfinished().filter(Q(locked_until=None) | Q(locked_until__lt=now))
