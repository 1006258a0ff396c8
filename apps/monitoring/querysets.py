"""Chainable questions about dashboards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from apps.monitoring.models import Chart, Section  # noqa: F401


class SectionQuerySet(models.QuerySet["Section"]):
    def with_counts(self) -> SectionQuerySet:
        """Each with `chart_count`."""
        return self.annotate(chart_count=models.Count("charts"))

    def in_order(self) -> SectionQuerySet:
        return self.order_by("index", "created_at", "pk")


class ChartQuerySet(models.QuerySet["Chart"]):
    def in_order(self) -> ChartQuerySet:
        return self.order_by("index", "created_at", "pk")
