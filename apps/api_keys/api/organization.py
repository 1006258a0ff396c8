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
from apps.core.api import OrganizationAPIView, OrganizationRequest, validate
from apps.organizations.api.request_helpers import paginated_response
from apps.organizations.permissions import OrganizationPermission


class OrganizationKeysBase(OrganizationAPIView):
    required_permission = OrganizationPermission.SERVICE_KEYS_MANAGE

    def service_keys(self) -> ApiKeyQuerySet:
        return ApiKey.objects.filter(organization_id=self.organization_id).service()

    def personal_keys(self) -> ApiKeyQuerySet:
        return ApiKey.objects.filter(organization_id=self.organization_id).personal()


class ServiceKeysView(OrganizationKeysBase):
    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paginated_response(request, list_keys(self.service_keys()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """Create a service key for all workspaces, or for those in `workspaces`."""
        body = validate(NewKeySerializer, request.data)
        key, secret = issue_service_key(
            organization_id=self.organization_id,
            name=body["description"],
            scopes=parse_scopes(body),
            workspace_ids=body.get("workspaces") or [],
            policy=key_policy_for(request, request.auth),
            created_by=get_creator(request.auth),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))


class ServiceKeyView(OrganizationKeysBase):
    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return rename_response(get_key(self.service_keys(), key_id), request)

    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return revoke_response(get_key(self.service_keys(), key_id))


class ServiceKeyRotationView(OrganizationKeysBase):
    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return rotate_response(get_key(self.service_keys(), key_id), request)


class PersonalKeysView(OrganizationKeysBase):
    """Personal keys of all members."""

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paginated_response(request, list_keys(self.personal_keys()), key_json)


class PersonalKeyView(OrganizationKeysBase):
    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return revoke_response(get_key(self.personal_keys(), key_id))


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
