"""What every JSON view shares: orjson in and out, the error shape, and denial by default."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, cast
from uuid import UUID

from django.http import HttpResponse
from rest_framework import exceptions
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core import errors
from apps.core.callers import Caller, OrganizationCaller, PersonCaller
from apps.core.middleware import as_app_error, error_headers, error_json

log = logging.getLogger(__name__)


class ApiRequest(Request):
    """A request whose caller is known; `auth` holds it in DRF's terms."""

    auth: Caller


class OrganizationRequest(Request):
    """The same on a route about an organization itself."""

    auth: OrganizationCaller


class PersonRequest(Request):
    """The same on a route about what is a person's own."""

    auth: PersonCaller


class HasPermission(BasePermission):
    """The caller is known and has the view's `required_permission` for this method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        caller, known = request.auth, cast("CallerAPIView", view)
        if not isinstance(caller, known.caller_type):
            raise errors.Unauthenticated
        caller.require(known.permission_for(request.method or "GET"))
        return True


class CallerAPIView(APIView):
    """A view for somebody who is known.

    `required_permission` names the permission, or maps methods to permissions when reading needs
    less than writing: `{"GET": ..., "*": ...}`. `caller_type` says which answer to the question who
    is asking the view works with; the authentication class finds that one.
    """

    required_permission: ClassVar[str | dict[str, str]]
    permission_classes = (HasPermission,)
    caller_type: ClassVar[type[Caller | OrganizationCaller | PersonCaller]]

    def permission_for(self, method: str) -> str:
        required = self.required_permission
        if isinstance(required, str):
            return required
        return required.get(method) or required["*"]


class WorkspaceAPIView(CallerAPIView):
    """A view inside one workspace."""

    caller_type = Caller
    is_workspace_in_path: ClassVar[bool] = False
    """Whether `workspace_id` of the address chooses the workspace, and no header does."""
    request: ApiRequest

    @property
    def workspace_id(self) -> UUID:
        return self.request.auth.workspace_id


class OrganizationAPIView(CallerAPIView):
    """A view of an organization itself: that of the key, or the one that a person chooses."""

    caller_type = OrganizationCaller
    request: OrganizationRequest

    @property
    def organization_id(self) -> UUID:
        return self.request.auth.organization_id


class PersonAPIView(CallerAPIView):
    """A view of what is a person's own, whichever organization it is in."""

    caller_type = PersonCaller
    request: PersonRequest


class OpenAPIView(APIView):
    """A view that anybody may call, key or none; its name says that this is meant."""

    authentication_classes = ()
    permission_classes = ()


def exception_handler(exception: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """DRF's hook: every failure in the one error shape; None lets a bug rise to the 500 handler."""
    error = as_app_error(exception)
    if error is None and isinstance(exception, exceptions.APIException):
        error = from_drf(exception)
    if error is None:
        return None
    response = Response(
        error_json(context["request"].path_info, error),
        status=error.status,
        headers=error_headers(error),
        content_type="application/json",
    )
    if isinstance(exception, exceptions.MethodNotAllowed):
        response["Allow"] = ", ".join(context["view"].allowed_methods)
    return response


def from_drf(exception: exceptions.APIException) -> errors.AppError:
    """DRF's own exceptions in our kinds; a validation error becomes one sentence and a list."""
    match exception:
        case exceptions.ValidationError():
            problems = list(_problems(exception.detail))
            first = problems[0] if problems else {"field": "", "message": "not valid"}
            where = f"{first['field']}: " if first["field"] else ""
            return errors.Invalid(f"{where}{first['message']}", problems)
        case exceptions.ParseError():
            return errors.BadRequest(str(exception.detail))
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return errors.Unauthenticated()
        case exceptions.PermissionDenied():
            return errors.Forbidden()
        case exceptions.NotFound():
            return errors.NotFound()
        case exceptions.MethodNotAllowed():
            return errors.MethodNotAllowed()
        case exceptions.NotAcceptable():
            return errors.NotAcceptable()
        case exceptions.UnsupportedMediaType():
            return errors.UnsupportedMediaType()
        case exceptions.Throttled():
            return errors.RateLimited()
    return errors.BadRequest(str(exception.detail))


def _problems(detail: Any, field: str = "") -> Any:
    """The leaves of DRF's nested error detail as `{"field", "message"}`."""
    if isinstance(detail, dict):
        for name, inner in detail.items():
            path = field if name == "non_field_errors" else f"{field}.{name}".lstrip(".")
            yield from _problems(inner, path)
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            nested = isinstance(inner, dict | list)
            yield from _problems(inner, f"{field}[{index}]" if nested else field)
    else:
        yield {"field": field, "message": str(detail)}
