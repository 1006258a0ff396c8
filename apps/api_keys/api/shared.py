"""Serializers and helpers of the key views."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api_keys.authentication import api_key_from_headers, authenticate_in_workspace
from apps.api_keys.models import ApiKey, ApiKeyQuerySet
from apps.api_keys.services import (
    KeyPolicy,
    organization_caller_for_key,
    revoke_key,
    rotate_key,
    update_key,
)
from apps.core import errors
from apps.core.api import validate
from apps.core.callers import Caller, OrganizationCaller
from apps.core.tenancy import get_or_404
from apps.organizations.models import User
from apps.organizations.permissions import SCOPES
from apps.organizations.services import caller_for


class NewKeySerializer(serializers.Serializer[Any]):
    description = serializers.CharField(max_length=200, default="API key")
    expires_at = serializers.DateTimeField(required=False, allow_null=True)
    read_only = serializers.BooleanField(required=False, allow_null=True)  # type: ignore[assignment]
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
    """Return the key's JSON; with the secret right after creation or rotation."""
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
            None
            if key.is_organization_wide
            else sorted(workspace.pk for workspace in key.workspaces.all())
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


def parse_scopes(body: dict[str, Any]) -> list[str]:
    """Return the requested scopes; the default is `read` for read-only keys, else `admin`."""
    if body.get("scopes"):
        return list(body["scopes"])
    return ["read"] if body.get("read_only") else ["admin"]


def key_policy_for(request: Request, caller: Caller | OrganizationCaller) -> KeyPolicy:
    """Return the key policy of the request's user or key."""
    secret = api_key_from_headers(request.headers)
    user = None if secret else request._request.user

    def in_workspace(workspace_id: UUID) -> frozenset[str]:
        if isinstance(user, User):
            workspace_caller = caller_for(user=user, workspace_id=workspace_id)
        else:
            try:
                workspace_caller = authenticate_in_workspace(workspace_id, request.headers)
            except errors.NotFound:
                workspace_caller = None
        return workspace_caller.permissions if workspace_caller is not None else frozenset()

    def on_organization() -> frozenset[str]:
        if isinstance(user, User):
            return KeyPolicy.of_user(user, caller.organization_id).on_organization()
        return organization_caller_for_key(secret=secret or "").permissions

    return KeyPolicy(in_workspace, on_organization)


def list_keys(rows: ApiKeyQuerySet) -> ApiKeyQuerySet:
    """Return the unrevoked keys, newest first."""
    return rows.unrevoked().prefetch_related("workspaces").newest_first()


def get_key(rows: ApiKeyQuerySet, key_id: UUID) -> ApiKey:
    return get_or_404(rows.unrevoked().select_related("person"), pk=key_id)


def get_creator(caller: Caller | OrganizationCaller) -> User | None:
    """Return the user to record as the key's creator."""
    return User.objects.filter(pk=caller.user_id).first() if caller.user_id else None


def rename_response(key: ApiKey, request: Request) -> Response:
    body = validate(KeyChangesSerializer, request.data)
    return Response(key_json(update_key(key=key, name=body["description"])))


def revoke_response(key: ApiKey) -> Response:
    revoke_key(key=key)
    return Response(key_json(key))


def rotate_response(key: ApiKey, request: Request) -> Response:
    body = validate(RotationSerializer, request.data)
    overlap = timedelta(seconds=body["overlap_seconds"])
    return Response(key_json(*rotate_key(key=key, overlap=overlap)))
