"""Endpoints that self-hosted agent servers call: key validation, licence check, telemetry.

The reported numbers are validated and discarded; billing does not use them.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api_keys.authentication import api_key_from_headers, authenticate
from apps.api_keys.errors import WorkspaceRequired
from apps.api_keys.services import get_key_info
from apps.core import errors
from apps.core.api import OpenAPIView
from apps.core.http.middleware import error_response
from apps.core.json import dumps


@csrf_exempt
def auth(request: HttpRequest) -> HttpResponse:
    """Validate a key and return its owner; for agent servers and authenticating proxies."""
    try:
        caller = authenticate(request.headers)
        if caller is None:
            raise errors.Unauthenticated
        config = {"org_id": caller.organization_id, "tenant_id": caller.workspace_id}
    except WorkspaceRequired:
        config = {
            "org_id": get_key_info(
                secret=api_key_from_headers(request.headers) or ""
            ).organization_id
        }
    except errors.AppError as error:
        return error_response(request, error)
    return HttpResponse(dumps({"org_config": config}), content_type="application/json")


class PublicAuthView(OpenAPIView):
    @extend_schema(responses=dict)
    def get(self, request: Request) -> Response:
        """Return the sign-in methods of this server."""
        return Response({"auth_type": "password", "sign_in_url": f"{settings.BASE_URL}/sign-in"})


class _TelemetryView(OpenAPIView):
    def _parse_object(self, request: Request) -> dict[str, Any]:
        if not isinstance(request.data, dict):
            raise errors.Invalid("The body must be an object.")
        return request.data


class LicenceView(_TelemetryView):
    @extend_schema(request=dict, responses=dict)
    def post(self, request: Request) -> Response:
        """Accept any licence: no feature depends on one."""
        self._parse_object(request)
        return Response({"token": ""})


class TransactionsView(_TelemetryView):
    @extend_schema(request=dict, responses=dict)
    def post(self, request: Request) -> Response:
        """Accept trace counts and discard them."""
        transactions = self._parse_object(request).get("trace_transactions", [])
        if not isinstance(transactions, list):
            raise errors.Invalid("`trace_transactions` must be a list.")
        return Response({"inserted_count": len(transactions)})


class UsageView(_TelemetryView):
    @extend_schema(request=dict, responses=dict)
    def post(self, request: Request) -> Response:
        """Accept usage, metrics or traces of an agent server and discard them."""
        self._parse_object(request)
        return Response({})


class MetadataView(_TelemetryView):
    @extend_schema(request=dict, responses={204: None})
    def post(self, request: Request) -> Response:
        """Accept an agent server's activity summary and discard it."""
        summary = self._parse_object(request)
        for name, kind, label in (
            ("tags", dict, "an object"),
            ("measures", dict, "an object"),
            ("logs", list, "a list"),
        ):
            if not isinstance(summary.get(name, kind()), kind):
                raise errors.Invalid(f"`{name}` must be {label}.")
        return Response(status=204)


routes = [
    path("auth", auth, name="auth"),
    path("auth/public", PublicAuthView.as_view(), name="auth-public"),
    path("v1/beacon/verify", LicenceView.as_view(), name="beacon-verify"),
    path("v1/beacon/ingest-traces", TransactionsView.as_view(), name="beacon-traces"),
    path("v1/beacon/usage-snapshot", UsageView.as_view(), name="beacon-usage"),
    path("v1/beacon/v1/metrics", UsageView.as_view(), name="beacon-metrics"),
    path("v1/beacon/v1/traces", UsageView.as_view(), name="beacon-spans"),
    re_path(r"^(?:(?:.+/)?v1/)?metadata/submit$", MetadataView.as_view(), name="metadata-submit"),
]
