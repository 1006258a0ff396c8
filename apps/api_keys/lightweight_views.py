"""JSON endpoints without DRF, for ingest, where its overhead matters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from apps.api_keys.authentication import authenticate
from apps.core import errors
from apps.core.http.middleware import as_app_error
from apps.core.json import dumps

StatusAndBody = tuple[int, Any]
View = Callable[..., HttpResponse]


def api_key_required(
    method: str, permission: str
) -> Callable[[Callable[..., StatusAndBody]], View]:
    """Decorate a view that requires an API key with the permission.

    The view is called with the request, the `Caller` and the URL arguments. It returns a status and
    a JSON value or a response. Errors have the common JSON shape. An unavailable database is 503,
    so that clients retry.
    """

    def decorate(view: Callable[..., StatusAndBody]) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                if request.method != method:
                    raise errors.MethodNotAllowed
                caller = authenticate(request.headers)
                if caller is None:
                    raise errors.Unauthenticated
                caller.require(permission)
                status, value = view(request, caller, *args, **kwargs)
            except (OperationalError, InterfaceError):
                return _error_response(
                    errors.Unavailable("The database is unavailable. Retry later.")
                )
            except Exception as exception:
                error = as_app_error(exception)
                if error is None:
                    raise
                return _error_response(error)
            if isinstance(value, HttpResponse):
                return value
            return HttpResponse(dumps(value), content_type="application/json", status=status)

        return csrf_exempt(wrapper)

    return decorate


def _error_response(error: errors.AppError) -> HttpResponse:
    response = HttpResponse(
        dumps(error.as_json()), content_type="application/json", status=error.status
    )
    if error.status == errors.Unavailable.status:
        response["Retry-After"] = "1"
    for name, value in error.headers.items():
        response[name] = value
    return response


def dispatch_method(**views: View) -> View:
    """Dispatch to a view per method; other methods are 405."""

    @csrf_exempt
    def dispatch(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        view = views.get((request.method or "").lower())
        if view is None:
            response = _error_response(errors.MethodNotAllowed())
            response["Allow"] = ", ".join(name.upper() for name in views)
            return response
        return view(request, *args, **kwargs)

    return dispatch
