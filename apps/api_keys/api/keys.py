"""Keys by API: those of the workspace at hand, those of the organization, those of a person."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api_keys.authentication import authenticate_at, key_in, workspace_named
from apps.api_keys.models import ApiKey
from apps.api_keys.querysets import ApiKeyQuerySet
from apps.api_keys.services import (
    Rights,
    issue_personal_key,
    issue_service_key,
    organization_caller_of,
    revoke_key,
    rotate_key,
    update_key,
)
from apps.core import errors
from apps.core.api import (
    ApiRequest,
    CallerAPIView,
    OrganizationAPIView,
    OrganizationRequest,
    WorkspaceAPIView,
)
from apps.core.tenancy import get_or_404
from apps.organizations.api.asking import checked, paged
from apps.organizations.models import User
from apps.organizations.permissions import SCOPES, OrganizationPermission, Permission
from apps.organizations.services import caller_for


class NewKeySerializer(serializers.Serializer[Any]):
    description = serializers.CharField(max_length=200, default="API key")
    expires_at = serializers.DateTimeField(required=False, allow_null=True)
    read_only = serializers.BooleanField(required=False, allow_null=True)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=list(SCOPES)), required=False, allow_null=True
    )
    workspaces = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True, max_length=500
    )
    default_workspace_id = serializers.UUIDField(required=False, allow_null=True)


class KeyChangesSerializer(serializers.Serializer[Any]):
    description = serializers.CharField(max_length=200)


class RotationSerializer(serializers.Serializer[Any]):
    overlap_seconds = serializers.IntegerField(min_value=0, max_value=90 * 86_400, default=0)


def key_json(key: ApiKey, secret: str | None = None) -> dict[str, Any]:
    """The key as the wire has it; with its secret only where it was made just now."""
    return {
        "id": key.pk,
        "short_key": f"{key.prefix}…",
        "description": key.name,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "last_used_at": key.last_used_at,
        "read_only": key.is_read_only,
        "scopes": key.scopes,
        "organization_id": key.organization_id,
        "default_workspace_id": key.workspace_id,
        "workspaces": (
            None if key.is_organization_wide else sorted(one.pk for one in key.workspaces.all())
        ),
        "user_id": key.person_id,
        "created_by": key.created_by_id,
        "rotated_at": key.rotated_at,
        "previous_key": (
            {
                "short_key": f"{key.previous_prefix}…",
                "expires_at": key.previous_until,
                "last_used_at": key.previous_used_at,
            }
            if key.is_rotating
            else None
        ),
        **({"key": secret} if secret is not None else {}),
    }


def scopes_in(body: dict[str, Any]) -> list[str]:
    """What the key may do: as named, else reading for a read-only one, else everything."""
    if body.get("scopes"):
        return list(body["scopes"])
    return ["read"] if body.get("read_only") else ["admin"]


def rights_of(view: CallerAPIView) -> Rights:
    """What the request's caller may do anywhere, found by the door that let it in."""
    request, caller = view.request, view.request.auth
    secret = key_in(request.headers)
    user = None if secret else request._request.user

    def in_workspace(workspace_id: UUID) -> frozenset[str]:
        if isinstance(user, User):
            found = caller_for(user=user, workspace_id=workspace_id)
        else:
            try:
                found = authenticate_at(workspace_id, request.headers)
            except errors.NotFound:
                found = None
        return found.permissions if found is not None else frozenset()

    def on_organization() -> frozenset[str]:
        if isinstance(user, User):
            return Rights.of_user(user, caller.organization_id).on_organization()
        return organization_caller_of(secret=secret or "").permissions

    return Rights(in_workspace, on_organization)


class _Keys:
    """What the views of keys share."""

    def shown(self, rows: ApiKeyQuerySet) -> ApiKeyQuerySet:
        return rows.unrevoked().prefetch_related("workspaces").newest_first()

    def one(self, rows: ApiKeyQuerySet, key_id: UUID) -> ApiKey:
        return get_or_404(rows.unrevoked().select_related("person"), pk=key_id)


