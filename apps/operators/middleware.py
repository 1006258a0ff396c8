"""Ends impersonation after its time limit and restricts its reach."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.core import errors
from apps.core.http.middleware import error_response
from apps.operators import impersonation

Handler = Callable[[HttpRequest], HttpResponse]
# An impersonator must not take over the account: address, password, second factor.
_EXCLUDED_PATHS = ("/account/", "/admin/")
_END = "/end-impersonation"


class ImpersonationMiddleware:
    """Runs after authentication; other sessions cost one lookup in the session."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Requests without a session cookie cannot be impersonated.
        if not _has_cookie(request):
            return self.get_response(request)
        impersonator = impersonation.current_impersonator(request)
        if impersonator is None or request.path_info == _END:
            return self.get_response(request)
        if impersonation.has_expired(impersonator):
            impersonation.end(request)
            return redirect("admin:index")
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: object, args: object, kwargs: object
    ) -> HttpResponse | None:
        if not _has_cookie(request) or impersonation.current_impersonator(request) is None:
            return None
        if not f"{request.path_info}/".startswith(_EXCLUDED_PATHS):
            return None
        return error_response(
            request,
            errors.Forbidden("Not allowed while impersonating."),
        )


def _has_cookie(request: HttpRequest) -> bool:
    return settings.SESSION_COOKIE_NAME in request.COOKIES
