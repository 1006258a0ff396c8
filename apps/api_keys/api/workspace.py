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
    creator,
    get_key,
    key_json,
    key_policy_for,
    list_keys,
    rotate,
    scopes_in,
)
from apps.api_keys.models import ApiKey
from apps.api_keys.querysets import ApiKeyQuerySet
from apps.api_keys.services import issue_service_key, revoke_key, update_key
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.organizations.api.request_helpers import paginated_response, validate_body
from apps.organizations.permissions import Permission


class KeysBase(WorkspaceAPIView):
    required_permission = {"GET": Permission.KEYS_READ, "*": Permission.KEYS_MANAGE}

    def rows(self) -> ApiKeyQuerySet:
        keys = ApiKey.objects.filter(organization_id=self.request.auth.organization_id)
        return keys.reaching(self.workspace_id)

    def managed(self, key_id: UUID) -> ApiKey:
        """Return a key of which the caller manages every workspace."""
        key = get_key(self.rows(), key_id)
        key_policy_for(self.request, self.request.auth).check_manages(key)
        return key


class KeysView(KeysBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return paginated_response(request, list_keys(self.rows()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a service key for this workspace, or for those in `workspaces`."""
        body = validate_body(NewKeySerializer, request.data)
        key, secret = issue_service_key(
            organization_id=request.auth.organization_id,
            name=body["description"],
            scopes=scopes_in(body),
            workspace_ids=body.get("workspaces") or [self.workspace_id],
            policy=key_policy_for(request, request.auth),
            created_by=creator(request.auth),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))


class KeyView(KeysBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, key_id: UUID) -> Response:
        return Response(key_json(get_key(self.rows(), key_id)))

    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, key_id: UUID) -> Response:
        key = self.managed(key_id)
        body = validate_body(KeyChangesSerializer, request.data)
        return Response(key_json(update_key(key=key, name=body["description"])))

    @extend_schema(responses=dict)
    def delete(self, request: ApiRequest, key_id: UUID) -> Response:
        """Revoke the key; effective in every process within a second."""
        key = self.managed(key_id)
        revoke_key(key=key)
        return Response(key_json(key))


class KeyRotationView(KeysBase):
    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: ApiRequest, key_id: UUID) -> Response:
        """Replace the secret; the old one stays valid for `overlap_seconds`."""
        return Response(rotate(self.managed(key_id), request))


_KEY = "api-key/<uuid:key_id>"
routes = [
    path("api-key", KeysView.as_view(), name="workspace-keys"),
    path(_KEY, KeyView.as_view(), name="workspace-key"),
    path(f"{_KEY}/rotate", KeyRotationView.as_view(), name="workspace-key-rotation"),
]
