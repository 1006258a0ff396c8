"""Request validation and pagination for the API views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core import errors
from apps.core.api import validate

M = TypeVar("M", bound=Model)
MAX_PAGE_SIZE = 500


class OffsetPageSerializer(serializers.Serializer[Any]):
    """Offset pagination."""

    limit = serializers.IntegerField(min_value=1, max_value=MAX_PAGE_SIZE, default=MAX_PAGE_SIZE)
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, default=0)


def validate_list(kind: type[serializers.Serializer[Any]], data: Any) -> list[dict[str, Any]]:
    """Return the validated list body; raises 422."""
    if not isinstance(data, list) or len(data) > MAX_PAGE_SIZE:
        raise errors.Invalid(f"The body must be a list of at most {MAX_PAGE_SIZE} items.")
    body = kind(data=data, many=True)
    body.is_valid(raise_exception=True)
    validated: list[dict[str, Any]] = list(body.validated_data)
    return validated


def query_params(request: Request) -> Mapping[str, str]:
    """Return the query parameters that are not empty."""
    return {name: str(value) for name, value in request.query_params.items() if value != ""}


def paginate(request: Request, rows: QuerySet[M]) -> tuple[list[M], dict[str, str]]:
    """Return the requested rows, and the header with the total count."""
    pagination = validate(OffsetPageSerializer, query_params(request))
    begin = pagination["offset"]
    return list(rows[begin : begin + pagination["limit"]]), {
        "X-Pagination-Total": str(rows.count())
    }


def paginated_response(
    request: Request, rows: QuerySet[M], as_json: Callable[[M], dict[str, Any]]
) -> Response:
    """Respond with a page of rows as JSON."""
    page, headers = paginate(request, rows)
    return Response([as_json(row) for row in page], headers=headers)
