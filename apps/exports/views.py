"""Pages of exports."""

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

from apps.core.tenancy import get_or_404
from apps.exports import errors, services
from apps.exports.forms import ChangeDestinationForm, DestinationForm, ExportForm
from apps.exports.models import BulkExport, Destination, DestinationKind, ExportPart
from apps.exports.parquet import CONTENT_TYPE
from apps.organizations.permissions import Permission
from apps.tracing.api.downloads import signed_file_url
from apps.web_ui.pages import PageRequest, form_page, read_offset, save_form, workspace_page

PAGE_SIZE = 50
MAX_PARTS = 400


@dataclass(frozen=True)
class ExportRow:
    """An export with its progress."""

    export: BulkExport
    done: int
    parts: int
    rows: int
    scheduled_exports: int = 0
    """The number of exports that a schedule has created."""

    @property
    def is_finished(self) -> bool:
        return self.export.finished_at is not None

    @property
    def is_in_progress(self) -> bool:
        """Whether the page refreshes itself."""
        return not self.is_finished and not self.export.is_schedule


def _build_rows(exports: list[BulkExport]) -> list[ExportRow]:
    progress = services.count_progress(exports)
    created = _count_scheduled([export for export in exports if export.is_schedule])
    return [
        ExportRow(export, *progress[export.pk], created.get(export.pk, 0)) for export in exports
    ]


def _count_scheduled(schedules: Sequence[BulkExport]) -> dict[UUID, int]:
    if not schedules:
        return {}
    rows = BulkExport.objects.for_workspace(schedules[0].workspace_id)
    sources = rows.filter(source__in=schedules).order_by().values_list("source")
    return {row[0]: row[1] for row in sources.annotate(Count("pk"))}


def _load_exports(request: PageRequest) -> Any:
    exports = BulkExport.objects.for_workspace(request.caller.workspace_id)
    return exports.select_related("project", "destination")


@require_GET
@workspace_page(Permission.EXPORTS_MANAGE)
def export_list(request: PageRequest) -> HttpResponse:
    """List exports, newest first; an htmx request gets only the rows."""
    workspace_id = request.caller.workspace_id
    offset = read_offset(request)
    exports = list(
        _load_exports(request).order_by("-created_at", "-pk")[offset : offset + PAGE_SIZE + 1]
    )
    rows = _build_rows(exports[:PAGE_SIZE])
    context = {
        "rows": rows,
        "is_in_progress": any(row.is_in_progress for row in rows),
        "next_offset": offset + PAGE_SIZE if len(exports) > PAGE_SIZE else None,
        "destinations": list(
            Destination.objects.for_workspace(workspace_id).order_by("name", "pk")[:PAGE_SIZE]
        ),
    }
    fragment = "#rows" if request.htmx else ""
    return render(request, f"exports/export_list.html{fragment}", context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EXPORTS_MANAGE)
def export_new(request: PageRequest) -> HttpResponse:
    workspace_id = request.caller.workspace_id
    if not Destination.objects.for_workspace(workspace_id).exists():
        return redirect("export-destination-new", workspace_id)
    form = ExportForm(workspace_id, request.POST or None, project=request.GET.get("project", ""))
    if form.is_valid():
        export = services.create_export(export=form.to_export())
        return redirect("export-detail", workspace_id, export.pk)
    return form_page(request, "exports/export_new.html", {"form": form}, form)


@require_GET
@workspace_page(Permission.EXPORTS_MANAGE)
def export_detail(request: PageRequest, export_id: UUID) -> HttpResponse:
    """Show an export with its parts; an htmx request gets only the progress."""
    export = get_or_404(_load_exports(request), pk=export_id)
    parts = ExportPart.objects.for_workspace(export.workspace_id).filter(export=export)
    [row] = _build_rows([export])
    context = {
        "row": row,
        "export": export,
        "parts": [_part_context(export, part) for part in parts.order_by("start_time")[:MAX_PARTS]],
        "scheduled_exports": _build_rows(
            list(_load_exports(request).filter(source=export).order_by("-start_time")[:PAGE_SIZE])
        )
        if export.is_schedule
        else [],
    }
    fragment = "#live" if request.htmx else ""
    return render(request, f"exports/export_detail.html{fragment}", context)


def _part_context(export: BulkExport, part: ExportPart) -> dict[str, Any]:
    is_on_platform = export.destination.kind == DestinationKind.PLATFORM
    files = [
        (name, signed_file_url(path, CONTENT_TYPE, name) if is_on_platform else "")
        for path in part.files
        for name in [path.rpartition("/")[2]]
    ]
    return {"part": part, "files": files, "problem": (part.problems or [{}])[-1].get("detail")}


@require_POST
@workspace_page(Permission.EXPORTS_MANAGE)
def export_cancel(request: PageRequest, export_id: UUID) -> HttpResponse:
    export = get_or_404(_load_exports(request), pk=export_id)
    try:
        services.cancel(export=export)
        messages.success(request, "Export cancelled.")
    except errors.ExportFinished as error:
        messages.error(request, error.detail)
    return redirect("export-detail", export.workspace_id, export.pk)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EXPORTS_MANAGE)
def destination_new(request: PageRequest) -> HttpResponse:
    workspace_id = request.caller.workspace_id
    form = DestinationForm(request.POST or None)

    def create() -> None:
        services.create_destination(
            destination=form.to_destination(workspace_id), credentials=form.credentials()
        )

    if save_form(form, create):
        return redirect("export-new", workspace_id)
    return form_page(request, "exports/destination_new.html", {"form": form}, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EXPORTS_MANAGE)
def destination_edit(request: PageRequest, destination_id: UUID) -> HttpResponse:
    """Change the name or the keys; new keys need a successful test write."""
    workspace_id = request.caller.workspace_id
    destination = get_or_404(Destination.objects.for_workspace(workspace_id), pk=destination_id)
    title = destination.name
    form = ChangeDestinationForm(destination, request.POST or None)

    def update() -> None:
        services.update_destination(
            destination=destination,
            name=form.cleaned_data["name"],
            credentials=form.credentials(),
        )

    if save_form(form, update):
        messages.success(request, f"{destination.name} was saved.")
        return redirect("export-list", workspace_id)
    context = {"form": form, "destination": destination, "title": title}
    return form_page(request, "exports/destination_edit.html", context, form)
