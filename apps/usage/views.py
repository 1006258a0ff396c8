"""The usage page of a workspace."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from apps.organizations.permissions import Permission
from apps.usage import queues, quotas, services, storage
from apps.usage.models import LimitType, UsageDay, UsageLimit
from apps.web_ui import formatting
from apps.web_ui.charts import Line, LineChart
from apps.web_ui.pages import PageRequest, form_page, workspace_page

DAYS = 31
_CHARTS = (
    ("Runs", "count", (("runs", "Runs"), ("traces", "Traces"))),
    ("Bytes received", "count", (("bytes", "Bytes"),)),
    ("Agent runs", "count", (("agent_runs", "Runs"),)),
    ("Agent run time", "s", (("agent_seconds", "Seconds"),)),
)
_MEASURE_LABELS = {
    "traces": "traces",
    "longlived_traces": "long-lived traces",
    "runs": "runs",
    "bytes": "bytes",
}


def limit_label(limit_type: LimitType) -> str:
    return f"{_MEASURE_LABELS[limit_type.measure]} per {limit_type.period}"


class LimitForm(forms.Form):
    limit_type = forms.ChoiceField(
        label="Metric",
        choices=[(limit_type, limit_label(limit_type).capitalize()) for limit_type in LimitType],
    )
    limit_value = forms.IntegerField(label="Limit", min_value=0, max_value=2**62)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_usage(request: PageRequest) -> HttpResponse:
    """Show the last month by day; the form sets a limit of this workspace."""
    caller = request.caller
    may_write = caller.may(Permission.WORKSPACE_MANAGE)
    form = LimitForm(request.POST or None)
    if request.method == "POST":
        caller.require(Permission.WORKSPACE_MANAGE)
        if form.is_valid():
            services.set_limit(
                organization_id=caller.organization_id,
                workspace_id=caller.workspace_id,
                limit_type=LimitType(form.cleaned_data["limit_type"]),
                limit_value=form.cleaned_data["limit_value"],
            )
            messages.success(request, "Usage limit set. It applies within seconds.")
            return redirect("settings-usage", caller.workspace_id)
    today = datetime.now(UTC).date()
    days = services.list_days(caller.workspace_id, today - timedelta(days=DAYS - 1), today)
    context = {
        "tab": "usage",
        "charts": [_build_chart(n, *chart, days) for n, chart in enumerate(_CHARTS)],
        "limit_usages": [
            (usage, limit_label(usage.limit_type), round(usage.share * 100))
            for usage in quotas.list_limit_usages(caller.workspace_id)
        ],
        "storage": storage.list_storage(caller.workspace_id),
        "queues": queues.list_usage(caller.organization_id, caller.workspace_id),
        "form": form,
        "may_write": may_write,
    }
    return form_page(request, "usage/usage.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_MANAGE)
def settings_usage_limit_delete(request: PageRequest, limit_id: UUID) -> HttpResponse:
    limits = UsageLimit.objects.of_workspace(request.caller.workspace_id)
    services.delete_limit(limits=limits, limit_id=limit_id)
    messages.success(request, "Usage limit removed.")
    return redirect("settings-usage", request.caller.workspace_id)


def _build_chart(
    number: int, title: str, unit: str, lines: tuple[tuple[str, str], ...], days: list[UsageDay]
) -> LineChart:
    values = {name: [int(getattr(day, name)) for day in days] for name, _ in lines}
    field_of_total = lines[0][0]
    total = sum(values[field_of_total])
    if field_of_total == "bytes":
        total_text = formatting.format_size(total)
    else:
        total_text = (
            formatting.format_duration(total) if unit == "s" else formatting.format_count(total)
        )
    return LineChart(
        id=f"usage-{number}",
        title=title,
        unit=unit,
        kind="bars",
        edges=[_midnight(day.day) for day in days] + [_midnight(days[-1].day + timedelta(days=1))],
        lines=[
            Line(name, str(hue), [value or None for value in values[field]])
            for hue, (field, name) in enumerate(lines, 1)
        ],
        total=total_text,
        zone="UTC",
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time(), UTC)
