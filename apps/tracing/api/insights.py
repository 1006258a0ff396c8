"""What takes a language model: filters and insights from plain words, and issues found in traces.

There is none here. What clients read is empty, what they ask for is refused in words.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.tracing import errors
from apps.tracing.api.serializers import query_params
from apps.tracing.models import Project


class PageSerializer(serializers.Serializer[Any]):
    """The query string of a list; what else it may limit makes an empty one no shorter."""

    limit = serializers.IntegerField(required=False, min_value=1)
    offset = serializers.IntegerField(required=False, min_value=0)


class InWordsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(request=dict, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        raise errors.NotHere("To make filters of plain words takes a language model.")


class InsightsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.PROJECTS_WRITE}

    def _find(self, project_id: UUID) -> Project:
        return get_or_404(Project.objects.for_workspace(self.workspace_id).present(), pk=project_id)

    @extend_schema(parameters=[PageSerializer], responses=dict)
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        """The project's reports, of which there are none."""
        self._find(project_id)
        query_params(PageSerializer, request)
        return Response({"clustering_jobs": []})

    @extend_schema(request=dict, responses=dict)
    def post(self, request: ApiRequest, project_id: UUID) -> Response:
        self._find(project_id)
        raise errors.NotHere("Insights take a language model.")


class IssuesView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(parameters=[PageSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """What was found to be wrong with traces, which is nothing."""
        query_params(PageSerializer, request)
        return Response([])


class IssueView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, issue_id: UUID) -> Response:
        raise core_errors.NotFound("No such issue.")


routes = [
    path("runs/generate-query", InWordsView.as_view(), name="run-generate-query"),
    path("v2/ai-search/parse", InWordsView.as_view(), name="v2-ai-search"),
    path("sessions/<uuid:project_id>/insights", InsightsView.as_view(), name="insights"),
    path("v1/platform/issues", IssuesView.as_view(), name="issue-list"),
    path("v1/platform/issues/<uuid:issue_id>", IssueView.as_view(), name="issue"),
]