def _person(request: Request) -> User | None:
    return User.objects.filter(pk=request.auth.user_id).first() if request.auth.user_id else None


class WorkspaceKeysView(_Keys, WorkspaceAPIView):
    """Service keys that reach the workspace at hand."""

    required_permission = {"GET": Permission.KEYS_READ, "*": Permission.KEYS_MANAGE}

    def rows(self) -> ApiKeyQuerySet:
        here = ApiKey.objects.filter(organization_id=self.request.auth.organization_id)
        return here.reaching(self.workspace_id)

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        return paged(request, self.shown(self.rows()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """A key for this workspace, or for those that are named."""
        body = checked(NewKeySerializer, request.data)
        key, secret = issue_service_key(
            organization_id=request.auth.organization_id,
            name=body["description"],
            scopes=scopes_in(body),
            workspace_ids=body.get("workspaces") or [self.workspace_id],
            rights=rights_of(self),
            created_by=_person(request),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))


class WorkspaceKeyView(WorkspaceKeysView):
    http_method_names = ["get", "patch", "delete", "options"]

    @extend_schema(responses=dict)
    def get(self, request: ApiRequest, key_id: UUID) -> Response:
        return Response(key_json(self.one(self.rows(), key_id)))

    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: ApiRequest, key_id: UUID) -> Response:
        key = self.one(self.rows(), key_id)
        rights_of(self).check_manages(key)
        body = checked(KeyChangesSerializer, request.data)
        return Response(key_json(update_key(key=key, name=body["description"])))

    @extend_schema(responses=dict)
    def delete(self, request: ApiRequest, key_id: UUID) -> Response:
        """Dead on every process within a second."""
        key = self.one(self.rows(), key_id)
        rights_of(self).check_manages(key)
        revoke_key(key=key)
        return Response(key_json(key))


class WorkspaceKeyRotationView(WorkspaceKeysView):
    http_method_names = ["post", "options"]

    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: ApiRequest, key_id: UUID) -> Response:
        """A new secret; the old one goes on for `overlap_seconds`."""
        key = self.one(self.rows(), key_id)
        rights_of(self).check_manages(key)
        return Response(_rotated(key, request))


