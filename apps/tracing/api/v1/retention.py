"""How long traces live, said by a workspace or by its organization."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import ApiRequest, OrganizationAPIView, OrganizationRequest, WorkspaceAPIView
from apps.organizations.models import Organization, Workspace
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.tracing.models import TraceTier
from apps.tracing.services import retention
from apps.tracing.services.retention import Lives

_LONGEST = 100 * 366 * 86_400


class LivesSerializer(serializers.Serializer[Any]):
    """What is not given, or null, stays as it is."""

    default_trace_tier = serializers.ChoiceField(
        choices=TraceTier.choices, required=False, allow_null=True
    )
    longlived_ttl_seconds = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=_LONGEST
    )
    shortlived_ttl_seconds = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=_LONGEST
    )
    apply_to_all_projects = serializers.BooleanField(required=False, default=False)


class WorkspaceLivesView(WorkspaceAPIView):
    required_permission = {"GET": Permission.WORKSPACE_READ, "*": Permission.WORKSPACE_MANAGE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return Response(self._json())

    @extend_schema(request=LivesSerializer, responses=dict)
    def put(self, request: ApiRequest) -> Response:
        changes, all_projects = _said(request)
        retention.set_lives(
            organization_id=request.auth.organization_id,
            workspace_id=self.workspace_id,
            changes=changes,
            all_projects=all_projects,
        )
        return Response(self._json())

    def _json(self) -> dict[str, Any]:
        return _json(retention.lives_of(Workspace.objects.get(pk=self.workspace_id)))


class OrganizationLivesView(OrganizationAPIView):
    """For those who speak for the whole organization, not for one of its workspaces."""

    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.ORGANIZATION_MANAGE,
    }

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return Response(self._json())

    @extend_schema(request=LivesSerializer, responses=dict)
    def put(self, request: OrganizationRequest) -> Response:
        changes, all_projects = _said(request)
        retention.set_lives(
            organization_id=self.organization_id,
            workspace_id=None,
            changes=changes,
            all_projects=all_projects,
        )
        return Response(self._json())

    def _json(self) -> dict[str, Any]:
        return _json(
            retention.lives_of_organization(Organization.objects.get(pk=self.organization_id))
        )


def _said(request: Request) -> tuple[dict[str, Any], bool]:
    body = LivesSerializer(data=request.data)
    body.is_valid(raise_exception=True)
    said: dict[str, Any] = dict(body.validated_data)
    all_projects = bool(said.pop("apply_to_all_projects"))
    return {name: value for name, value in said.items() if value is not None}, all_projects


def _json(lives: Lives) -> dict[str, Any]:
    return {
        "default_trace_tier": lives.default_tier,
        "longlived_ttl_seconds": lives.long_seconds,
        "shortlived_ttl_seconds": lives.short_seconds,
    }


routes = [
    path("ttl-settings", WorkspaceLivesView.as_view(), name="ttl-settings"),
    path(
        "workspaces/current/ttl-settings",
        WorkspaceLivesView.as_view(),
        name="workspace-ttl-settings",
    ),
    path("orgs/ttl-settings", OrganizationLivesView.as_view(), name="organization-ttl-settings"),
    path("orgs/current/ttl-settings", OrganizationLivesView.as_view()),
]
