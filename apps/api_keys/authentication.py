"""From headers to who is asking, for DRF, plain views and Channels consumers alike."""

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
_EVERYTHING_OWN = frozenset(str(word) for word in PersonPermission)


def authenticate(headers: Mapping[str, str], user: User | None = None) -> Caller | None:
    """Who is asking; None when neither a key nor a signed-in user with a workspace is there.

    `headers` must find names without regard to case. A key wins over a session. A user names the
    workspace in `X-Tenant-Id`; one that they may not enter looks like one that does not exist.
    """
    workspace_id = _id(headers, "X-Tenant-Id")
    if secret := api_key_from_headers(headers):
        return _noted(services.caller_for_key(secret=secret, workspace_id=workspace_id))
    if user is None or workspace_id is None:
        return None
    return _noted(_entering(user, workspace_id))


def authenticate_in_workspace(
    workspace_id: UUID, headers: Mapping[str, str], user: User | None = None
) -> Caller | None:
    """The same in a workspace that the address names: there, out of reach is not found."""
    if secret := api_key_from_headers(headers):
        try:
            return _noted(services.caller_for_key(secret=secret, workspace_id=workspace_id))
        except errors.Forbidden:
            raise errors.NotFound from None
    return None if user is None else _noted(_entering(user, workspace_id))


def authenticate_for_organization(
    headers: Mapping[str, str], user: User | None = None
) -> OrganizationCaller | None:
    """Who is asking about an organization: the key's, or the one that a person names.

    A person names it in `X-Organization-Id`, or by a workspace of it in `X-Tenant-Id`; who belongs
    to one alone need not.
    """
    organization_id = _id(headers, "X-Organization-Id")
    if secret := api_key_from_headers(headers):
        caller = services.organization_caller_for_key(secret=secret)
        if organization_id not in (None, caller.organization_id):
            raise errors.Forbidden("This key is not of that organization.")
    elif user is None:
        return None
    else:
        chosen = organization_id or _organization_meant(user, _id(headers, "X-Tenant-Id"))
        found = organization_caller_for(user=user, organization_id=chosen)
        if found is None:
            raise errors.NotFound("No such organization.")
        caller = found
    set_identity(
        organization_id=caller.organization_id, key_id=caller.key_id, user_id=caller.user_id
    )
    return caller


def authenticate_person(
    headers: Mapping[str, str], user: User | None = None
) -> PersonCaller | None:
    """Which person is asking, by a session or by a personal key."""
    if secret := api_key_from_headers(headers):
        caller = services.person_caller_for_key(secret=secret)
        if caller.organization_id is not None:
            set_identity(
                organization_id=caller.organization_id,
                key_id=caller.key_id,
                user_id=caller.user_id,
            )
        return caller
    return None if user is None else PersonCaller(user.pk, _EVERYTHING_OWN)


def _entering(user: User, workspace_id: UUID) -> Caller:
    caller = caller_for(user=user, workspace_id=workspace_id)
    if caller is None:
        raise errors.NotFound("No such workspace.")
    return caller


def _organization_meant(user: User, workspace_id: UUID | None) -> UUID:
    if workspace_id is not None:
        return _entering(user, workspace_id).organization_id
    own = Membership.objects.filter(user=user).values_list("organization_id", flat=True)[:2]
    if len(own) != 1:
        raise errors.Forbidden("Name the organization in X-Organization-Id.")
    return own[0]


def _noted(caller: Caller) -> Caller:
    """The audit log and the logs say on whose behalf things are done."""
    set_caller(caller)
    return caller


def api_key_from_headers(headers: Mapping[str, str]) -> str | None:
    """The API key that a request brings, in either of its places."""
    if secret := headers.get("X-Api-Key"):
        return secret
    scheme, _, token = (headers.get("Authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def workspace_id_from_headers(headers: Mapping[str, str]) -> UUID | None:
    """The workspace that a request names, whoever may enter it."""
    return _id(headers, "X-Tenant-Id")


def _id(headers: Mapping[str, str], name: str) -> UUID | None:
    value = headers.get(name)
    if not value:
        return None
    try:
        return UUID(value)
    except ValueError:
        raise errors.Forbidden(f"{name} is not an id.") from None


class CallerAuthentication(BaseAuthentication):
    """DRF's door; `request.auth` is the caller of the kind that the view works with.

    Sessions are held to CSRF, keys are not.
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
    # The views' base classes are loaded after this module: REST framework loads it for them.
    context: dict[str, Any] = request.parser_context
    view = context.get("view")
    wanted = getattr(view, "caller_type", Caller)
    if wanted is OrganizationCaller:
        return authenticate_for_organization(request.headers, user)
    if wanted is PersonCaller:
        return authenticate_person(request.headers, user)
    if getattr(view, "is_workspace_in_path", False):
        return authenticate_in_workspace(context["kwargs"]["workspace_id"], request.headers, user)
    return authenticate(request.headers, user)


class _CsrfCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        raise errors.Forbidden(f"CSRF check failed: {reason}")


def enforce_csrf(request: HttpRequest) -> None:
    """Refuse a request of a browser session that does not prove it came from our pages."""
    check = _CsrfCheck(lambda _: HttpResponse())
    check.process_request(request)
    check.process_view(request, lambda _: HttpResponse(), (), {})
