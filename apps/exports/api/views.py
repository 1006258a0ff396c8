"""API of bulk exports and their destinations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.tenancy import get_or_404
from apps.core.timestamps import as_utc
from apps.exports import services
from apps.exports.api.serializers import (
    ChangeDestinationSerializer,
    ChangeExportSerializer,
    DestinationSerializer,
    ExportSerializer,
)
from apps.exports.models import BulkExport, Destination, DestinationKind, ExportPart
from apps.exports.parquet import CONTENT_TYPE
from apps.exports.runner import part_folder
from apps.organizations.permissions import Permission
from apps.tracing.api.downloads import signed_file_url
from apps.tracing.models import Project


class ExportPageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=100, min_value=1, max_value=1000)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=10_000_000)


class ExportsAPIView(WorkspaceAPIView):
    required_permission = Permission.EXPORTS_MANAGE

    def page(self, request: ApiRequest, rows: Any) -> list[Any]:
        params = validate(ExportPageSerializer, request.query_params)
        start, stop = params["offset"], params["offset"] + params["limit"]
        return list(rows[start:stop])

    @property
    def exports(self) -> Any:
        return BulkExport.objects.for_workspace(self.workspace_id)

    @property
    def destinations(self) -> Any:
        return Destination.objects.for_workspace(self.workspace_id)


class DestinationsView(ExportsAPIView):
    @extend_schema(parameters=[ExportPageSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        rows = self.page(request, self.destinations.order_by("-created_at", "-pk"))
        return Response([_destination_json(row) for row in rows])

    @extend_schema(request=DestinationSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a destination after a successful test write."""
        params = validate(DestinationSerializer, request.data)
        config = {name: value for name, value in params["config"].items() if value is not None}
        destination = services.create_destination(
            destination=Destination(
                workspace_id=self.workspace_id,
                name=params["display_name"],
                kind=params["destination_type"],
                config=config,
            ),
            credentials=params.get("credentials"),
        )
        return Response(_destination_json(destination))


class DestinationView(ExportsAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, destination_id: UUID) -> Response:
        return Response(_destination_json(get_or_404(self.destinations, pk=destination_id)))

    @extend_schema(request=ChangeDestinationSerializer, responses=dict)
    def patch(self, request: ApiRequest, destination_id: UUID) -> Response:
        destination = get_or_404(self.destinations, pk=destination_id)
        params = validate(ChangeDestinationSerializer, request.data)
        changed = services.update_destination(
            destination=destination,
            name=params.get("display_name"),
            credentials=params.get("credentials"),
        )
        return Response(_destination_json(changed))


