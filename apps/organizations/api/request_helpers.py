"""What the views of this app share: a checked body, a page of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core import errors

M = TypeVar("M", bound=Model)
MOST = 500


class PageSerializer(serializers.Serializer[Any]):
    """The part of a list that is asked for."""

    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=MOST)
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, default=0)


def checked(kind: type[serializers.Serializer[Any]], data: Any) -> dict[str, Any]:
    """The body as the serializer leaves it; else 422."""
    body = kind(data=data)
    body.is_valid(raise_exception=True)
    found: dict[str, Any] = body.validated_data
    return found


def checked_list(kind: type[serializers.Serializer[Any]], data: Any) -> list[dict[str, Any]]:
    """The same for a body that is a list."""
    if not isinstance(data, list) or len(data) > MOST:
        raise errors.Invalid(f"The body has to be a list of at most {MOST}.")
    body = kind(data=data, many=True)
    body.is_valid(raise_exception=True)
    found: list[dict[str, Any]] = list(body.validated_data)
    return found


def asked(request: Request) -> Mapping[str, str]:
    """The query string; empty is the same as absent."""
    return {name: str(value) for name, value in request.query_params.items() if value != ""}


def page(request: Request, rows: QuerySet[M]) -> tuple[list[M], dict[str, str]]:
    """The rows that are asked for, and the header that says how many there are."""
    part = checked(PageSerializer, asked(request))
    begin = part["offset"]
    return list(rows[begin : begin + part["limit"]]), {"X-Pagination-Total": str(rows.count())}


def paged(request: Request, rows: QuerySet[M], shown: Callable[[M], dict[str, Any]]) -> Response:
    """A page of rows as JSON."""
    found, headers = page(request, rows)
    return Response([shown(row) for row in found], headers=headers)
