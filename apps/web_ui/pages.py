"""Access control of the pages inside a workspace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, resolve_url
from django.utils.http import urlencode
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from apps.core import errors
from apps.core.callers import Caller

if TYPE_CHECKING:
    # django-stubs resolves this alias to the class of AUTH_USER_MODEL.
    from django.contrib.auth.models import _User as User

LAST_WORKSPACE = "slipway_workspace"
"""The cookie with the id of the workspace that the user visited last."""
_COOKIE_SECONDS = 31_536_000


class CallerLookup(Protocol):
    """Returns the user's caller in a workspace, or None without access."""

    def __call__(self, *, user: User, workspace_id: UUID) -> Caller | None: ...


_caller_lookups: list[CallerLookup] = []


def register_caller_lookup(lookup: CallerLookup) -> None:
    """Set the lookup of `workspace_page`. The organizations app, a higher layer, calls this."""
    _caller_lookups[:] = [lookup]


class PageRequest(HttpRequest):
    """A request of a signed-in user in a workspace that they may access."""

    user: User
    htmx: HtmxDetails
    caller: Caller


PageView = Callable[..., HttpResponseBase]


def workspace_page(permission: str) -> Callable[[PageView], PageView]:
    """Decorate a page of the workspace in the URL's `workspace_id`.

    Anonymous users are redirected to the sign-in page and back. A missing or foreign workspace is
    404; a missing permission is 403.
    """

    def decorate(view: PageView) -> PageView:
        @wraps(view)
        def page(request: PageRequest, workspace_id: UUID, **kwargs: Any) -> HttpResponseBase:
            if not _is_signed_in(request):
                return to_sign_in(request)
            (lookup,) = _caller_lookups
            caller = lookup(user=request.user, workspace_id=workspace_id)
            if caller is None:
                raise errors.NotFound
            request.caller = caller
            caller.require(permission)
            response = view(request, **kwargs)
            if request.COOKIES.get(LAST_WORKSPACE) != str(workspace_id):
                response.set_cookie(
                    LAST_WORKSPACE,
                    str(workspace_id),
                    _COOKIE_SECONDS,
                    httponly=True,
                    samesite="Lax",
                )
            return response

        return page

    return decorate


def _is_signed_in(request: HttpRequest) -> bool:
    return request.user.is_authenticated


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in page and back; an htmx request navigates the whole page."""
    htmx = getattr(request, "htmx", None)
    back = request.get_full_path()
    if htmx and htmx.current_url:
        parts = urlsplit(htmx.current_url)
        back = f"{parts.path}?{parts.query}" if parts.query else parts.path
    url = f"{resolve_url('sign-in')}?{urlencode({'next': back})}"
    return HttpResponseClientRedirect(url) if htmx else redirect(url)
