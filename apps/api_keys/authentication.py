"""From headers to a `Caller`, for DRF, plain views and Channels consumers alike."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from apps.api_keys import services
from apps.core import errors
from apps.core.access import Caller
from apps.core.origin import recognised
from apps.organizations.models import User
from apps.organizations.services import caller_for


def authenticate(headers: Mapping[str, str], user: User | None = None) -> Caller | None:
    """Who is asking; None when neither a key nor a signed-in user with a workspace is there.

    `headers` must find names without regard to case. A key wins over a session. A user names the
    workspace in `X-Tenant-Id`; one that they may not enter looks like one that does not exist.
    """
    workspace_id = _workspace_id(headers.get("X-Tenant-Id"))
    if secret := key_in(headers):
        return _noted(services.caller_of(secret=secret, workspace_id=workspace_id))
    if user is None or workspace_id is None:
        return None
    caller = caller_for(user=user, workspace_id=workspace_id)
    if caller is None:
        raise errors.NotFound("No such workspace.")
    return _noted(caller)


def _noted(caller: Caller) -> Caller:
    """The audit log and the logs say on whose behalf things are done."""
    recognised(caller)
    return caller


def key_in(headers: Mapping[str, str]) -> str | None:
    """The API key that a request brings, in either of its places."""
    if secret := headers.get("X-Api-Key"):
        return secret
    scheme, _, token = (headers.get("Authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _workspace_id(value: str | None) -> UUID | None:
    if not value:
        return None
    try:
        return UUID(value)
    except ValueError:
        raise errors.Forbidden("X-Tenant-Id is not a workspace id.") from None


class CallerAuthentication(BaseAuthentication):
    """DRF's door; `request.auth` is the `Caller`. Sessions are held to CSRF, keys are not."""

    def authenticate(self, request: Request) -> tuple[object, Caller] | None:
        django_request: HttpRequest = request._request
        user = None
        if not (request.headers.get("X-Api-Key") or request.headers.get("Authorization")):
            user = getattr(django_request, "user", None)
            user = user if isinstance(user, User) and user.is_active else None
        caller = authenticate(request.headers, user)
        if caller is None:
            return None
        if user is not None:
            enforce_csrf(django_request)
        return user or caller, caller

    def authenticate_header(self, request: Request) -> str:
        return "X-Api-Key"


class _CsrfCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        raise errors.Forbidden(f"CSRF check failed: {reason}")


def enforce_csrf(request: HttpRequest) -> None:
    """Refuse a request of a browser session that does not prove it came from our pages."""
    check = _CsrfCheck(lambda _: HttpResponse())
    check.process_request(request)
    check.process_view(request, lambda _: HttpResponse(), (), {})