class ExportsView(ExportsAPIView):
    @extend_schema(parameters=[ExportPageSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        rows = self.page(request, self.exports.order_by("-created_at", "-pk"))
        progress = services.count_progress(rows)
        return Response([_export_json(row, progress[row.pk]) for row in rows])

    @extend_schema(request=ExportSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        params = validate(ExportSerializer, request.data)
        projects = Project.objects.for_workspace(self.workspace_id).present()
        end = params.get("end_time")
        export = services.create_export(
            export=BulkExport(
                workspace_id=self.workspace_id,
                destination=get_or_404(self.destinations, pk=params["bulk_export_destination_id"]),
                project=get_or_404(projects, pk=params["session_id"]),
                start_time=as_utc(params["start_time"]),
                end_time=None if end is None else as_utc(end),
                interval_hours=params.get("interval_hours"),
                filter=params.get("filter") or "",
                fields=params.get("export_fields"),
                compression=params["compression"],
                format_version=params["format_version"],
            )
        )
        return Response(_export_json(export, services.count_progress([export])[export.pk]))


class ExportView(ExportsAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, export_id: UUID) -> Response:
        export = get_or_404(self.exports, pk=export_id)
        return Response(_export_json(export, services.count_progress([export])[export.pk]))

    @extend_schema(request=ChangeExportSerializer, responses=dict)
    def patch(self, request: ApiRequest, export_id: UUID) -> Response:
        """Cancel the export, the only supported change."""
        export = get_or_404(self.exports, pk=export_id)
        validate(ChangeExportSerializer, request.data)
        export = services.cancel(export=export)
        return Response(_export_json(export, services.count_progress([export])[export.pk]))


class PartsView(ExportsAPIView):
    @extend_schema(parameters=[ExportPageSerializer], responses=dict)
    def get(self, request: ApiRequest, export_id: UUID) -> Response:
        export = get_or_404(self.exports.select_related("destination"), pk=export_id)
        parts = ExportPart.objects.for_workspace(self.workspace_id).filter(export=export)
        return Response(
            [_part_json(export, part) for part in self.page(request, parts.order_by("start_time"))]
        )


class PartView(ExportsAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, export_id: UUID, part_id: UUID) -> Response:
        export = get_or_404(self.exports.select_related("destination"), pk=export_id)
        parts = ExportPart.objects.for_workspace(self.workspace_id).filter(export=export)
        return Response(_part_json(export, get_or_404(parts, pk=part_id)))


def _destination_json(row: Destination) -> dict[str, Any]:
    return {
        "id": row.pk,
        "tenant_id": row.workspace_id,
        "destination_type": row.kind,
        "display_name": row.name,
        "config": row.config,
        "credentials_keys": sorted(row.credentials()),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _export_json(row: BulkExport, progress: tuple[int, int, int]) -> dict[str, Any]:
    finished_parts, parts, written = progress
    return {
        "id": row.pk,
        "tenant_id": row.workspace_id,
        "bulk_export_destination_id": row.destination_id,
        "session_id": row.project_id,
        "all_experiments": False,
        "start_time": row.start_time,
        "end_time": row.end_time,
        "interval_hours": row.interval_hours,
        "filter": row.filter or None,
        "export_fields": row.fields,
        "compression": row.compression,
        "format": "Parquet",
        "format_version": row.format_version,
        "status": row.status,
        "source_bulk_export_id": row.source_id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "finished_at": row.finished_at,
        "progress": {"parts_done": finished_parts, "parts": parts, "rows_written": written},
    }


def _part_json(export: BulkExport, part: ExportPart) -> dict[str, Any]:
    is_on_platform = export.destination.kind == DestinationKind.PLATFORM
    return {
        "id": part.pk,
        "bulk_export_id": export.pk,
        "session_id": export.project_id,
        "status": part.status,
        "retry_number": part.attempts,
        "errors": {str(index): problem for index, problem in enumerate(part.problems)} or None,
        "start_time": part.start_time,
        "end_time": part.end_time,
        "created_at": part.created_at,
        "updated_at": part.updated_at,
        "finished_at": part.finished_at,
        "metadata": {
            "prefix": export.destination.prefix,
            "start_time": part.start_time,
            "end_time": part.end_time,
            "result": {
                "rows_written": part.rows_written,
                "exported_files": part.files,
                "export_path": part_folder(export, part),
                "latest_cursor": part.cursor or None,
                "pending_upload": None,
                "download_urls": [
                    signed_file_url(path, CONTENT_TYPE, path.rpartition("/")[2])
                    for path in part.files
                ]
                if is_on_platform
                else None,
            },
        },
    }


_EXPORT = "bulk-exports/<uuid:export_id>"
routes = [
    path("bulk-exports/destinations", DestinationsView.as_view(), name="bulk-export-destinations"),
    path(
        "bulk-exports/destinations/<uuid:destination_id>",
        DestinationView.as_view(),
        name="bulk-export-destination",
    ),
    path("bulk-exports", ExportsView.as_view(), name="bulk-exports"),
    path(_EXPORT, ExportView.as_view(), name="bulk-export"),
    path(f"{_EXPORT}/runs", PartsView.as_view(), name="bulk-export-parts"),
    path(f"{_EXPORT}/runs/<uuid:part_id>", PartView.as_view(), name="bulk-export-part"),
]
