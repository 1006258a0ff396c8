"""Access control and forms of the pages inside a workspace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import urlencode
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from apps.core import errors
from apps.core.callers import Caller, OrganizationCaller

if TYPE_CHECKING:
    # django-stubs resolves this alias to the class of AUTH_USER_MODEL.
    from django.contrib.auth.models import _User as User

LAST_WORKSPACE = "slipway_workspace"
"""The cookie with the id of the workspace that the user visited last."""
_COOKIE_SECONDS = 31_536_000


class CallerLookup(Protocol):
    """Returns the user's caller in a workspace, or None without access."""

    def __call__(self, *, user: User, workspace_id: UUID) -> Caller | None: ...


class OrganizationCallerLookup(Protocol):
    """Returns the user's caller on an organization; None for a non-member."""

    def __call__(self, *, user: User, organization_id: UUID) -> OrganizationCaller | None: ...


_caller_lookups: list[tuple[CallerLookup, OrganizationCallerLookup]] = []


def register_caller_lookups(
    workspace: CallerLookup, organization: OrganizationCallerLookup
) -> None:
    """Set the lookups of the pages. The organizations app, a higher layer, calls this."""
    _caller_lookups[:] = [(workspace, organization)]


class PageRequest(HttpRequest):
    """A request of a signed-in user in a workspace that they may access."""

    user: User
    htmx: HtmxDetails
    caller: Caller


PageView = Callable[..., HttpResponseBase]


def workspace_page(permission: str) -> Callable[[PageView], PageView]:
    """Decorate a page of the workspace in the URL's `workspace_id`.

    An anonymous user is redirected to the sign-in page. The response is 404 for a workspace that
    is missing or that the user may not access, and 403 if the permission is missing.
    """

    def decorate(view: PageView) -> PageView:
        @wraps(view)
        def page(request: PageRequest, workspace_id: UUID, **kwargs: Any) -> HttpResponseBase:
            if not _is_signed_in(request):
                return to_sign_in(request)
            [(look_up_caller, _)] = _caller_lookups
            caller = look_up_caller(user=request.user, workspace_id=workspace_id)
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


def organization_caller(request: PageRequest, permission: str) -> OrganizationCaller:
    """Return the user's caller on the workspace's organization; 403 without the permission."""
    [(_, look_up_caller)] = _caller_lookups
    caller = look_up_caller(user=request.user, organization_id=request.caller.organization_id)
    if caller is None:
        raise errors.NotFound
    caller.require(permission)
    return caller


def save_form(form: BaseForm, action: Callable[[], object]) -> bool:
    """Run the action if the form is valid; return whether it succeeded.

    An `AppError` becomes a form error, except for server errors such as `Unavailable`.
    """
    if not form.is_valid():
        return False
    try:
        action()
    except errors.AppError as error:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        form.add_error(None, error.detail)
        return False
    return True


def form_page(
    request: HttpRequest, template: str, context: dict[str, Any], form: BaseForm | None = None
) -> HttpResponse:
    """Render the page; status 422 if its form is invalid."""
    status = 422 if form is not None and form.is_bound and form.errors else 200
    return render(request, template, context, status=status)


def read_offset(request: HttpRequest) -> int:
    """The position in a list that the parameter `from` names; 0 for anything else."""
    text = request.GET.get("from", "")
    return int(text) if text.isdecimal() and len(text) < 8 else 0


def keep_private(response: HttpResponse) -> HttpResponse:
    """Exclude search engines, referrers, and caches that would outlive a public link."""
    response["X-Robots-Tag"] = "noindex, nofollow"
    response["Cache-Control"] = "private, no-store"
    response["Referrer-Policy"] = "no-referrer"
    return response


def _is_signed_in(request: HttpRequest) -> bool:
    return request.user.is_authenticated


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in page, which returns here; htmx navigates the whole page."""
    htmx = getattr(request, "htmx", None)
    return_path = request.get_full_path()
    if htmx and htmx.current_url:
        parts = urlsplit(htmx.current_url)
        return_path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    url = f"{resolve_url('sign-in')}?{urlencode({'next': return_path})}"
    return HttpResponseClientRedirect(url) if htmx else redirect(url)
