"""Saved views of a project's runs."""

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
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.models import SavedView, ViewType
from apps.tracing.services import get_project, saved_views


def _filter_field() -> serializers.CharField:
    return serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=100_000
    )


class ViewSerializer(serializers.Serializer[Any]):
    """A named filter."""

    display_name = serializers.CharField(max_length=200)
    description = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=10_000
    )
    filter_string = _filter_field()
    trace_filter_string = _filter_field()
    tree_filter_string = _filter_field()
    type = serializers.ChoiceField(choices=ViewType.choices, required=False)


class RenameSerializer(serializers.Serializer[Any]):
    """The new name of a view."""

    display_name = serializers.CharField(max_length=200)
    description = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=10_000
    )


class ViewListSerializer(serializers.Serializer[Any]):
    """Query parameters of the list of views."""

    type = serializers.ChoiceField(choices=ViewType.choices, required=False)
    limit = serializers.IntegerField(required=False, min_value=1, max_value=100, default=100)
    offset = serializers.IntegerField(required=False, min_value=0, max_value=10_000, default=0)


class _SavedViewAPIView(WorkspaceAPIView):
    required_permission = {"GET": Permission.PROJECTS_READ, "*": Permission.PROJECTS_WRITE}

    def get_view(self, project_id: UUID, view_id: UUID) -> SavedView:
        views = SavedView.objects.for_workspace(self.workspace_id)
        return get_or_404(views, project=get_project(self.workspace_id, project_id), pk=view_id)


class ViewsView(_SavedViewAPIView):
    @extend_schema(parameters=[ViewListSerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        """Return the project's views, oldest first."""
        project = get_project(self.workspace_id, project_id)
        params = query_params(ViewListSerializer, request)
        views = SavedView.objects.for_workspace(self.workspace_id).filter(project=project)
        if "type" in params:
            views = views.filter(type=params["type"])
        begin, end = params["offset"], params["offset"] + params["limit"]
        return Response(
            [_view_json(view) for view in views.order_by("created_at", "pk")[begin:end]]
        )

    @extend_schema(request=ViewSerializer, responses=dict)
    def post(self, request: ApiRequest, project_id: UUID) -> Response:
        project = get_project(self.workspace_id, project_id)
        fields = validate(ViewSerializer, request.data)
        return Response(_view_json(saved_views.create_view(project=project, **fields)))


class ViewView(_SavedViewAPIView):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, project_id: UUID, view_id: UUID) -> Response:
        return Response(_view_json(self.get_view(project_id, view_id)))

    @extend_schema(request=ViewSerializer, responses=dict)
    def patch(self, request: ApiRequest, project_id: UUID, view_id: UUID) -> Response:
        view = self.get_view(project_id, view_id)
        changes = validate(ViewSerializer, request.data, partial=True)
        return Response(_view_json(saved_views.update_view(view=view, changes=changes)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, project_id: UUID, view_id: UUID) -> Response:
        saved_views.delete_view(view=self.get_view(project_id, view_id))
        return Response(status=204)


class RenameViewView(_SavedViewAPIView):
    @extend_schema(request=RenameSerializer, responses=dict)
    def patch(self, request: ApiRequest, project_id: UUID, view_id: UUID) -> Response:
        view = self.get_view(project_id, view_id)
        changes = validate(RenameSerializer, request.data)
        return Response(_view_json(saved_views.update_view(view=view, changes=changes)))


def _view_json(view: SavedView) -> dict[str, Any]:
    return {
        "id": view.pk,
        "session_id": view.project_id,
        "display_name": view.display_name,
        "description": view.description,
        "filter_string": view.filter_string,
        "trace_filter_string": view.trace_filter_string,
        "tree_filter_string": view.tree_filter_string,
        "type": view.type,
        "created_at": view.created_at,
        "updated_at": view.updated_at,
    }


_VIEW = "sessions/<uuid:project_id>/views/<uuid:view_id>"
routes = [
    path("sessions/<uuid:project_id>/views", ViewsView.as_view(), name="view-list"),
    path(_VIEW, ViewView.as_view(), name="view"),
    path(f"{_VIEW}/rename", RenameViewView.as_view(), name="view-rename"),
]
