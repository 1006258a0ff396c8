"""Authentication by API key or session, for DRF, plain views and Channels consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from apps.api_keys import services
from apps.core import errors
from apps.core.callers import Caller, OrganizationCaller, PersonCaller
from apps.core.request_context import set_caller, set_identity
from apps.organizations.models import Membership, User
from apps.organizations.permissions import PersonPermission
from apps.organizations.services import caller_for, organization_caller_for

AnyCaller = Caller | OrganizationCaller | PersonCaller
_ALL_PERSON_PERMISSIONS = frozenset(str(permission) for permission in PersonPermission)


def authenticate(headers: Mapping[str, str], user: User | None = None) -> Caller | None:
    """Return the caller; None without a key, and without a user that names a workspace.

    `headers` must be case-insensitive. A key takes precedence over a session. A user names the
    workspace in `X-Tenant-Id`; a foreign workspace is indistinguishable from a missing one.
    """
    workspace_id = _parse_uuid(headers, "X-Tenant-Id")
    if secret := api_key_from_headers(headers):
        return _with_request_context(
            services.caller_for_key(secret=secret, workspace_id=workspace_id)
        )
    if user is None or workspace_id is None:
        return None
    return _with_request_context(_caller_in_workspace(user, workspace_id))


def authenticate_in_workspace(
    workspace_id: UUID, headers: Mapping[str, str], user: User | None = None
) -> Caller | None:
    """Return the caller in the workspace of the URL; raises `NotFound` without access."""
    if secret := api_key_from_headers(headers):
        try:
            return _with_request_context(
                services.caller_for_key(secret=secret, workspace_id=workspace_id)
            )
        except errors.Forbidden:
            raise errors.NotFound from None
    return None if user is None else _with_request_context(_caller_in_workspace(user, workspace_id))


def authenticate_for_organization(
    headers: Mapping[str, str], user: User | None = None
) -> OrganizationCaller | None:
    """Return the organization caller of the key or the user.

    A user names the organization in `X-Organization-Id`, or one of its workspaces in `X-Tenant-Id`;
    members of a single organization need neither.
    """
    organization_id = _parse_uuid(headers, "X-Organization-Id")
    if secret := api_key_from_headers(headers):
        caller = services.organization_caller_for_key(secret=secret)
        if organization_id not in (None, caller.organization_id):
            raise errors.Forbidden(
                "The API key belongs to another organization than X-Organization-Id."
            )
    elif user is None:
        return None
    else:
        organization_id = organization_id or _default_organization(
            user, _parse_uuid(headers, "X-Tenant-Id")
        )
        user_caller = organization_caller_for(user=user, organization_id=organization_id)
        if user_caller is None:
            raise errors.NotFound("No such organization.")
        caller = user_caller
    set_identity(
        organization_id=caller.organization_id, key_id=caller.key_id, user_id=caller.user_id
    )
    return caller


def authenticate_person(
    headers: Mapping[str, str], user: User | None = None
) -> PersonCaller | None:
    """Return the user behind the session or personal key."""
    if secret := api_key_from_headers(headers):
        caller = services.person_caller_for_key(secret=secret)
        if caller.organization_id is not None:
            set_identity(
                organization_id=caller.organization_id,
                key_id=caller.key_id,
                user_id=caller.user_id,
            )
        return caller
    return None if user is None else PersonCaller(user.pk, _ALL_PERSON_PERMISSIONS)


def _caller_in_workspace(user: User, workspace_id: UUID) -> Caller:
    caller = caller_for(user=user, workspace_id=workspace_id)
    if caller is None:
        raise errors.NotFound("No such workspace.")
    return caller


def _default_organization(user: User, workspace_id: UUID | None) -> UUID:
    if workspace_id is not None:
        return _caller_in_workspace(user, workspace_id).organization_id
    ids = Membership.objects.filter(user=user).values_list("organization_id", flat=True)[:2]
    if len(ids) != 1:
        raise errors.Forbidden(
            "You belong to several organizations or none. Name one in X-Organization-Id."
        )
    return ids[0]


def _with_request_context(caller: Caller) -> Caller:
    """Set the caller in the request context, for the audit log and the logs."""
    set_caller(caller)
    return caller


def api_key_from_headers(headers: Mapping[str, str]) -> str | None:
    """Return the API key of `X-Api-Key` or of a bearer token."""
    if secret := headers.get("X-Api-Key"):
        return secret
    scheme, _, token = (headers.get("Authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def workspace_id_from_headers(headers: Mapping[str, str]) -> UUID | None:
    """Return the workspace in `X-Tenant-Id`, without an access check."""
    return _parse_uuid(headers, "X-Tenant-Id")


def _parse_uuid(headers: Mapping[str, str], name: str) -> UUID | None:
    value = headers.get(name)
    if not value:
        return None
    try:
        return UUID(value)
    except ValueError:
        raise errors.Forbidden(f"{name} must be a UUID.") from None


class CallerAuthentication(BaseAuthentication):
    """DRF authentication; `request.auth` is a caller of the view's `caller_type`.

    Sessions require a CSRF token, keys do not.
    """

    def authenticate(self, request: Request) -> tuple[object, AnyCaller] | None:
        django_request: HttpRequest = request._request
        user = None
        if not (request.headers.get("X-Api-Key") or request.headers.get("Authorization")):
            user = getattr(django_request, "user", None)
            user = user if isinstance(user, User) and user.is_active else None
        caller = _caller(request, user)
        if caller is None:
            return None
        if user is not None:
            enforce_csrf(django_request)
        return user or caller, caller

    def authenticate_header(self, request: Request) -> str:
        return "X-Api-Key"


def _caller(request: Request, user: User | None) -> AnyCaller | None:
    # The base views cannot be imported here: REST framework imports this module for them.
    context: dict[str, Any] = request.parser_context
    view = context.get("view")
    caller_type = getattr(view, "caller_type", Caller)
    if caller_type is OrganizationCaller:
        return authenticate_for_organization(request.headers, user)
    if caller_type is PersonCaller:
        return authenticate_person(request.headers, user)
    if getattr(view, "is_workspace_in_path", False):
        return authenticate_in_workspace(context["kwargs"]["workspace_id"], request.headers, user)
    return authenticate(request.headers, user)


class _CsrfCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        raise errors.Forbidden(f"CSRF check failed: {reason}")


def enforce_csrf(request: HttpRequest) -> None:
    """Raise `Forbidden` for a session request without a valid CSRF token."""
    check = _CsrfCheck(lambda _: HttpResponse())
    check.process_request(request)
    check.process_view(request, lambda _: HttpResponse(), (), {})
