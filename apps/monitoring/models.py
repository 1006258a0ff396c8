"""Dashboards: sections of charts over the runs of a workspace."""

from __future__ import annotations

from uuid import UUID

from django.db import models

from apps.core.ids import uuid7
from apps.core.tenancy import TenantManager, WorkspaceOwned

MAX_COLUMNS = 3
"""Columns of a dashboard's grid on a wide page."""


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
    def of_organization(self, organization_id: UUID) -> OrganizationSectionQuerySet:
        return self.filter(organization_id=organization_id)

    def with_counts(self) -> OrganizationSectionQuerySet:
        """Annotate `chart_count`."""
        return self.annotate(chart_count=models.Count("charts"))

    def in_order(self) -> OrganizationSectionQuerySet:
        return self.order_by("index", "created_at", "pk")


class OrganizationChartQuerySet(models.QuerySet["OrganizationChart"]):
    def of_organization(self, organization_id: UUID) -> OrganizationChartQuerySet:
        return self.filter(organization_id=organization_id)

    def in_order(self) -> OrganizationChartQuerySet:
        return self.order_by("index", "created_at", "pk")


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
    columns = models.PositiveSmallIntegerField(default=1)
    """The width on the page, in columns of the grid: 1 to `MAX_COLUMNS`."""

    objects = TenantManager(ChartQuerySet)
    unscoped = ChartQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "section"], name="chart_of_section")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(columns__range=(1, MAX_COLUMNS)), name="chart_columns_range"
            )
        ]


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
