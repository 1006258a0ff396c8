"""Permanent deletion of traces."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.tracing.models import TraceDeletion
from apps.tracing.services import deletion, get_project

MAX_TRACES = 1000


class DeleteTracesSerializer(serializers.Serializer[Any]):
    """The traces to delete: by id, or by metadata of any of their runs."""

    session_id = serializers.UUIDField()
    trace_ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True, max_length=MAX_TRACES
    )
    metadata = serializers.DictField(required=False, allow_null=True)

    def validate_metadata(self, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for key, values in (value or {}).items():
            for item in values if isinstance(values, list) else [values]:
                if not isinstance(item, str | int | float | bool):
                    raise serializers.ValidationError(
                        f"{key!r:.60}: must be text, a number or a boolean."
                    )
            if values == []:
                raise serializers.ValidationError(f"{key!r:.60}: must have a value.")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if bool(attrs.get("trace_ids")) == bool(attrs.get("metadata")):
            raise serializers.ValidationError("Set either `trace_ids` or `metadata`.")
        return attrs


class DeleteTracesView(WorkspaceAPIView):
    required_permission = Permission.RUNS_DELETE

    @extend_schema(request=DeleteTracesSerializer, responses={202: dict})
    def post(self, request: ApiRequest) -> Response:
        """Delete traces; `status` is `done` if the deletion finished within the request."""
        params = validate(DeleteTracesSerializer, request.data)
        trace_deletion = deletion.delete_traces(
            project=get_project(self.workspace_id, params["session_id"]),
            trace_ids=params.get("trace_ids") or (),
            metadata=params.get("metadata"),
        )
        return Response(_deletion_json(trace_deletion), status=202)


class DeletionView(WorkspaceAPIView):
    required_permission = Permission.RUNS_DELETE

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, deletion_id: UUID) -> Response:
        deletions = TraceDeletion.objects.for_workspace(self.workspace_id)
        return Response(_deletion_json(get_or_404(deletions, pk=deletion_id)))


def _deletion_json(deletion: TraceDeletion) -> dict[str, Any]:
    return {
        "id": deletion.pk,
        "session_id": deletion.project_id,
        "status": deletion.status,
        "removed_runs": deletion.removed_runs,
        "created_at": deletion.created_at,
        "finished_at": deletion.finished_at,
    }


routes = [
    path("runs/delete", DeleteTracesView.as_view(), name="run-delete"),
    path("runs/delete/traces", DeleteTracesView.as_view(), name="trace-delete"),
    path("runs/delete/<uuid:deletion_id>", DeletionView.as_view(), name="trace-deletion"),
]
