"""JSON endpoints without DRF, where its share of a request's cost would show: ingest."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from apps.api_keys.authentication import authenticate
from apps.core import errors
from apps.core.json import dumps
from apps.core.middleware import as_app_error

Answer = tuple[int, Any]
View = Callable[..., HttpResponse]


def api_key_required(method: str, permission: str) -> Callable[[Callable[..., Answer]], View]:
    """A view for holders of an API key with that permission; it returns a status and a value.

    A value that is a response already leaves as it is.

    It is called with the request, the `Caller` and what the address holds. Failures leave in the
    one error shape. A database that does not answer is 503, so that clients send again.
    """

    def decorate(view: Callable[..., Answer]) -> View:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                if request.method != method:
                    raise errors.MethodNotAllowed
                caller = authenticate(request.headers)
                if caller is None:
                    raise errors.Unauthenticated
                caller.require(permission)
                status, value = view(request, caller, *args, **kwargs)
            except (OperationalError, InterfaceError):
                return _failure(errors.Unavailable("The database does not answer."))
            except Exception as exception:
                error = as_app_error(exception)
                if error is None:
                    raise
                return _failure(error)
            if isinstance(value, HttpResponse):
                return value
            return HttpResponse(dumps(value), content_type="application/json", status=status)

        return csrf_exempt(answer)

    return decorate


def _failure(error: errors.AppError) -> HttpResponse:
    response = HttpResponse(
        dumps(error.as_json()), content_type="application/json", status=error.status
    )
    if error.status == errors.Unavailable.status:
        response["Retry-After"] = "1"
    for name, value in error.headers.items():
        response[name] = value
    return response


def dispatch_method(**views: View) -> View:
    """One address, a view for each of its methods; others are answered with 405."""

    @csrf_exempt
    def choose(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        view = views.get((request.method or "").lower())
        if view is None:
            response = _failure(errors.MethodNotAllowed())
            response["Allow"] = ", ".join(name.upper() for name in views)
            return response
        return view(request, *args, **kwargs)

    return choose
