"""The page of the ingest log."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.ingest.services import ingest_log
from apps.organizations.permissions import Permission
from apps.tracing.pages import periods
from apps.web_ui.pages import PageRequest, workspace_page

PAGE_SIZE = 100
_MAX_PAGE_DIGITS = 5


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def ingest_log_page(request: PageRequest) -> HttpResponse:
    """Received, stored, merged, rejected and removed runs by hour and project."""
    workspace_id = request.caller.workspace_id
    period = periods.read_period(request.GET)
    start, end = period.limits
    number = request.GET.get("page", "")
    page = int(number) if number.isdecimal() and len(number) <= _MAX_PAGE_DIGITS else 0
    rows = ingest_log.list_hours(
        workspace_id,
        begin=start,
        end=end + timedelta(seconds=1),
        limit=PAGE_SIZE + 1,
        offset=page * PAGE_SIZE,
    )
    context = {
        "tab": "ingest-log",
        "rows": rows[:PAGE_SIZE],
        "deferred_count": ingest_log.count_deferred(workspace_id),
        "period": period,
        "presets": [
            (key, label, "?" if key == periods.DEFAULT_PRESET else f"?range={key}")
            for key, (label, _) in periods.PRESETS.items()
        ],
        "page": page,
        "next_page": page + 1 if len(rows) > PAGE_SIZE else None,
    }
    return render(request, "ingest/ingest_log.html", context)
