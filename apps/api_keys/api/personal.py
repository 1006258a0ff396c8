"""The caller's personal keys in the organization."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.api_keys.api.shared import (
    KeyChangesSerializer,
    NewKeySerializer,
    RotationSerializer,
    get_key,
    key_json,
    list_keys,
    parse_scopes,
    rename_response,
    revoke_response,
    rotate_response,
)
from apps.api_keys.authentication import workspace_id_from_headers
from apps.api_keys.models import ApiKey, ApiKeyQuerySet
from apps.api_keys.services import issue_personal_key
from apps.core import errors
from apps.core.api import OrganizationAPIView, OrganizationRequest, validate
from apps.organizations.api.request_helpers import paginated_response
from apps.organizations.models import User
from apps.organizations.permissions import OrganizationPermission
from apps.organizations.services import caller_for


class OwnKeysBase(OrganizationAPIView):
    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.PERSONAL_KEYS_CREATE,
    }

    def person(self) -> User:
        """Return the calling user; service keys have none."""
        if self.request.auth.user_id is None:
            raise errors.NotFound("Service keys have no user. Use a personal key.")
        return User.objects.get(pk=self.request.auth.user_id)

    def query_keys(self) -> ApiKeyQuerySet:
        keys = ApiKey.objects.filter(organization_id=self.organization_id)
        return keys.of_person(self.person().pk)


class OwnKeysView(OwnKeysBase):
    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paginated_response(request, list_keys(self.query_keys()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """Create a personal key; its default workspace is the named or the current one."""
        person = self.person()
        body = validate(NewKeySerializer, request.data)
        key, secret = issue_personal_key(
            organization_id=self.organization_id,
            person=person,
            name=body["description"],
            scopes=parse_scopes(body),
            workspace_id=self._default_workspace(body, person),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))

    def _default_workspace(self, body: dict[str, Any], person: User) -> UUID | None:
        workspace_id = body.get("default_workspace_id") or workspace_id_from_headers(
            self.request.headers
        )
        if workspace_id is None:
            key_id = self.request.auth.key_id
            key = ApiKey.objects.filter(pk=key_id).first() if key_id else None
            return None if key is None else key.workspace_id
        caller = caller_for(user=person, workspace_id=workspace_id)
        if caller is None or caller.organization_id != self.organization_id:
            raise errors.NotFound("No such workspace.")
        return caller.workspace_id


class OwnKeyView(OwnKeysBase):
    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return rename_response(get_key(self.query_keys(), key_id), request)

    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return revoke_response(get_key(self.query_keys(), key_id))


class OwnKeyRotationView(OwnKeysBase):
    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return rotate_response(get_key(self.query_keys(), key_id), request)


_OWN = "api-key/current"
routes = [
    path(_OWN, OwnKeysView.as_view(), name="my-keys"),
    path(f"{_OWN}/<uuid:key_id>", OwnKeyView.as_view(), name="my-key"),
    path(f"{_OWN}/<uuid:key_id>/rotate", OwnKeyRotationView.as_view(), name="my-key-rotation"),
]
