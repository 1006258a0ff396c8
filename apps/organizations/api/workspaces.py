"""Workspaces, their counts and their settings."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import (
    ApiRequest,
    OrganizationAPIView,
    OrganizationRequest,
    WorkspaceAPIView,
    validate,
)
from apps.organizations import hooks
from apps.organizations.api.rendering import workspace_json
from apps.organizations.api.request_helpers import query_params, validate_list
from apps.organizations.models import ResourceType, Workspace, WorkspaceSecret
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.organizations.queries import accessible_workspaces
from apps.organizations.services import workspaces
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST, filter_by_tags


class WorkspaceSecretSerializer(serializers.Serializer[Any]):
    key = serializers.RegexField(r"\A[A-Za-z_][A-Za-z0-9_.-]*\Z", max_length=200)
    value = serializers.CharField(
        max_length=workspaces.MAX_SECRET_LENGTH, allow_null=True, trim_whitespace=False
    )


class WorkspaceSecretValueSerializer(serializers.Serializer[Any]):
    """The value of one secret; without it, the secret keeps its value."""

    value = serializers.CharField(
        max_length=workspaces.MAX_SECRET_LENGTH,
        required=False,
        allow_null=True,
        trim_whitespace=False,
    )
    configs = serializers.ListField(required=False, allow_null=True)

    def validate_configs(self, value: list[Any] | None) -> list[Any] | None:
        if value:
            raise serializers.ValidationError("Hosts of a secret are not supported.")
        return value


class SecretListSerializer(serializers.Serializer[Any]):
    include_configs = serializers.BooleanField(default=False)


class SecretsView(WorkspaceAPIView):
    required_permission = {"GET": Permission.SECRETS_READ, "*": Permission.SECRETS_WRITE}

    @extend_schema(parameters=[SecretListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return the names. `configs` are the hosts that a secret may be sent to: always none."""
        params = validate(SecretListSerializer, query_params(request))
        configs: dict[str, Any] = {"configs": []} if params["include_configs"] else {}
        rows = WorkspaceSecret.objects.for_workspace(self.workspace_id).order_by("key")
        return Response([{"key": key, **configs} for key in rows.values_list("key", flat=True)])

    @extend_schema(request=WorkspaceSecretSerializer(many=True), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Set the secrets in one transaction; null deletes."""
        items = validate_list(WorkspaceSecretSerializer, request.data)
        workspaces.set_secrets(
            workspace_id=self.workspace_id,
            values={item["key"]: item["value"] for item in items},
            user_id=request.auth.user_id,
        )
        return Response({})


class SecretView(WorkspaceAPIView):
    required_permission = Permission.SECRETS_WRITE

    @extend_schema(request=WorkspaceSecretValueSerializer, responses=dict)
    def put(self, request: ApiRequest, secret_name: str) -> Response:
        """Create the secret or replace its value; 404 if there is neither a value nor a secret."""
        value = validate(WorkspaceSecretValueSerializer, request.data).get("value")
        if value is None:
            if not self._exists(secret_name):
                raise core_errors.NotFound("There is no such secret; a new one needs a `value`.")
        else:
            validate(WorkspaceSecretSerializer, {"key": secret_name, "value": value})
            self._set(request, secret_name, value)
        return Response({"key": secret_name, "configs": []})

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, secret_name: str) -> Response:
        """Delete the secret; 404 without one."""
        if not self._exists(secret_name):
            raise core_errors.NotFound("There is no such secret.")
        self._set(request, secret_name, None)
        return Response(status=204)

    def _exists(self, name: str) -> bool:
        return WorkspaceSecret.objects.for_workspace(self.workspace_id).filter(key=name).exists()

    def _set(self, request: ApiRequest, name: str, value: str | None) -> None:
        workspaces.set_secrets(
            workspace_id=self.workspace_id, values={name: value}, user_id=request.auth.user_id
        )


# Field names of the counts in the API.
_COUNTS = {
    "dataset_count": ResourceType.DATASET,
    "tracer_session_count": ResourceType.PROJECT,
    "repo_count": ResourceType.PROMPT,
    "annotation_queue_count": ResourceType.QUEUE,
    "deployment_count": ResourceType.DEPLOYMENT,
    "experiment_count": ResourceType.EXPERIMENT,
    "dashboards_count": ResourceType.DASHBOARD,
}


class NewWorkspaceSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(required=False, allow_null=True)
    display_name = serializers.CharField(max_length=100)
    tenant_handle = serializers.CharField(
        max_length=40, required=False, allow_null=True, allow_blank=True
    )


class WorkspaceChangesSerializer(serializers.Serializer[Any]):
    display_name = serializers.CharField(max_length=100, required=False)
    tenant_handle = serializers.CharField(
        max_length=40, required=False, allow_null=True, allow_blank=True
    )


class HandleSerializer(serializers.Serializer[Any]):
    tenant_handle = serializers.CharField(max_length=40)


class ListSerializer(serializers.Serializer[Any]):
    include_deleted = serializers.BooleanField(default=False)


class WorkspaceStatsSerializer(serializers.Serializer[Any]):
    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(), default=list, max_length=MAX_TAGS_PER_REQUEST
    )


class WorkspacesView(OrganizationAPIView):
    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.WORKSPACES_CREATE,
    }

    @extend_schema(parameters=[ListSerializer], responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        """List the workspaces that the caller may enter, by name."""
        params = validate(ListSerializer, query_params(request))
        rows = accessible_workspaces(request.auth, include_deleted=params["include_deleted"])
        return Response(
            [
                workspace_json(row.workspace, role=row.role, permissions=row.permissions)
                for row in rows
            ]
        )

    @extend_schema(request=NewWorkspaceSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        body = validate(NewWorkspaceSerializer, request.data)
        workspace = workspaces.create_workspace(
            organization_id=self.organization_id,
            name=body["display_name"],
            handle=body.get("tenant_handle"),
            workspace_id=body.get("id"),
            by=request.auth,
        )
        return Response(workspace_json(workspace))


class WorkspaceView(WorkspaceAPIView):
    is_workspace_in_path = True
    required_permission = {
        "GET": Permission.WORKSPACE_READ,
        "DELETE": Permission.WORKSPACE_DELETE,
        "*": Permission.WORKSPACE_MANAGE,
    }

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, workspace_id: UUID) -> Response:
        return Response(self._json(Workspace.objects.get(pk=workspace_id)))

    @extend_schema(request=WorkspaceChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, workspace_id: UUID) -> Response:
        body = validate(WorkspaceChangesSerializer, request.data)
        names = {"display_name": "name", "tenant_handle": "handle"}
        changed = workspaces.update_workspace(
            workspace=Workspace.objects.get(pk=workspace_id),
            changes={names[name]: value for name, value in body.items()},
        )
        return Response(self._json(changed))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, workspace_id: UUID) -> Response:
        """End access now; the data is deleted soon after."""
        workspaces.delete_workspace(workspace=Workspace.objects.get(pk=workspace_id))
        return Response(status=204)

    def _json(self, workspace: Workspace) -> dict[str, Any]:
        return workspace_json(workspace, permissions=self.request.auth.permissions)


class WorkspaceStatsView(WorkspaceAPIView):
    required_permission = Permission.WORKSPACE_READ

    @extend_schema(parameters=[WorkspaceStatsSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Count the resources of each type, optionally those with all the tag values."""
        tags = validate(
            WorkspaceStatsSerializer, {"tag_value_id": request.query_params.getlist("tag_value_id")}
        )["tag_value_id"]
        return Response(
            {
                "tenant_id": self.workspace_id,
                **{name: self._count(kind, tags) for name, kind in _COUNTS.items()},
            }
        )

    def _count(self, kind: ResourceType, tags: list[UUID]) -> int:
        rows = hooks.resource_rows(kind, self.workspace_id)
        if rows is None:
            return 0
        return filter_by_tags(rows, self.workspace_id, tags, [kind]).count()


class SettingsView(WorkspaceAPIView):
    """The workspace's id and handle, as SDK clients read them."""

    required_permission = Permission.WORKSPACE_READ

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return Response(settings_json(Workspace.objects.get(pk=self.workspace_id)))


class HandleView(WorkspaceAPIView):
    required_permission = Permission.WORKSPACE_MANAGE

    @extend_schema(request=HandleSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        body = validate(HandleSerializer, request.data)
        changed = workspaces.update_workspace(
            workspace=Workspace.objects.get(pk=self.workspace_id),
            changes={"handle": body["tenant_handle"]},
        )
        return Response(settings_json(changed))


def settings_json(workspace: Workspace) -> dict[str, Any]:
    return {
        "id": workspace.pk,
        "display_name": workspace.name,
        "created_at": workspace.created_at,
        "tenant_handle": workspace.handle,
    }


routes = [
    path("workspaces/current/secrets", SecretsView.as_view(), name="workspace-secrets"),
    path(
        "workspaces/current/secrets/<str:secret_name>",
        SecretView.as_view(),
        name="workspace-secret",
    ),
    path("workspaces/current/stats", WorkspaceStatsView.as_view(), name="workspace-stats"),
    path("workspaces", WorkspacesView.as_view(), name="workspaces"),
    path("tenants", WorkspacesView.as_view(), name="tenants"),
    path("workspaces/<uuid:workspace_id>", WorkspaceView.as_view(), name="workspace"),
    path("tenants/<uuid:workspace_id>", WorkspaceView.as_view(), name="tenant"),
    path("settings", SettingsView.as_view(), name="settings"),
    path("settings/handle", HandleView.as_view(), name="settings-handle"),
]
