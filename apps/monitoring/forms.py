"""Forms of dashboards and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms

from apps.core import errors
from apps.monitoring.models import MAX_COLUMNS, Chart, ChartType
from apps.monitoring.series import DEFAULT_MAX_GROUPS, FEEDBACK_METRICS, METRICS
from apps.trace_store.aggregation import GroupAttribute
from apps.tracing.forms import RunFilterField
from apps.tracing.models import Project

_GROUP_CHOICES = [
    ("", "None"),
    *((attribute.value, attribute.value.replace("_", " ")) for attribute in GroupAttribute),
]


def parse_layout(chart_ids: Sequence[str], columns: Sequence[str]) -> list[tuple[UUID, int]]:
    """Parse the ids of charts and their widths. Raises `Invalid`."""
    if not chart_ids or len(chart_ids) != len(columns):
        raise errors.Invalid("columns: one is required for each chart.")
    try:
        ids = [UUID(chart_id) for chart_id in chart_ids]
    except ValueError:
        raise errors.Invalid("chart: must be the id of a chart.") from None
    if not all(width.isascii() and width.isdigit() and len(width) == 1 for width in columns):
        raise errors.Invalid(f"columns: must be from 1 to {MAX_COLUMNS}.")
    return list(zip(ids, map(int, columns), strict=True))


class SectionForm(forms.Form):
    title = forms.CharField(max_length=200, label="Name")
    description = forms.CharField(max_length=2000, required=False, label="Description")


class ChartForm(forms.Form):
    title = forms.CharField(max_length=200, label="Title")
    chart_type = forms.ChoiceField(
        choices=[
            (ChartType.LINE, "Line chart"),
            (ChartType.BAR, "Bar chart"),
            (ChartType.KPI, "Single value"),
            (ChartType.TABLE, "Table"),
            (ChartType.TOP, "Top list"),
        ],
        label="Chart type",
    )
    metrics = forms.MultipleChoiceField(
        choices=[(metric, metric.replace("_", " ")) for metric in METRICS],
        label="Metrics",
        help_text="Metrics of different units are drawn below each other, each with its own axis.",
        widget=forms.CheckboxSelectMultiple,
    )
    feedback_key = forms.CharField(max_length=1000, required=False, label="Feedback key")
    filter = RunFilterField(
        max_length=8000,
        required=False,
        label="Filter",
        help_text="A filter expression, for example `eq(is_root, true)` for traces only.",
        widget=forms.TextInput,
    )
    group_by = forms.ChoiceField(choices=_GROUP_CHOICES, required=False, label="Group by")
    path = forms.CharField(max_length=200, required=False, label="Metadata key")
    columns = forms.ChoiceField(
        choices=[("1", "1 column"), ("2", "2 columns"), ("3", "3 columns")],
        required=False,
        label="Width",
    )
    position = forms.IntegerField(min_value=1, required=False, label="Position")

    def __init__(
        self, *args: Any, projects: Sequence[Project], chart: Chart | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if chart is None:
            del self.fields["position"]
        self.fixed_series = chart.series if chart is not None and not _fits_form(chart) else None
        """Series that the form cannot represent; they are left unchanged."""
        if self.fixed_series is not None:
            for name in ("metrics", "feedback_key", "group_by", "path"):
                del self.fields[name]
        choices = [("", "All projects"), *((str(project.pk), project.name) for project in projects)]
        self.fields["project"] = forms.ChoiceField(choices=choices, required=False, label="Project")

    @staticmethod
    def initial_for(chart: Chart) -> dict[str, Any]:
        first = chart.series[0] if chart.series else {}
        group = first.get("group_by") or {}
        common = chart.common_filters or {}
        return {
            "title": chart.title,
            "chart_type": chart.chart_type,
            "metrics": [series["metric"] for series in chart.series if series.get("metric")],
            "feedback_key": first.get("feedback_key") or "",
            "project": str((common.get("session") or [""])[0]),
            "filter": common.get("filter") or "",
            "columns": str(chart.columns),
            "group_by": group.get("attribute") or "",
            "path": group.get("path") or "",
        }

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("group_by") and set(values.get("metrics") or ()) & set(FEEDBACK_METRICS):
            self.add_error("group_by", "Feedback metrics cannot be grouped.")
        is_top = values.get("chart_type") == ChartType.TOP
        if is_top and self.fixed_series is None and not values.get("group_by"):
            self.add_error("group_by", "A top list needs a grouping, whose values it lists.")
        return values

    @property
    def chart_fields(self) -> dict[str, Any]:
        values = self.cleaned_data
        common_filters = {"filter": values["filter"] or None}
        if values["project"]:
            common_filters["session"] = [values["project"]]
        return {
            "title": values["title"],
            "chart_type": values["chart_type"],
            **({"columns": int(values["columns"])} if values["columns"] else {}),
            "common_filters": common_filters,
            "series": self._series() if self.fixed_series is None else self.fixed_series,
        }

    @property
    def new_position(self) -> int | None:
        """Return the position to move the chart to; None if it stays."""
        position: int | None = self.cleaned_data.get("position")
        return position if "position" in self.changed_data else None

    def _series(self) -> list[dict[str, Any]]:
        values = self.cleaned_data
        group_by = {
            "attribute": values["group_by"],
            "path": values["path"] or None,
            "max_groups": DEFAULT_MAX_GROUPS,
        }
        return [
            {
                "name": metric.replace("_", " "),
                "metric": metric,
                "feedback_key": values["feedback_key"] or None,
                "group_by": group_by if values["group_by"] else None,
            }
            for metric in values["metrics"]
        ]


def _fits_form(chart: Chart) -> bool:
    """Whether the form can represent all series of the chart."""
    all_series = [
        {name: value for name, value in series.items() if value is not None}
        for series in chart.series
    ]
    options = {(str(series.get("group_by")), series.get("feedback_key")) for series in all_series}
    return len(options) <= 1 and all(
        set(series) <= {"id", "name", "metric", "feedback_key", "group_by"}
        and series.get("metric") in METRICS
        and series.get("name") == series["metric"].replace("_", " ")
        for series in all_series
    )
