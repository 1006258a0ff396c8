"""What the views of this app share: a validate_body body, a page of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core import errors

M = TypeVar("M", bound=Model)
MAX_PAGE_SIZE = 500


class PageSerializer(serializers.Serializer[Any]):
    """The part of a list that is query_params for."""

    limit = serializers.IntegerField(min_value=1, max_value=MAX_PAGE_SIZE, default=MAX_PAGE_SIZE)
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, default=0)


def validate_body(kind: type[serializers.Serializer[Any]], data: Any) -> dict[str, Any]:
    """The body as the serializer leaves it; else 422."""
    body = kind(data=data)
    body.is_valid(raise_exception=True)
    found: dict[str, Any] = body.validated_data
    return found


def validate_list(kind: type[serializers.Serializer[Any]], data: Any) -> list[dict[str, Any]]:
    """The same for a body that is a list."""
    if not isinstance(data, list) or len(data) > MAX_PAGE_SIZE:
        raise errors.Invalid(f"The body has to be a list of at most {MAX_PAGE_SIZE}.")
    body = kind(data=data, many=True)
    body.is_valid(raise_exception=True)
    found: list[dict[str, Any]] = list(body.validated_data)
    return found


def query_params(request: Request) -> Mapping[str, str]:
    """The query string; empty is the same as absent."""
    return {name: str(value) for name, value in request.query_params.items() if value != ""}


def paginate(request: Request, rows: QuerySet[M]) -> tuple[list[M], dict[str, str]]:
    """The rows that are query_params for, and the header that says how many there are."""
    part = validate_body(PageSerializer, query_params(request))
    begin = part["offset"]
    return list(rows[begin : begin + part["limit"]]), {"X-Pagination-Total": str(rows.count())}


def paginated_response(
    request: Request, rows: QuerySet[M], shown: Callable[[M], dict[str, Any]]
) -> Response:
    """A page of rows as JSON."""
    found, headers = paginate(request, rows)
    return Response([shown(row) for row in found], headers=headers)
