"""What every page inside a workspace begins with: who is asking, and may they."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
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
from apps.organizations.models import User
from apps.organizations.services import caller_for

LAST_WORKSPACE = "slipway_workspace"
"""The cookie with the workspace that was last used."""
_YEAR = 31_536_000


class PageRequest(HttpRequest):
    """A signed-in person's request inside a workspace that they may enter."""

    user: User
    htmx: HtmxDetails
    caller: Caller


PageView = Callable[..., HttpResponseBase]


def workspace_page(permission: str) -> Callable[[PageView], PageView]:
    """A page of the workspace that the URL names in `workspace_id`.

    Nobody signed in: to the sign-in page and back. Not theirs: 404, as if it did not exist. Theirs,
    but without the permission: 403.
    """

    def decorate(view: PageView) -> PageView:
        @wraps(view)
        def page(request: PageRequest, workspace_id: UUID, **where: Any) -> HttpResponseBase:
            if not _is_signed_in(request):
                return to_sign_in(request)
            caller = caller_for(user=request.user, workspace_id=workspace_id)
            if caller is None:
                raise errors.NotFound
            request.caller = caller
            caller.require(permission)
            response = view(request, **where)
            if request.COOKIES.get(LAST_WORKSPACE) != str(workspace_id):
                response.set_cookie(
                    LAST_WORKSPACE, str(workspace_id), _YEAR, httponly=True, samesite="Lax"
                )
            return response

        return page

    return decorate


def _is_signed_in(request: HttpRequest) -> bool:
    return request.user.is_authenticated


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """The way to the sign-in page and back; a fragment's request moves the whole page."""
    htmx = getattr(request, "htmx", None)
    back = request.get_full_path()
    if htmx and htmx.current_url:
        parts = urlsplit(htmx.current_url)
        back = f"{parts.path}?{parts.query}" if parts.query else parts.path
    address = f"{resolve_url('sign-in')}?{urlencode({'next': back})}"
    return HttpResponseClientRedirect(address) if htmx else redirect(address)
