"""The model price map."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.linear_regex import compile_pattern
from apps.organizations.permissions import Permission
from apps.trace_store.models import ModelPrice
from apps.trace_store.pricing.entries import MATCH_PATHS, PriceEntry
from apps.tracing.services import prices

_DIGITS, _PLACES = 40, 24
_MAX_TOKEN_KINDS = 50


class PriceField(serializers.DecimalField):
    """US dollars per token, as a number or a string."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            max_digits=_DIGITS, decimal_places=_PLACES, min_value=Decimal(0), **options
        )

    def to_internal_value(self, data: Any) -> Decimal:
        # Parse the shortest form of a JSON number such as 1.5e-07, not its binary expansion.
        return super().to_internal_value(str(data) if isinstance(data, float) else data)


class PatternField(serializers.CharField):
    """A regular expression in RE2 syntax."""

    def to_internal_value(self, data: Any) -> str:
        text: str = super().to_internal_value(data)
        try:
            compile_pattern(text)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from None
        return text


class PriceListSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(min_value=1, max_value=2000, default=2000)
    offset = serializers.IntegerField(min_value=0, max_value=10**9, default=0)


class PriceSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=500)
    match_pattern = PatternField(max_length=1000)
    match_path = serializers.ListField(
        child=serializers.ChoiceField([*MATCH_PATHS, "ls_model_name"]), required=False
    )
    provider = serializers.CharField(
        max_length=200, required=False, allow_null=True, allow_blank=True
    )
    start_time = serializers.DateTimeField(required=False, allow_null=True)
    prompt_cost = PriceField()
    completion_cost = PriceField()
    prompt_cost_details = serializers.DictField(child=PriceField(), required=False, allow_null=True)
    completion_cost_details = serializers.DictField(
        child=PriceField(), required=False, allow_null=True
    )

    def validate(self, value: dict[str, Any]) -> dict[str, Any]:
        for name in ("prompt_cost_details", "completion_cost_details"):
            details = value.get(name) or {}
            if len(details) > _MAX_TOKEN_KINDS:
                raise serializers.ValidationError(
                    {name: f"Must have at most {_MAX_TOKEN_KINDS} kinds of tokens."}
                )
            value[name] = {
                kind.replace("\x00", "\ufffd"): _format_price(price)
                for kind, price in details.items()
            }
        value["match_path"] = value.get("match_path") or list(MATCH_PATHS)
        value["provider"] = value.get("provider") or None
        value.setdefault("start_time", None)
        return value


class PricesView(WorkspaceAPIView):
    required_permission = {"GET": Permission.RUNS_READ, "*": Permission.WORKSPACE_MANAGE}

    @extend_schema(parameters=[PriceListSerializer], responses=list[dict[str, Any]])
    def get(self, request: ApiRequest) -> Response:
        """Return the entries in matching order; built-in ones have no `tenant_id`.

        `X-Pagination-Total` is the number of entries.
        """
        params = validate(PriceListSerializer, request.query_params)
        price_entries = prices.list_prices(self.workspace_id)
        page = price_entries[params["offset"] : params["offset"] + params["limit"]]
        total = {"X-Pagination-Total": str(len(price_entries))}
        return Response([price_json(item) for item in page], headers=total)

    @extend_schema(request=PriceSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        created = prices.create_price(
            workspace_id=self.workspace_id, **validate(PriceSerializer, request.data)
        )
        return Response(price_json(created))


class PriceView(WorkspaceAPIView):
    required_permission = Permission.WORKSPACE_MANAGE

    @extend_schema(request=PriceSerializer, responses=dict)
    def put(self, request: ApiRequest, price_id: UUID) -> Response:
        entry = prices.find_price(self.workspace_id, price_id)
        price = prices.replace_price(price=entry, **validate(PriceSerializer, request.data))
        return Response(price_json(price))

    @extend_schema(responses=None)
    def delete(self, request: ApiRequest, price_id: UUID) -> Response:
        prices.delete_price(price=prices.find_price(self.workspace_id, price_id))
        return Response({"message": "deleted"})


def price_json(entry: ModelPrice | PriceEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": entry.name,
        "match_pattern": entry.match_pattern,
        "match_path": list(entry.match_path),
        "provider": entry.provider,
        "start_time": entry.start_time,
        "prompt_cost": _format_price(entry.prompt_cost),
        "completion_cost": _format_price(entry.completion_cost),
        "prompt_cost_details": _format_prices(entry.prompt_cost_details),
        "completion_cost_details": _format_prices(entry.completion_cost_details),
        "tenant_id": entry.workspace_id if isinstance(entry, ModelPrice) else None,
    }


def _format_prices(details: Any) -> dict[str, str]:
    return {kind: _format_price(Decimal(price)) for kind, price in details.items()}


def _format_price(price: Decimal) -> str:
    """Format without exponent and trailing zeros."""
    text = format(price, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


routes = [
    path("model-price-map", PricesView.as_view(), name="price-list"),
    path("model-price-map/<uuid:price_id>", PriceView.as_view(), name="price-detail"),
]
