"""Endpoints that self-hosted agent servers call: key validation, licence check, telemetry.

The reported numbers are validated and discarded; billing does not use them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
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

MAX_LICENCE_LENGTH = 10_000
LICENCE_TOKEN_SECONDS = 86_400


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

    def _parse_licence(self, body: Mapping[str, Any]) -> str:
        licence = body.get("license")
        if not isinstance(licence, str) or not licence.strip():
            raise errors.Invalid("`license` must be a licence key.")
        if len(licence) > MAX_LICENCE_LENGTH:
            raise errors.Invalid(f"`license` has at most {MAX_LICENCE_LENGTH} characters.")
        return licence

    def _parse_list(self, body: Mapping[str, Any], name: str) -> list[Any]:
        """Return a list of objects; a missing one is empty."""
        items = body.get(name, [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise errors.Invalid(f"`{name}` must be a list of objects.")
        return items


class LicenceView(_TelemetryView):
    @extend_schema(request=dict, responses=dict)
    def post(self, request: Request) -> Response:
        """Accept any licence key and return a token: no feature depends on a licence."""
        licence = self._parse_licence(self._parse_object(request))
        return Response({"token": _issue_licence_token(licence)})


def _issue_licence_token(licence: str) -> str:
    """Return a JSON Web Token (RFC 7519, HS256) for the licence key, which it does not contain."""
    now = int(time.time())
    claims = {
        "iss": settings.BASE_URL,
        "sub": hashlib.sha256(licence.encode()).hexdigest(),
        "iat": now,
        "exp": now + LICENCE_TOKEN_SECONDS,
    }
    signed = b".".join(map(_encode_segment, (dumps({"alg": "HS256", "typ": "JWT"}), dumps(claims))))
    key = f"licence token {settings.SECRET_KEY}".encode()
    signature = hmac.digest(key, signed, hashlib.sha256)
    return b".".join((signed, _encode_segment(signature))).decode()


def _encode_segment(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


class TransactionsView(_TelemetryView):
    @extend_schema(request=dict, responses=dict)
    def post(self, request: Request) -> Response:
        """Accept trace counts and discard them."""
        body = self._parse_object(request)
        self._parse_licence(body)
        return Response({"inserted_count": len(self._parse_list(body, "trace_transactions"))})


class UsageView(_TelemetryView):
    @extend_schema(request=dict, responses=dict)
    def post(self, request: Request) -> Response:
        """Accept usage, metrics or traces of an agent server and discard them."""
        body = self._parse_object(request)
        for name in ("resourceMetrics", "resourceSpans"):  # OTLP in JSON
            self._parse_list(body, name)
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
