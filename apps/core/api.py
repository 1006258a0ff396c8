"""Base classes of JSON views: callers, permissions and the error shape."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, cast
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from rest_framework import exceptions
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from apps.core import errors
from apps.core.callers import Caller, OrganizationCaller, PersonCaller
from apps.core.drf import JSONRenderer
from apps.core.http.middleware import as_app_error, error_headers, error_json
from apps.core.json import has_lazy_fragments, has_made_lazy_fragments, iterate_encoded

log = logging.getLogger(__name__)


class ApiRequest(Request):
    """An authenticated request; `auth` is the caller."""

    auth: Caller


class OrganizationRequest(Request):
    """An authenticated request on a route of an organization."""

    auth: OrganizationCaller


class PersonRequest(Request):
    """An authenticated request on a route of a user's own resources."""

    auth: PersonCaller


class HasPermission(BasePermission):
    """Requires a caller that has the view's `required_permission` for the method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        caller, caller_view = request.auth, cast("CallerAPIView", view)
        if not isinstance(caller, caller_view.caller_type):
            raise errors.Unauthenticated
        caller.require(caller_view.permission_for(request.method or "GET"))
        return True


class JsonAPIView(APIView):
    """A view whose large answers are encoded and sent in pieces."""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        if not has_made_lazy_fragments():
            return final
        is_json = isinstance(getattr(final, "accepted_renderer", None), JSONRenderer)
        if not isinstance(final, Response) or not is_json or not has_lazy_fragments(final.data):
            return final
        return StreamingHttpResponse(
            iterate_encoded(final.data),
            status=final.status_code,
            headers=dict(final.items()) | {"Content-Type": JSONRenderer.media_type},
        )


class CallerAPIView(JsonAPIView):
    """A view that requires authentication.

    `required_permission` names the permission, or maps methods to permissions when reading needs
    less than writing: `{"GET": ..., "*": ...}`. `caller_type` is the type of caller that the
    authentication class resolves for the view.
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
    """A view of resources in one workspace."""

    caller_type = Caller
    is_workspace_in_path: ClassVar[bool] = False
    """Whether the URL parameter `workspace_id`, not a header, selects the workspace."""
    request: ApiRequest

    @property
    def workspace_id(self) -> UUID:
        return self.request.auth.workspace_id


class OrganizationAPIView(CallerAPIView):
    """A view of an organization: the key's, or the one that the user selects."""

    caller_type = OrganizationCaller
    request: OrganizationRequest

    @property
    def organization_id(self) -> UUID:
        return self.request.auth.organization_id


class PersonAPIView(CallerAPIView):
    """A view of a user's own resources in any organization."""

    caller_type = PersonCaller
    request: PersonRequest


class OpenAPIView(JsonAPIView):
    """A public view without authentication."""

    authentication_classes = ()
    permission_classes = ()


def validate(
    serializer_class: type[Serializer[Any]], data: Any, *, partial: bool = False
) -> dict[str, Any]:
    """Return the validated fields of a body or query; raises `ValidationError`."""
    serializer = serializer_class(data=data, partial=partial)
    serializer.is_valid(raise_exception=True)
    fields: dict[str, Any] = serializer.validated_data
    return fields


def exception_handler(exception: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Render every failure in the one error shape; None passes a bug to the 500 handler."""
    error = as_app_error(exception)
    if error is None and isinstance(exception, exceptions.APIException):
        error = convert_drf_exception(exception)
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


def convert_drf_exception(exception: exceptions.APIException) -> errors.AppError:
    """Convert an exception of the framework to an `AppError`, with a list of invalid fields."""
    match exception:
        case exceptions.ValidationError():
            problems = list(_problems(exception.detail))
            first = problems[0] if problems else {"field": "", "message": "Invalid value."}
            prefix = f"{first['field']}: " if first["field"] else ""
            return errors.Invalid(f"{prefix}{first['message']}", problems)
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
    """Yield the leaves of the framework's nested error detail as `{"field", "message"}`."""
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
