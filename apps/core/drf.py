"""Classes that Django REST framework imports by the names in its settings.

The framework loads this module while it loads its views, so nothing here may import a view.
"""

from __future__ import annotations

from typing import IO, Any

from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from apps.core import errors
from apps.core.json import MAX_DEPTH, dumps, is_too_deep, loads, storable_value


class JSONRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        return b"" if data is None and _is_empty(renderer_context) else dumps(data)


def _is_empty(renderer_context: Any) -> bool:
    return bool(renderer_context) and renderer_context["response"].status_code == 204


class JSONParser(BaseParser):
    """Parses JSON under any content type: some clients send none."""

    media_type = "*/*"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> Any:
        body = stream.read()
        if not body:
            return {}
        try:
            value = loads(body)
        except ValueError as error:
            raise errors.Invalid(f"Invalid JSON in request body: {error}") from None
        if is_too_deep(value, body):
            raise errors.Invalid(f"JSON nested deeper than {MAX_DEPTH} levels in request body")
        return value


class StorableJSONField(serializers.JSONField):
    """JSON that `jsonb` accepts; with `binary`, as text in a query string."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            return storable_value(super().to_internal_value(data))
        except (ValueError, RecursionError):
            self.fail("invalid")


class DenyByDefault(BasePermission):
    """Refuses a view that declares no permission."""

    def has_permission(self, request: Request, view: object) -> bool:
        raise RuntimeError(f"{type(view).__name__} declares no permission.")
