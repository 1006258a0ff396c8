"""Service keys that reach the workspace at hand."""

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
    key_json,
    one_of,
    rights_of,
    rotated,
    scopes_in,
    shown,
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
        here = ApiKey.objects.filter(organization_id=self.request.auth.organization_id)
        return here.reaching(self.workspace_id)

    def managed(self, key_id: UUID) -> ApiKey:
        """A key whose whole reach is the caller's to look after."""
        key = one_of(self.rows(), key_id)
        rights_of(self.request, self.request.auth).check_manages(key)
        return key


class KeysView(KeysBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return paginated_response(request, shown(self.rows()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """A key for this workspace, or for those that are named."""
        body = validate_body(NewKeySerializer, request.data)
        key, secret = issue_service_key(
            organization_id=request.auth.organization_id,
            name=body["description"],
            scopes=scopes_in(body),
            workspace_ids=body.get("workspaces") or [self.workspace_id],
            rights=rights_of(request, request.auth),
            created_by=creator(request.auth),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))


class KeyView(KeysBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, key_id: UUID) -> Response:
        return Response(key_json(one_of(self.rows(), key_id)))

    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, key_id: UUID) -> Response:
        key = self.managed(key_id)
        body = validate_body(KeyChangesSerializer, request.data)
        return Response(key_json(update_key(key=key, name=body["description"])))

    @extend_schema(responses=dict)
    def delete(self, request: ApiRequest, key_id: UUID) -> Response:
        """Dead on every process within a second."""
        key = self.managed(key_id)
        revoke_key(key=key)
        return Response(key_json(key))


class KeyRotationView(KeysBase):
    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: ApiRequest, key_id: UUID) -> Response:
        """A new secret; the old one goes on for `overlap_seconds`."""
        return Response(rotated(self.managed(key_id), request))


_KEY = "api-key/<uuid:key_id>"
routes = [
    path("api-key", KeysView.as_view(), name="keys"),
    path(_KEY, KeyView.as_view(), name="key"),
    path(f"{_KEY}/rotate", KeyRotationView.as_view(), name="key-rotation"),
]
