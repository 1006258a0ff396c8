"""Service keys with access to the workspace."""

from __future__ import annotations

from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.api_keys.api.shared import (
    KeyChangesSerializer,
    NewKeySerializer,
    RotationSerializer,
    get_creator,
    get_key,
    key_json,
    key_policy_for,
    list_keys,
    parse_scopes,
    rename_response,
    revoke_response,
    rotate_response,
)
from apps.api_keys.models import ApiKey, ApiKeyQuerySet
from apps.api_keys.services import issue_service_key
from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.organizations.api.request_helpers import paginated_response
from apps.organizations.permissions import Permission


class WorkspaceKeysBase(WorkspaceAPIView):
    required_permission = {"GET": Permission.KEYS_READ, "*": Permission.KEYS_MANAGE}

    def query_keys(self) -> ApiKeyQuerySet:
        keys = ApiKey.objects.filter(organization_id=self.request.auth.organization_id)
        return keys.reaching(self.workspace_id)

    def get_managed_key(self, key_id: UUID) -> ApiKey:
        """Return a key of which the caller manages every workspace."""
        key = get_key(self.query_keys(), key_id)
        key_policy_for(self.request, self.request.auth).check_manages(key)
        return key


class KeysView(WorkspaceKeysBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return paginated_response(request, list_keys(self.query_keys()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a service key for this workspace, or for those in `workspaces`."""
        body = validate(NewKeySerializer, request.data)
        key, secret = issue_service_key(
            organization_id=request.auth.organization_id,
            name=body["description"],
            scopes=parse_scopes(body),
            workspace_ids=body.get("workspaces") or [self.workspace_id],
            policy=key_policy_for(request, request.auth),
            created_by=get_creator(request.auth),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))


class KeyView(WorkspaceKeysBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, key_id: UUID) -> Response:
        return Response(key_json(get_key(self.query_keys(), key_id)))

    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, key_id: UUID) -> Response:
        return rename_response(self.get_managed_key(key_id), request)

    @extend_schema(responses=dict)
    def delete(self, request: ApiRequest, key_id: UUID) -> Response:
        """Revoke the key; effective in every process within a second."""
        return revoke_response(self.get_managed_key(key_id))


class KeyRotationView(WorkspaceKeysBase):
    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: ApiRequest, key_id: UUID) -> Response:
        """Replace the secret; the old one stays valid for `overlap_seconds`."""
        return rotate_response(self.get_managed_key(key_id), request)


_KEY = "api-key/<uuid:key_id>"
routes = [
    path("api-key", KeysView.as_view(), name="workspace-keys"),
    path(_KEY, KeyView.as_view(), name="workspace-key"),
    path(f"{_KEY}/rotate", KeyRotationView.as_view(), name="workspace-key-rotation"),
]
