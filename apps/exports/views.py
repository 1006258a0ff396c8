"""The pages of exports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core import errors as core_errors
from apps.core.tenancy import get_or_404
from apps.exports import errors, services
from apps.exports.forms import ChangeDestinationForm, DestinationForm, ExportForm
from apps.exports.models import BulkExport, Destination, ExportPart, Kind
from apps.organizations.permissions import Permission
from apps.tracing.api.downloads import signed_file_url
from apps.web_ui.pages import PageRequest, workspace_page

A_PAGE = 50
PARTS_SHOWN = 400
PARQUET = "application/vnd.apache.parquet"


@dataclass(frozen=True)
class ExportRow:
    """An export as the pages show it."""

    export: BulkExport
    done: int
    parts: int
    rows: int
    spawned: int = 0
    """Exports that a schedule has made."""

    @property
    def is_over(self) -> bool:
        return self.export.finished_at is not None

    @property
    def is_moving(self) -> bool:
        """Whether the page will look different soon."""
        return not self.is_over and not self.export.is_schedule


def _rows(exports: list[BulkExport]) -> list[ExportRow]:
    found = services.progress(exports)
    spawned = _spawned([export for export in exports if export.is_schedule])
    return [ExportRow(export, *found[export.pk], spawned.get(export.pk, 0)) for export in exports]


def _spawned(schedules: Sequence[BulkExport]) -> dict[UUID, int]:
    if not schedules:
        return {}
    rows = BulkExport.objects.for_workspace(schedules[0].workspace_id)
    counted = rows.filter(source__in=schedules).order_by().values_list("source")
    return {row[0]: row[1] for row in counted.annotate(Count("pk"))}


def _exports(request: PageRequest) -> Any:
    exports = BulkExport.objects.for_workspace(request.caller.workspace_id)
    return exports.select_related("project", "destination")


@require_GET
@workspace_page(Permission.EXPORTS_MANAGE)
def export_list(request: PageRequest) -> HttpResponse:
    """Exports, newest first; as a fragment the rows alone, to see how they go on."""
    workspace_id = request.caller.workspace_id
    begin = _number(request.GET.get("from", ""))
    found = list(_exports(request).order_by("-created_at", "-pk")[begin : begin + A_PAGE + 1])
    rows = _rows(found[:A_PAGE])
    context = {
        "rows": rows,
        "is_moving": any(row.is_moving for row in rows),
        "next": begin + A_PAGE if len(found) > A_PAGE else None,
        "destinations": list(
            Destination.objects.for_workspace(workspace_id).order_by("name", "pk")[:A_PAGE]
        ),
    }
    part = "#rows" if request.htmx else ""
    return render(request, f"exports/export_list.html{part}", context)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 8 else 0


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EXPORTS_MANAGE)
def export_new(request: PageRequest) -> HttpResponse:
    workspace_id = request.caller.workspace_id
    if not Destination.objects.for_workspace(workspace_id).exists():
        return redirect("export-destination-new", workspace_id)
    form = ExportForm(workspace_id, request.POST or None, project=request.GET.get("project", ""))
    if form.is_valid():
        export = services.create_export(export=form.export())
        return redirect("export-detail", workspace_id, export.pk)
    status = 422 if form.is_bound else 200
    return render(request, "exports/export_new.html", {"form": form}, status=status)


@require_GET
@workspace_page(Permission.EXPORTS_MANAGE)
def export_detail(request: PageRequest, export_id: UUID) -> HttpResponse:
    """An export with its days; as a fragment how far it is."""
    export = get_or_404(_exports(request), pk=export_id)
    parts = ExportPart.objects.for_workspace(export.workspace_id).filter(export=export)
    [row] = _rows([export])
    context = {
        "row": row,
        "export": export,
        "parts": [_part(export, part) for part in parts.order_by("start_time")[:PARTS_SHOWN]],
        "spawned": _rows(
            list(_exports(request).filter(source=export).order_by("-start_time")[:A_PAGE])
        )
        if export.is_schedule
        else [],
    }
    part = "#live" if request.htmx else ""
    return render(request, f"exports/export_detail.html{part}", context)


def _part(export: BulkExport, part: ExportPart) -> dict[str, Any]:
    is_ours = export.destination.kind == Kind.PLATFORM
    files = [
        (name, signed_file_url(path, PARQUET, name) if is_ours else "")
        for path in part.files
        for name in [path.rpartition("/")[2]]
    ]
    return {"part": part, "files": files, "problem": (part.problems or [{}])[-1].get("detail")}


@require_POST
@workspace_page(Permission.EXPORTS_MANAGE)
def export_cancel(request: PageRequest, export_id: UUID) -> HttpResponse:
    export = get_or_404(_exports(request), pk=export_id)
    try:
        services.cancel(export=export)
        messages.success(request, "Export cancelled.")
    except errors.ExportOver as over:
        messages.error(request, over.detail)
    return redirect("export-detail", export.workspace_id, export.pk)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EXPORTS_MANAGE)
def destination_new(request: PageRequest) -> HttpResponse:
    workspace_id = request.caller.workspace_id
    form = DestinationForm(request.POST or None)
    if form.is_valid():
        try:
            services.create_destination(
                destination=form.destination(workspace_id), credentials=form.credentials()
            )
        except (errors.DestinationRefused, core_errors.Unavailable) as refused:
            form.add_error(None, refused.detail)
        else:
            return redirect("export-new", workspace_id)
    status = 422 if form.is_bound else 200
    return render(request, "exports/destination_new.html", {"form": form}, status=status)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EXPORTS_MANAGE)
def destination_edit(request: PageRequest, destination_id: UUID) -> HttpResponse:
    """Another name, or other keys, which are tried before they are kept."""
    workspace_id = request.caller.workspace_id
    destination = get_or_404(Destination.objects.for_workspace(workspace_id), pk=destination_id)
    title = destination.name
    form = ChangeDestinationForm(destination, request.POST or None)
    if form.is_valid():
        try:
            services.update_destination(
                destination=destination,
                name=form.cleaned_data["name"],
                credentials=form.credentials(),
            )
        except (errors.DestinationRefused, core_errors.Unavailable) as refused:
            form.add_error(None, refused.detail)
        else:
            messages.success(request, f"{destination.name} was saved.")
            return redirect("export-list", workspace_id)
    context = {"form": form, "destination": destination, "title": title}
    status = 422 if form.is_bound else 200
    return render(request, "exports/destination_edit.html", context, status=status)
