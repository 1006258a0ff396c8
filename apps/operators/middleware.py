"""Impersonation holds for as long as it may, and never reaches what is the operators' own."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.core import errors
from apps.core.middleware import error_response
from apps.operators import impersonation

Handler = Callable[[HttpRequest], HttpResponse]
# Whoever acts as somebody may not take over the account: its address, password and factors.
_OWN_ALONE = ("/account/", "/admin/")
_END = "/end-impersonation"


class ImpersonationMiddleware:
    """Stands after authentication; sessions without an impersonator pass at the cost of a look."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # A session that nobody has read has nobody signed in, and keys need none.
        if not _has_cookie(request):
            return self.get_response(request)
        said = impersonation.current_impersonator(request)
        if said is None or request.path_info == _END:
            return self.get_response(request)
        if impersonation.has_expired(said):
            impersonation.end(request)
            return redirect("admin:index")
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: object, args: object, kwargs: object
    ) -> HttpResponse | None:
        if not _has_cookie(request) or impersonation.current_impersonator(request) is None:
            return None
        if not f"{request.path_info}/".startswith(_OWN_ALONE):
            return None
        return error_response(
            request,
            errors.Forbidden("Whoever acts as a person may not open that person's account."),
        )


def _has_cookie(request: HttpRequest) -> bool:
    return settings.SESSION_COOKIE_NAME in request.COOKIES
