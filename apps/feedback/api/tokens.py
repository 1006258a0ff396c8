"""Endpoints of feedback tokens: issued with an API key, redeemed from any browser."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, OpenAPIView, WorkspaceAPIView
from apps.core.drf import StorableJSONField
from apps.core.json import dumps
from apps.core.timestamps import as_utc
from apps.feedback.api.queries import FeedbackPageSerializer, query_params
from apps.feedback.api.views import request_schema
from apps.feedback.models import KEY_LENGTH, FeedbackToken
from apps.feedback.services import tokens as services
from apps.feedback.services.configs import parse_config
from apps.feedback.services.tokens import DEFAULT_LIFETIME, TokenRequest, token_url
from apps.feedback.wire import TokenFeedback, decode_token_feedback
from apps.organizations.permissions import Permission

MAX_LIFETIME = timedelta(days=3660)
MAX_TOKENS = 100
_JSON_PARAMETERS = ("correction", "metadata")


class LifetimeSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField(required=False, default=0, min_value=0, max_value=3660)
    hours = serializers.IntegerField(required=False, default=0, min_value=0, max_value=100_000)
    minutes = serializers.IntegerField(required=False, default=0, min_value=0, max_value=6_000_000)


class TokenSerializer(serializers.Serializer[Any]):
    """A token to issue; it expires at `expires_at`, after `expires_in`, or after three hours."""

    run_id = serializers.UUIDField()
    feedback_key = serializers.CharField(max_length=KEY_LENGTH)
    expires_in = LifetimeSerializer(required=False, allow_null=True)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)
    feedback_config = StorableJSONField(required=False, allow_null=True)
    id = serializers.UUIDField(required=False, allow_null=True)

    def token_request(self, fields: dict[str, Any], now: datetime) -> TokenRequest:
        expires_at, lifetime = fields.get("expires_at"), fields.get("expires_in")
        if expires_at is None:
            expires_at = now + (
                timedelta(**lifetime) if lifetime and any(lifetime.values()) else DEFAULT_LIFETIME
            )
        config = fields.get("feedback_config")
        return TokenRequest(
            run_id=fields["run_id"],
            key=fields["feedback_key"],
            expires_at=min(as_utc(expires_at), now + MAX_LIFETIME),
            config=None if config is None else parse_config(config),
            id=fields.get("id"),
        )


class TokenListSerializer(FeedbackPageSerializer):
    run_id = serializers.UUIDField()


class TokensView(WorkspaceAPIView):
    required_permission = Permission.FEEDBACK_WRITE

    @extend_schema(parameters=[TokenListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """Return the tokens of a run, oldest first."""
        query = TokenListSerializer(data=query_params(request))
        query.is_valid(raise_exception=True)
        rows = FeedbackToken.objects.for_workspace(self.workspace_id)
        rows = rows.filter(run_id=query.validated_data["run_id"]).order_by("created_at", "pk")
        return Response([_token_json(item) for item in rows[query.page]])

    @extend_schema(request=TokenSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Issue one token, or a list of tokens if the body is a list."""
        is_list = isinstance(request.data, list)
        items: Any = request.data if is_list else [request.data]
        if len(items) > MAX_TOKENS:
            raise core_errors.Invalid(f"A request can issue at most {MAX_TOKENS} tokens.")
        body = TokenSerializer(data=items, many=True)
        body.is_valid(raise_exception=True)
        serializer, now = TokenSerializer(), timezone.now()
        requests = [serializer.token_request(fields, now) for fields in body.validated_data]
        issued = services.issue_tokens(self.workspace_id, requests)
        tokens = [_token_json(row) for row in issued]
        return Response(tokens if is_list else tokens[0])


def _token_json(row: FeedbackToken) -> dict[str, Any]:
    return {
        "id": row.pk,
        "url": token_url(row),
        "expires_at": row.expires_at,
        "feedback_key": row.key,
    }


class TokenView(OpenAPIView):
    """Accepts feedback from a browser that holds a token; the page may be of any origin."""

    @extend_schema(responses=dict)
    def get(self, request: Request, token: UUID) -> Response:
        """Accept feedback in the query string, so that a link or an image can send it."""
        return self._redeem(token, _encode_query(request.query_params.dict()))

    @extend_schema(request=request_schema(TokenFeedback), responses=dict)
    def post(self, request: Request, token: UUID) -> Response:
        return self._redeem(token, request.body)

    @extend_schema(exclude=True)
    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        return Response(status=204)

    def _redeem(self, token: UUID, body: bytes) -> Response:
        row = services.find_valid_token(token)
        services.redeem(row, decode_token_feedback(body))
        return Response({"message": "Feedback received."})

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        # The token alone authorizes the request, without cookies, so any origin is allowed.
        response = super().finalize_response(request, response, *args, **kwargs)
        response["Access-Control-Allow-Origin"] = "*"
        response["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS"
        requested = request.headers.get("Access-Control-Request-Headers", "Content-Type")
        response["Access-Control-Allow-Headers"] = requested if requested.isprintable() else "*"
        response["Access-Control-Max-Age"] = "86400"
        response["Vary"] = "Access-Control-Request-Headers"
        response["Cache-Control"] = "no-store"
        return response


def _encode_query(parameters: dict[str, Any]) -> bytes:
    """Encode query parameters as a JSON body; a value that is not JSON becomes a string."""
    fields: dict[str, Any] = {name: text for name, text in parameters.items() if text != ""}
    for name in ("score", "extend_trace_retention", *_JSON_PARAMETERS):
        if name in fields:
            fields[name] = _parse_value(fields[name])
    return dumps(fields)


def _parse_value(text: str) -> Any:
    try:
        return orjson.loads(text.lower() if text in {"True", "False"} else text)
    except ValueError:
        return text


routes = [
    path("feedback/tokens", TokensView.as_view(), name="feedback-token-list"),
    path("feedback/tokens/<uuid:token>", TokenView.as_view(), name="feedback-token-redeem"),
]
