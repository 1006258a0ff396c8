"""The personal keys of whoever asks, in the organization at hand."""

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
    key_json,
    one_of,
    rotated,
    scopes_in,
    shown,
)
from apps.api_keys.authentication import workspace_id_from_headers
from apps.api_keys.models import ApiKey
from apps.api_keys.querysets import ApiKeyQuerySet
from apps.api_keys.services import issue_personal_key, revoke_key, update_key
from apps.core import errors
from apps.core.api import OrganizationAPIView, OrganizationRequest
from apps.organizations.api.request_helpers import paginated_response, validate_body
from apps.organizations.models import User
from apps.organizations.permissions import OrganizationPermission
from apps.organizations.services import caller_for


class OwnKeysBase(OrganizationAPIView):
    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.PERSONAL_KEYS_CREATE,
    }

    def person(self) -> User:
        """Who is asking; keys that are nobody's have nothing of their own."""
        if self.request.auth.user_id is None:
            raise errors.NotFound("This is a person's own: use a personal key.")
        return User.objects.get(pk=self.request.auth.user_id)

    def rows(self) -> ApiKeyQuerySet:
        here = ApiKey.objects.filter(organization_id=self.organization_id)
        return here.of_person(self.person().pk)


class OwnKeysView(OwnKeysBase):
    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paginated_response(request, shown(self.rows()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """A key that acts as the person; it means the workspace at hand when none is named."""
        person = self.person()
        body = validate_body(NewKeySerializer, request.data)
        key, secret = issue_personal_key(
            organization_id=self.organization_id,
            person=person,
            name=body["description"],
            scopes=scopes_in(body),
            workspace_id=self._home(body, person),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))

    def _home(self, body: dict[str, Any], person: User) -> UUID | None:
        named = body.get("default_workspace_id") or workspace_id_from_headers(self.request.headers)
        if named is None:
            key_id = self.request.auth.key_id
            own = ApiKey.objects.filter(pk=key_id).first() if key_id else None
            return None if own is None else own.workspace_id
        caller = caller_for(user=person, workspace_id=named)
        if caller is None or caller.organization_id != self.organization_id:
            raise errors.NotFound("No such workspace.")
        return caller.workspace_id


class OwnKeyView(OwnKeysBase):
    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = one_of(self.rows(), key_id)
        body = validate_body(KeyChangesSerializer, request.data)
        return Response(key_json(update_key(key=key, name=body["description"])))

    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = one_of(self.rows(), key_id)
        revoke_key(key=key)
        return Response(key_json(key))


class OwnKeyRotationView(OwnKeysBase):
    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return Response(rotated(one_of(self.rows(), key_id), request))


_OWN = "api-key/current"
routes = [
    path(_OWN, OwnKeysView.as_view(), name="own-keys"),
    path(f"{_OWN}/<uuid:key_id>", OwnKeyView.as_view(), name="own-key"),
    path(f"{_OWN}/<uuid:key_id>/rotate", OwnKeyRotationView.as_view(), name="own-key-rotation"),
]
