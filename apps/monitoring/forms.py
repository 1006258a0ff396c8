"""The forms of dashboards and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from apps.monitoring.models import Chart, ChartType
from apps.monitoring.series import FEEDBACK_METRICS, METRICS
from apps.trace_store import filters
from apps.trace_store.aggregation import GroupAttribute
from apps.trace_store.errors import FilterError
from apps.tracing.models import Project

_GROUPS = [("", "None"), *((one.value, one.value.replace("_", " ")) for one in GroupAttribute)]


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
        ],
        label="Chart type",
    )
    metrics = forms.MultipleChoiceField(
        choices=[(one, one.replace("_", " ")) for one in METRICS],
        label="Metrics",
        help_text="Metrics of the same unit can share a chart.",
        widget=forms.CheckboxSelectMultiple,
    )
    feedback_key = forms.CharField(max_length=1000, required=False, label="Feedback key")
    filter = forms.CharField(
        max_length=8000,
        required=False,
        label="Filter",
        help_text="A filter expression, for example `eq(is_root, true)` for traces only.",
        widget=forms.TextInput,
    )
    group_by = forms.ChoiceField(choices=_GROUPS, required=False, label="Group by")
    path = forms.CharField(max_length=200, required=False, label="Metadata key")

    def __init__(
        self, *args: Any, projects: Sequence[Project], chart: Chart | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.kept = chart.series if chart is not None and not _is_plain(chart) else None
        """Series that say more than the form can: they stay as they are."""
        if self.kept is not None:
            for name in ("metrics", "feedback_key", "group_by", "path"):
                del self.fields[name]
        choices = [("", "All projects"), *((str(one.pk), one.name) for one in projects)]
        self.fields["project"] = forms.ChoiceField(choices=choices, required=False, label="Project")

    @staticmethod
    def of(chart: Chart) -> dict[str, Any]:
        first = chart.series[0] if chart.series else {}
        group = first.get("group_by") or {}
        common = chart.common_filters or {}
        return {
            "title": chart.title,
            "chart_type": chart.chart_type,
            "metrics": [one["metric"] for one in chart.series if one.get("metric")],
            "feedback_key": first.get("feedback_key") or "",
            "project": str((common.get("session") or [""])[0]),
            "filter": common.get("filter") or "",
            "group_by": group.get("attribute") or "",
            "path": group.get("path") or "",
        }

    def clean_filter(self) -> str:
        text: str = self.cleaned_data["filter"].strip()
        try:
            if text:
                filters.parse(text)
        except FilterError as error:
            raise forms.ValidationError(error.detail) from None
        return text

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        if given.get("group_by") and set(given.get("metrics") or ()) & set(FEEDBACK_METRICS):
            self.add_error("group_by", "Feedback metrics cannot be grouped.")
        return given

    @property
    def fields_of_chart(self) -> dict[str, Any]:
        said = self.cleaned_data
        if self.kept is not None:
            return self._common | {"series": self.kept}
        group = {"attribute": said["group_by"], "path": said["path"] or None, "max_groups": 5}
        return self._common | {
            "series": [
                {
                    "name": metric.replace("_", " "),
                    "metric": metric,
                    "feedback_key": said["feedback_key"] or None,
                    "group_by": group if said["group_by"] else None,
                }
                for metric in said["metrics"]
            ],
        }

    @property
    def _common(self) -> dict[str, Any]:
        said = self.cleaned_data
        common = {"filter": said["filter"] or None}
        if said["project"]:
            common["session"] = [said["project"]]
        return {
            "title": said["title"],
            "chart_type": said["chart_type"],
            "common_filters": common,
        }


def _is_plain(chart: Chart) -> bool:
    """Whether the form can say all that the chart's series say."""
    said = [
        {name: value for name, value in one.items() if value is not None} for one in chart.series
    ]
    known = {"id", "name", "metric", "feedback_key", "group_by"}
    alike = {(str(one.get("group_by")), one.get("feedback_key")) for one in said}
    names = [one.get("metric", "").replace("_", " ") for one in said]
    return (
        all(set(one) <= known and one.get("metric") in METRICS for one in said)
        and len(alike) <= 1
        and all(one.get("name") == name for one, name in zip(said, names, strict=True))
    )
