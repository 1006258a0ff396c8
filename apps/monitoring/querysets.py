"""Querysets of dashboards and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

if TYPE_CHECKING:
    from apps.monitoring.models import (  # noqa: F401
        Chart,
        OrganizationChart,
        OrganizationSection,
        Section,
    )


class SectionQuerySet(models.QuerySet["Section"]):
    def with_counts(self) -> SectionQuerySet:
        """Annotate `chart_count`."""
        return self.annotate(chart_count=models.Count("charts"))

    def in_order(self) -> SectionQuerySet:
        return self.order_by("index", "created_at", "pk")


class ChartQuerySet(models.QuerySet["Chart"]):
    def in_order(self) -> ChartQuerySet:
        return self.order_by("index", "created_at", "pk")


class OrganizationSectionQuerySet(models.QuerySet["OrganizationSection"]):
    def of(self, organization_id: UUID) -> OrganizationSectionQuerySet:
        return self.filter(organization_id=organization_id)

    def with_counts(self) -> OrganizationSectionQuerySet:
        """Annotate `chart_count`."""
        return self.annotate(chart_count=models.Count("charts"))

    def in_order(self) -> OrganizationSectionQuerySet:
        return self.order_by("index", "created_at", "pk")


class OrganizationChartQuerySet(models.QuerySet["OrganizationChart"]):
    def of(self, organization_id: UUID) -> OrganizationChartQuerySet:
        return self.filter(organization_id=organization_id)

    def in_order(self) -> OrganizationChartQuerySet:
        return self.order_by("index", "created_at", "pk")
