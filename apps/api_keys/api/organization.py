"""All keys of an organization, for its administrators."""

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
from apps.core.api import OrganizationAPIView, OrganizationRequest
from apps.organizations.api.request_helpers import paginated_response, validate_body
from apps.organizations.permissions import OrganizationPermission


class KeysBase(OrganizationAPIView):
    required_permission = OrganizationPermission.SERVICE_KEYS_MANAGE

    def service_keys(self) -> ApiKeyQuerySet:
        return ApiKey.objects.filter(organization_id=self.organization_id).service()

    def personal_keys(self) -> ApiKeyQuerySet:
        return ApiKey.objects.filter(organization_id=self.organization_id).personal()


class ServiceKeysView(KeysBase):
    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paginated_response(request, list_keys(self.service_keys()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """Create a service key for all workspaces, or for those in `workspaces`."""
        body = validate_body(NewKeySerializer, request.data)
        key, secret = issue_service_key(
            organization_id=self.organization_id,
            name=body["description"],
            scopes=scopes_in(body),
            workspace_ids=body.get("workspaces") or [],
            policy=key_policy_for(request, request.auth),
            created_by=creator(request.auth),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))


class ServiceKeyView(KeysBase):
    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = get_key(self.service_keys(), key_id)
        body = validate_body(KeyChangesSerializer, request.data)
        return Response(key_json(update_key(key=key, name=body["description"])))

    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = get_key(self.service_keys(), key_id)
        revoke_key(key=key)
        return Response(key_json(key))


class ServiceKeyRotationView(KeysBase):
    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return Response(rotate(get_key(self.service_keys(), key_id), request))


class PersonalKeysView(KeysBase):
    """Personal keys of all members."""

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paginated_response(request, list_keys(self.personal_keys()), key_json)


class PersonalKeyView(KeysBase):
    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = get_key(self.personal_keys(), key_id)
        revoke_key(key=key)
        return Response(key_json(key))


_SERVICE, _PERSONAL = "orgs/current/service-keys", "orgs/current/personal-access-tokens"
_ID = "<uuid:key_id>"
routes = [
    path(_SERVICE, ServiceKeysView.as_view(), name="organization-keys"),
    path(f"{_SERVICE}/{_ID}", ServiceKeyView.as_view(), name="organization-key"),
    path(
        f"{_SERVICE}/{_ID}/rotate",
        ServiceKeyRotationView.as_view(),
        name="organization-key-rotation",
    ),
    path(_PERSONAL, PersonalKeysView.as_view(), name="personal-keys"),
    path(f"{_PERSONAL}/{_ID}", PersonalKeyView.as_view(), name="personal-key"),
]
