"""How long traces live, said by a workspace or by its organization."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.api_keys.models import ApiKey
from apps.core import errors as core_errors
from apps.core.access import Caller
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.organizations.models import Membership, Organization, Workspace
from apps.organizations.permissions import ORGANIZATION_ADMINS, Permission
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


class OrganizationLivesView(WorkspaceAPIView):
    required_permission = {"GET": Permission.WORKSPACE_READ, "*": Permission.WORKSPACE_MANAGE}

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return Response(self._json())

    @extend_schema(request=LivesSerializer, responses=dict)
    def put(self, request: ApiRequest) -> Response:
        """For those who speak for the whole organization, not for one of its workspaces."""
        if not _speaks_for_organization(request.auth):
            raise core_errors.Forbidden("This needs a key or a role in the whole organization.")
        changes, all_projects = _said(request)
        retention.set_lives(
            organization_id=request.auth.organization_id,
            workspace_id=None,
            changes=changes,
            all_projects=all_projects,
        )
        return Response(self._json())

    def _json(self) -> dict[str, Any]:
        organization = Organization.objects.get(pk=self.request.auth.organization_id)
        return _json(retention.lives_of_organization(organization))


def _said(request: ApiRequest) -> tuple[dict[str, Any], bool]:
    body = LivesSerializer(data=request.data)
    body.is_valid(raise_exception=True)
    said: dict[str, Any] = dict(body.validated_data)
    all_projects = bool(said.pop("apply_to_all_projects"))
    return {name: value for name, value in said.items() if value is not None}, all_projects


def _speaks_for_organization(caller: Caller) -> bool:
    if caller.key_id is not None:
        return ApiKey.objects.filter(pk=caller.key_id, workspace=None).exists()
    if caller.user_id is None:
        return False
    return Membership.objects.filter(
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        role__in=ORGANIZATION_ADMINS,
    ).exists()


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
