"""Agent versions found in a project's traces."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.trace_store.postgres.reading import metadata_values
from apps.tracing.models import Project

KEY = "LANGSMITH_AGENT_VERSION"
"""Metadata key under which clients record the commit of the running agent."""


class AgentVersionsView(WorkspaceAPIView):
    required_permission = Permission.RUNS_READ

    @extend_schema(responses=list[dict[str, Any]])
    def get(self, request: ApiRequest, project_id: UUID) -> Response:
        """Return each version with the time of its first trace, newest first."""
        projects = Project.objects.for_workspace(self.workspace_id).present()
        project = get_or_404(projects, pk=project_id)
        result = metadata_values.values_with_first_start(self.workspace_id, project.pk, KEY)
        return Response([{"commit_sha": value, "first_seen_at": time} for value, time in result])


routes = [
    path(
        "v1/platform/sessions/<uuid:project_id>/agent-versions",
        AgentVersionsView.as_view(),
        name="agent-versions",
    )
]
