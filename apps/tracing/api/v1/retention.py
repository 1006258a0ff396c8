"""Retention policy of a workspace or an organization."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import (
    ApiRequest,
    OrganizationAPIView,
    OrganizationRequest,
    WorkspaceAPIView,
    validate,
)
from apps.organizations.models import Organization, Workspace
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.tracing.models import TraceTier
from apps.tracing.services import retention
from apps.tracing.services.retention import RetentionPolicy

_MAX_TTL_SECONDS = 100 * 366 * 86_400


class RetentionSerializer(serializers.Serializer[Any]):
    """Changes to a policy; absent and null fields stay unchanged."""

    default_trace_tier = serializers.ChoiceField(
        choices=TraceTier.choices, required=False, allow_null=True
    )
    longlived_ttl_seconds = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=_MAX_TTL_SECONDS
    )
    shortlived_ttl_seconds = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=_MAX_TTL_SECONDS
    )
    apply_to_all_projects = serializers.BooleanField(required=False, default=False)


class WorkspaceRetentionView(WorkspaceAPIView):
    required_permission = {"GET": Permission.WORKSPACE_READ, "*": Permission.WORKSPACE_MANAGE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return Response(self._json())

    @extend_schema(request=RetentionSerializer, responses=dict)
    def put(self, request: ApiRequest) -> Response:
        changes, all_projects = _parse_body(request)
        retention.set_policy(
            organization_id=request.auth.organization_id,
            workspace_id=self.workspace_id,
            changes=changes,
            all_projects=all_projects,
        )
        return Response(self._json())

    def _json(self) -> dict[str, Any]:
        return _policy_json(
            retention.policy_for_workspace(Workspace.objects.get(pk=self.workspace_id))
        )


class OrganizationRetentionView(OrganizationAPIView):
    """The organization's default policy; requires a role in the organization."""

    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.ORGANIZATION_MANAGE,
    }

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return Response(self._json())

    @extend_schema(request=RetentionSerializer, responses=dict)
    def put(self, request: OrganizationRequest) -> Response:
        changes, all_projects = _parse_body(request)
        retention.set_policy(
            organization_id=self.organization_id,
            workspace_id=None,
            changes=changes,
            all_projects=all_projects,
        )
        return Response(self._json())

    def _json(self) -> dict[str, Any]:
        return _policy_json(
            retention.policy_for_organization(Organization.objects.get(pk=self.organization_id))
        )


def _parse_body(request: Request) -> tuple[dict[str, Any], bool]:
    data = validate(RetentionSerializer, request.data)
    all_projects = bool(data.pop("apply_to_all_projects"))
    return {name: value for name, value in data.items() if value is not None}, all_projects


def _policy_json(policy: RetentionPolicy) -> dict[str, Any]:
    return {
        "default_trace_tier": policy.default_tier,
        "longlived_ttl_seconds": policy.long_seconds,
        "shortlived_ttl_seconds": policy.short_seconds,
    }


routes = [
    path("ttl-settings", WorkspaceRetentionView.as_view(), name="ttl-settings"),
    path(
        "workspaces/current/ttl-settings",
        WorkspaceRetentionView.as_view(),
        name="workspace-ttl-settings",
    ),
    path(
        "orgs/ttl-settings", OrganizationRetentionView.as_view(), name="organization-ttl-settings"
    ),
    path("orgs/current/ttl-settings", OrganizationRetentionView.as_view()),
]