class OrganizationKeysView(_Keys, OrganizationAPIView):
    """All service keys of the organization."""

    required_permission = OrganizationPermission.SERVICE_KEYS_MANAGE

    def rows(self) -> ApiKeyQuerySet:
        return ApiKey.objects.filter(organization_id=self.organization_id).service()

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paged(request, self.shown(self.rows()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """A key for all workspaces, or for those that are named."""
        body = checked(NewKeySerializer, request.data)
        key, secret = issue_service_key(
            organization_id=self.organization_id,
            name=body["description"],
            scopes=scopes_in(body),
            workspace_ids=body.get("workspaces") or [],
            rights=rights_of(self),
            created_by=_person(request),
            expires_at=body.get("expires_at"),
        )
        return Response(key_json(key, secret))


class OrganizationKeyView(OrganizationKeysView):
    http_method_names = ["patch", "delete", "options"]

    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = self.one(self.rows(), key_id)
        body = checked(KeyChangesSerializer, request.data)
        return Response(key_json(update_key(key=key, name=body["description"])))

    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = self.one(self.rows(), key_id)
        revoke_key(key=key)
        return Response(key_json(key))


class OrganizationKeyRotationView(OrganizationKeysView):
    http_method_names = ["post", "options"]

    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return Response(_rotated(self.one(self.rows(), key_id), request))


class PersonalKeysOfOrganizationView(OrganizationKeysView):
    """Everybody's personal keys, for who has to know and to end them."""

    http_method_names = ["get", "options"]

    def rows(self) -> ApiKeyQuerySet:
        return ApiKey.objects.filter(organization_id=self.organization_id, kind="personal")


class PersonalKeyOfOrganizationView(PersonalKeysOfOrganizationView):
    http_method_names = ["delete", "options"]

    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = self.one(self.rows(), key_id)
        revoke_key(key=key)
        return Response(key_json(key))


class OwnKeysView(_Keys, OrganizationAPIView):
    """The personal keys of whoever asks, in the organization at hand."""

    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.PERSONAL_KEYS_CREATE,
    }

    def rows(self) -> ApiKeyQuerySet:
        if self.request.auth.user_id is None:
            raise errors.NotFound("This is a person's own: use a personal key.")
        here = ApiKey.objects.filter(organization_id=self.organization_id)
        return here.of_person(self.request.auth.user_id)

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return paged(request, self.shown(self.rows()), key_json)

    @extend_schema(request=NewKeySerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """A key that acts as the person; it means the workspace at hand when none is named."""
        self.rows()
        body = checked(NewKeySerializer, request.data)
        person = User.objects.get(pk=request.auth.user_id)
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
        named = body.get("default_workspace_id") or workspace_named(self.request.headers)
        if named is None:
            own = ApiKey.objects.filter(pk=self.request.auth.key_id)
            return own.values_list("workspace_id", flat=True).first()
        caller = caller_for(user=person, workspace_id=named)
        if caller is None or caller.organization_id != self.organization_id:
            raise errors.NotFound("No such workspace.")
        return caller.workspace_id


class OwnKeyView(OwnKeysView):
    http_method_names = ["patch", "delete", "options"]

    @extend_schema(request=KeyChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = self.one(self.rows(), key_id)
        body = checked(KeyChangesSerializer, request.data)
        return Response(key_json(update_key(key=key, name=body["description"])))

    @extend_schema(responses=dict)
    def delete(self, request: OrganizationRequest, key_id: UUID) -> Response:
        key = self.one(self.rows(), key_id)
        revoke_key(key=key)
        return Response(key_json(key))


class OwnKeyRotationView(OwnKeysView):
    http_method_names = ["post", "options"]

    @extend_schema(request=RotationSerializer, responses=dict)
    def post(self, request: OrganizationRequest, key_id: UUID) -> Response:
        return Response(_rotated(self.one(self.rows(), key_id), request))


def _rotated(key: ApiKey, request: Request) -> dict[str, Any]:
    body = checked(RotationSerializer, request.data)
    overlap = timedelta(seconds=body["overlap_seconds"])
    return key_json(*rotate_key(key=key, overlap=overlap))


_HERE, _OWN, _ALL = "api-key", "api-key/current", "orgs/current/service-keys"
_PERSONAL = "orgs/current/personal-access-tokens"
_ID = "<uuid:key_id>"
urlpatterns = [
    path(_HERE, WorkspaceKeysView.as_view(), name="keys"),
    path(_OWN, OwnKeysView.as_view(), name="own-keys"),
    path(f"{_OWN}/{_ID}", OwnKeyView.as_view(), name="own-key"),
    path(f"{_OWN}/{_ID}/rotate", OwnKeyRotationView.as_view(), name="own-key-rotation"),
    path(f"{_HERE}/{_ID}", WorkspaceKeyView.as_view(), name="key"),
    path(f"{_HERE}/{_ID}/rotate", WorkspaceKeyRotationView.as_view(), name="key-rotation"),
    path(_ALL, OrganizationKeysView.as_view(), name="organization-keys"),
    path(f"{_ALL}/{_ID}", OrganizationKeyView.as_view(), name="organization-key"),
    path(
        f"{_ALL}/{_ID}/rotate",
        OrganizationKeyRotationView.as_view(),
        name="organization-key-rotation",
    ),
    path(_PERSONAL, PersonalKeysOfOrganizationView.as_view(), name="personal-keys"),
    path(f"{_PERSONAL}/{_ID}", PersonalKeyOfOrganizationView.as_view(), name="personal-key"),
]
