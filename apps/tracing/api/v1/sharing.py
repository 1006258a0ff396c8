"""Creating, listing and revoking public links."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.feedback.api.queries import FeedbackPageSerializer, query_params
from apps.organizations.permissions import Permission
from apps.tracing.api.run_queries import parse_uuid
from apps.tracing.hooks import link_sources
from apps.tracing.models import Project, Share
from apps.tracing.services import get_project
from apps.tracing.services import sharing as services

MAX_TOKENS = 1000


class ShareSerializer(serializers.Serializer[Any]):
    share_token = serializers.UUIDField(required=False, allow_null=True, default=None)


class ShareV2Serializer(serializers.Serializer[Any]):
    session_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class ShareThreadSerializer(serializers.Serializer[Any]):
    """The thread's project; `session_id` is the older name of the parameter."""

    project_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    session_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class UnshareSerializer(serializers.Serializer[Any]):
    share_tokens = serializers.ListField(child=serializers.UUIDField(), max_length=MAX_TOKENS)


class RunShareView(WorkspaceAPIView):
    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.RUNS_SHARE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, run_id: UUID) -> Response:
        """Return the link, or null if the trace is not shared."""
        share = services.find_share_of_run(self.workspace_id, run_id)
        return Response(None if share is None else _share_json(run_id, share))

    @extend_schema(request=ShareSerializer, responses=dict)
    def put(self, request: ApiRequest, run_id: UUID) -> Response:
        """Share the run's whole trace; a repeated call keeps the link."""
        existing = services.find_share_of_run(self.workspace_id, run_id)
        if existing is not None:
            return Response(_share_json(run_id, existing))
        token = validate(ShareSerializer, request.data)["share_token"]
        share = services.share_trace(self.workspace_id, run_id, token=token)
        return Response(_share_json(run_id, share))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, run_id: UUID) -> Response:
        services.revoke_trace_link(self.workspace_id, run_id)
        return Response(status=204)


def _share_json(run_id: UUID, share: Share) -> dict[str, Any]:
    return {"run_id": run_id, "share_token": share.token}


class RunShareV2View(WorkspaceAPIView):
    required_permission = Permission.RUNS_SHARE

    @extend_schema(request=ShareV2Serializer, responses=dict)
    def post(self, request: ApiRequest, run_id: UUID) -> Response:
        """Share the whole trace; a repeated call returns the same link."""
        services.find_share_of_run(self.workspace_id, run_id)  # 404 takes precedence over 422
        project_id = validate(ShareV2Serializer, request.data)["session_id"]
        share = services.share_trace(self.workspace_id, run_id, project_id=project_id)
        return Response({"share_token": share.token})

    @extend_schema(parameters=[OpenApiParameter("session_id", UUID)], responses={204: None})
    def delete(self, request: ApiRequest, run_id: UUID) -> Response:
        """Revoke the link, if any."""
        project_id = parse_uuid(request.query_params.get("session_id"), "session_id")
        services.revoke_trace_link(self.workspace_id, run_id, project_id=project_id)
        return Response(status=204)


class ThreadShareView(WorkspaceAPIView):
    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.RUNS_SHARE}

    def _get_project(self, params: Any) -> Project:
        params = validate(ShareThreadSerializer, params)
        return get_project(self.workspace_id, params["project_id"] or params["session_id"])

    @extend_schema(parameters=[ShareThreadSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """Return the link; its token is null if the thread is not shared."""
        project = self._get_project(query_params(request))
        shares = Share.objects.for_workspace(self.workspace_id)
        share = shares.filter(project=project, thread_key=thread_key).first()
        return Response({"share_token": None if share is None else share.token})

    @extend_schema(request=ShareThreadSerializer, responses=dict)
    def post(self, request: ApiRequest, thread_key: str) -> Response:
        """Share all present and future traces of the thread; repeated calls return one link."""
        project = self._get_project(request.data)
        share = services.share_thread(self.workspace_id, project.pk, thread_key)
        return Response({"share_token": share.token})

    @extend_schema(parameters=[ShareThreadSerializer], responses={204: None})
    def delete(self, request: ApiRequest, thread_key: str) -> Response:
        project = self._get_project(query_params(request))
        shares = Share.objects.for_workspace(self.workspace_id)
        shares.filter(project=project, thread_key=thread_key).delete()
        return Response(status=204)


class SharedListView(WorkspaceAPIView):
    required_permission = {"GET": Permission.WORKSPACE_READ, "*": Permission.RUNS_SHARE}

    @extend_schema(parameters=[FeedbackPageSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return a page of the workspace's links, newest first."""
        query = FeedbackPageSerializer(data=query_params(request))
        query.is_valid(raise_exception=True)
        rows = Share.objects.for_workspace(self.workspace_id).newest_first()
        stop = query.page.stop
        entities = [_shared_entity_json(share) for share in rows[:stop]]
        for source in link_sources:
            entities += source.list_newest(self.workspace_id, stop)
        entities.sort(key=lambda entity: entity["created_at"], reverse=True)
        return Response({"entities": entities[query.page]})

    @extend_schema(request=UnshareSerializer, responses=dict)
    def delete(self, request: ApiRequest) -> Response:
        """Revoke the links with these tokens; unknown tokens are ignored."""
        if not isinstance(request.data, dict):
            raise core_errors.Invalid("The body must be an object with `share_tokens`.")
        tokens = validate(UnshareSerializer, request.data)["share_tokens"]
        services.revoke_links(self.workspace_id, tokens)
        for source in link_sources:
            source.revoke(self.workspace_id, tokens)
        return Response({"message": "unshared"})


def _shared_entity_json(share: Share) -> dict[str, Any]:
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
