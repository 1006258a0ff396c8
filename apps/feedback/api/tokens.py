"""Feedback by those who hold no key: tokens are issued here, and redeemed from any browser."""

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
from apps.core.json import dumps
from apps.feedback.api.queries import PageSerializer, query_params
from apps.feedback.api.views import schema_of
from apps.feedback.models import KEY_LENGTH, FeedbackToken
from apps.feedback.services import tokens as services
from apps.feedback.services.configs import read_config
from apps.feedback.services.tokens import LIFE, Wanted, address_of
from apps.feedback.wire import WireAnswer, decode_answer
from apps.ingest.wire import Refusal
from apps.organizations.permissions import Permission
from apps.tracing.api.rendering import as_utc

LONGEST_LIFE = timedelta(days=3660)
MOST_AT_ONCE = 100
_JSON_PARAMETERS = ("correction", "metadata")


class LifeSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField(required=False, default=0, min_value=0, max_value=3660)
    hours = serializers.IntegerField(required=False, default=0, min_value=0, max_value=100_000)
    minutes = serializers.IntegerField(required=False, default=0, min_value=0, max_value=6_000_000)


class TokenSerializer(serializers.Serializer[Any]):
    """A token that is wanted: `expires_in` or `expires_at`, else three hours."""

    run_id = serializers.UUIDField()
    feedback_key = serializers.CharField(max_length=KEY_LENGTH)
    expires_in = LifeSerializer(required=False, allow_null=True)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)
    feedback_config = serializers.JSONField(required=False, allow_null=True)
    id = serializers.UUIDField(required=False, allow_null=True)

    def wanted(self, one: dict[str, Any], now: datetime) -> Wanted:
        expires_at, life = one.get("expires_at"), one.get("expires_in")
        if expires_at is None:
            expires_at = now + (timedelta(**life) if life and any(life.values()) else LIFE)
        config = one.get("feedback_config")
        return Wanted(
            run_id=one["run_id"],
            key=one["feedback_key"],
            expires_at=min(as_utc(expires_at), now + LONGEST_LIFE),
            config=None if config is None else read_config(config),
            id=one.get("id"),
        )


class TokenListSerializer(PageSerializer):
    run_id = serializers.UUIDField()


class TokensView(WorkspaceAPIView):
    required_permission = Permission.FEEDBACK_WRITE

    @extend_schema(parameters=[TokenListSerializer], responses=dict)
    def get(self, request: ApiRequest) -> Response:
        """The tokens of a run, oldest first."""
        query = TokenListSerializer(data=query_params(request))
        query.is_valid(raise_exception=True)
        rows = FeedbackToken.objects.for_workspace(self.workspace_id)
        rows = rows.filter(run_id=query.validated_data["run_id"]).order_by("created_at", "pk")
        return Response([_token_json(one) for one in rows[query.page]])

    @extend_schema(request=TokenSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """One token, or a list of them for a list."""
        many = isinstance(request.data, list)
        said: Any = request.data if many else [request.data]
        if len(said) > MOST_AT_ONCE:
            raise core_errors.Invalid(f"At most {MOST_AT_ONCE} tokens at once.")
        body = TokenSerializer(data=said, many=True)
        body.is_valid(raise_exception=True)
        one, now = TokenSerializer(), timezone.now()
        wanted = [one.wanted(fields, now) for fields in body.validated_data]
        issued = services.issue_tokens(self.workspace_id, wanted)
        shown = [_token_json(row) for row in issued]
        return Response(shown if many else shown[0])


def _token_json(row: FeedbackToken) -> dict[str, Any]:
    return {
        "id": row.pk,
        "url": address_of(row),
        "expires_at": row.expires_at,
        "feedback_key": row.key,
    }


class TokenView(OpenAPIView):
    """Where a browser, of any page, says what its user thinks."""

    @extend_schema(responses=dict)
    def get(self, request: Request, token: UUID) -> Response:
        """For links and images: everything is in the query string."""
        return self._answered(token, _body_of(request.query_params.dict()))

    @extend_schema(request=schema_of(WireAnswer), responses=dict)
    def post(self, request: Request, token: UUID) -> Response:
        return self._answered(token, request.body)

    @extend_schema(exclude=True)
    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        return Response(status=204)

    def _answered(self, token: UUID, body: bytes) -> Response:
        row = services.valid_token(token)
        try:
            services.redeem(row, decode_answer(body))
        except Refusal as refusal:
            raise core_errors.Invalid(str(refusal)) from None
        return Response({"message": "Feedback received."})

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        # No cookie and no key counts here, so any page may send: the token alone is the right.
        response = super().finalize_response(request, response, *args, **kwargs)
        response["Access-Control-Allow-Origin"] = "*"
        response["Access-Control-Allow-Methods"] = "GET, POST, OPTIONS"
        asked = request.headers.get("Access-Control-Request-Headers", "Content-Type")
        response["Access-Control-Allow-Headers"] = asked if asked.isprintable() else "*"
        response["Access-Control-Max-Age"] = "86400"
        response["Vary"] = "Access-Control-Request-Headers"
        response["Cache-Control"] = "no-store"
        return response


def _body_of(parameters: dict[str, Any]) -> bytes:
    """A query string as the body that says the same: JSON where it can be, else text."""
    said: dict[str, Any] = {name: text for name, text in parameters.items() if text != ""}
    for name in ("score", "extend_trace_retention", *_JSON_PARAMETERS):
        if name in said:
            said[name] = _value(said[name])
    return dumps(said)


def _value(text: str) -> Any:
    try:
        return orjson.loads(text.lower() if text in {"True", "False"} else text)
    except ValueError:
        return text


routes = [
    path("feedback/tokens", TokensView.as_view(), name="feedback-token-list"),
    path("feedback/tokens/<uuid:token>", TokenView.as_view(), name="feedback-token-redeem"),
]
