"""Making, finding and closing public links, by those whose traces they open."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.feedback.api.queries import PageSerializer, query_params
from apps.organizations.permissions import Permission
from apps.tracing.api.run_queries import uuid_of
from apps.tracing.models import Project, Share
from apps.tracing.services import sharing as services

MOST_TOKENS = 1000


class ShareSerializer(serializers.Serializer[Any]):
    share_token = serializers.UUIDField(required=False, allow_null=True, default=None)


class ShareV2Serializer(serializers.Serializer[Any]):
    session_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class ShareThreadSerializer(serializers.Serializer[Any]):
    """Where the thread is; `session_id` is the project's older name."""

    project_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    session_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class UnshareSerializer(serializers.Serializer[Any]):
    share_tokens = serializers.ListField(child=serializers.UUIDField(), max_length=MOST_TOKENS)


class RunShareView(WorkspaceAPIView):
    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.RUNS_SHARE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        """The link, or null when the run's trace is not open."""
        share = services.share_of_run(self.workspace_id, run_id)
        return Response(None if share is None else _link(run_id, share))

    @extend_schema(request=ShareSerializer, responses=dict)
    def put(self, request: ApiRequest, run_id: UUID) -> Response:
        """Open the run's trace, whole; a repeat keeps the first link."""
        there = services.share_of_run(self.workspace_id, run_id)
        if there is not None:
            return Response(_link(run_id, there))
        body = ShareSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        token = body.validated_data["share_token"]
        share = services.share_trace(self.workspace_id, run_id, token=token)
        return Response(_link(run_id, share))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, run_id: UUID) -> Response:
        services.unshare_trace(self.workspace_id, run_id)
        return Response(status=204)


def _link(run_id: UUID, share: Share) -> dict[str, Any]:
    return {"run_id": run_id, "share_token": share.token}


class RunShareV2View(WorkspaceAPIView):
    required_permission = Permission.RUNS_SHARE

    @extend_schema(request=ShareV2Serializer, responses=dict)
    def post(self, request: ApiRequest, run_id: UUID) -> Response:
        """Open the trace, whole; a repeat returns the same link."""
        services.share_of_run(self.workspace_id, run_id)  # 404 goes before 422
        body = ShareV2Serializer(data=request.data)
        body.is_valid(raise_exception=True)
        project_id = body.validated_data["session_id"]
        share = services.share_trace(self.workspace_id, run_id, project_id=project_id)
        return Response({"share_token": share.token})

    @extend_schema(parameters=[OpenApiParameter("session_id", UUID)], responses={204: None})
    def delete(self, request: ApiRequest, run_id: UUID) -> Response:
        """Close it, whether it is open or not."""
        project_id = uuid_of(request.query_params.get("session_id"), "session_id")
        services.unshare_trace(self.workspace_id, run_id, project_id=project_id)
        return Response(status=204)


class ThreadShareView(WorkspaceAPIView):
    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.RUNS_SHARE}

    def _project(self, said: Any) -> Project:
        query = ShareThreadSerializer(data=said)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        projects = Project.objects.for_workspace(self.workspace_id).present()
        return get_or_404(projects, pk=asked["project_id"] or asked["session_id"])

    @extend_schema(parameters=[ShareThreadSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """The link, whose token is null when the thread is not open."""
        project = self._project(query_params(request))
        shares = Share.objects.for_workspace(self.workspace_id)
        share = shares.filter(project=project, thread_key=thread_key).first()
        return Response({"share_token": None if share is None else share.token})

    @extend_schema(request=ShareThreadSerializer, responses=dict)
    def post(self, request: ApiRequest, thread_key: str) -> Response:
        """Open the thread's traces, those to come included; a repeat returns the same link."""
        project = self._project(request.data)
        share = services.share_thread(self.workspace_id, project.pk, thread_key)
        return Response({"share_token": share.token})

    @extend_schema(parameters=[ShareThreadSerializer], responses={204: None})
    def delete(self, request: ApiRequest, thread_key: str) -> Response:
        project = self._project(query_params(request))
        shares = Share.objects.for_workspace(self.workspace_id)
        shares.filter(project=project, thread_key=thread_key).delete()
        return Response(status=204)


class SharedListView(WorkspaceAPIView):
    required_permission = {"GET": Permission.WORKSPACE_READ, "*": Permission.RUNS_SHARE}

    @extend_schema(parameters=[PageSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """A page of all that is open, newest first."""
        query = PageSerializer(data=query_params(request))
        query.is_valid(raise_exception=True)
        rows = Share.objects.for_workspace(self.workspace_id).newest_first()
        return Response({"entities": [_entity(share) for share in rows[query.page]]})

    @extend_schema(request=UnshareSerializer, responses=dict)
    def delete(self, request: ApiRequest) -> Response:
        """Close these links, all that there are of them."""
        if not isinstance(request.data, dict):
            raise core_errors.Invalid("The body must be an object with `share_tokens`.")
        body = UnshareSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        services.unshare_tokens(self.workspace_id, body.validated_data["share_tokens"])
        return Response({"message": "unshared"})


def _entity(share: Share) -> dict[str, Any]:
    return {
        "type": "run" if share.trace_id is not None else "thread",
        "share_token": share.token,
        "created_at": share.created_at,
        "run_id": share.run_id,
        "trace_id": share.trace_id,
        "thread_id": share.thread_key,
        "session_id": share.project_id,
    }


routes = [
    path("runs/<uuid:run_id>/share", RunShareView.as_view(), name="run-share"),
    path("v2/runs/<uuid:run_id>/share", RunShareV2View.as_view(), name="v2-run-share"),
    path("v2/threads/<path:thread_key>/share", ThreadShareView.as_view(), name="v2-thread-share"),
    path("workspaces/current/shared", SharedListView.as_view(), name="shared-list"),
]
