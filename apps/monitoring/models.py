"""Dashboards: sections of charts over the runs of a workspace."""

from __future__ import annotations

from django.db import models

from apps.core.ids import uuid7
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.monitoring.querysets import (
    ChartQuerySet,
    OrganizationChartQuerySet,
    OrganizationSectionQuerySet,
    SectionQuerySet,
)


class ChartType(models.TextChoices):
    """How a chart is drawn. The values are part of the API."""

    LINE = "line"
    BAR = "bar"
    TABLE = "table"
    KPI = "kpi"
    TOP = "top-k"
    PIE = "pie"
    TEXT = "text"

    @property
    def is_over_time(self) -> bool:
        """Whether the chart has a value for each bucket, not one for the whole period."""
        return self in {ChartType.LINE, ChartType.BAR}


class SectionFields(models.Model):
    """Fields of workspace and organization dashboards."""

    title = models.CharField(max_length=200)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null and "" differ on the wire)
    index = models.IntegerField(default=0)
    modified_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.title


class ChartFields(models.Model):
    """Fields of workspace and organization charts."""

    title = models.CharField(max_length=200)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null and "" differ on the wire)
    chart_type = models.CharField(max_length=10, choices=ChartType, default=ChartType.LINE)
    index = models.IntegerField(default=0)
    metadata = models.JSONField(null=True, blank=True)
    common_filters = models.JSONField(default=dict, blank=True)
    series = models.JSONField(default=list)
    """Validated series in the JSON format of the API."""
    modified_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.title


class Section(SectionFields, WorkspaceOwned):
    """A dashboard."""

    project_id = models.UUIDField(null=True, blank=True)
    """The project from whose prebuilt dashboard the section was copied."""

    objects = TenantManager(SectionQuerySet)
    unscoped = SectionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "index", "created_at"], name="section_in_order")
        ]


class Chart(ChartFields, WorkspaceOwned):
    """A chart of one or more series."""

    section = models.ForeignKey(Section, models.CASCADE, related_name="charts")

    objects = TenantManager(ChartQuerySet)
    unscoped = ChartQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "section"], name="chart_of_section")]


class OrganizationOwned(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(
        "organizations.Organization", models.CASCADE, related_name="+", db_index=False
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


class OrganizationSection(SectionFields, OrganizationOwned):
    """A dashboard over several workspaces of an organization."""

    objects = OrganizationSectionQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(
                fields=["organization", "index", "created_at"], name="organization_section_order"
            )
        ]


class OrganizationChart(ChartFields, OrganizationOwned):
    """A chart in which each series names its workspace."""

    section = models.ForeignKey(OrganizationSection, models.CASCADE, related_name="charts")

    objects = OrganizationChartQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["organization", "section"], name="organization_chart_section")
        ]
