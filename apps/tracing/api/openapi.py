"""The OpenAPI document of the platform: generated from DRF views, plus the ingest routes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver, path
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import OpenAPIView
from apps.trace_store import Payload, RunType
from apps.tracing.api.v1.runs import RunView
from apps.tracing.api.v1.serializers import SELECTABLE

_JSON = "application/json"
_TEXT = {"type": "string", "nullable": True}
_ID = {"type": "string", "format": "uuid"}
_TIMESTAMP = {
    "oneOf": [{"type": "string", "format": "date-time"}, {"type": "number"}],
    "description": "ISO 8601, without a zone UTC; or a number since 1970, in"
    " seconds, milliseconds, microseconds or nanoseconds, as its magnitude tells.",
}
_OBJECT = {"type": "object", "nullable": True, "additionalProperties": True}
_RUN = {
    "type": "object",
    "additionalProperties": True,
    "properties": {
        "id": _ID,
        "trace_id": _ID,
        "parent_run_id": {**_ID, "nullable": True},
        "dotted_order": {"type": "string"},
        "name": {"type": "string"},
        "run_type": {"type": "string", "enum": [str(kind) for kind in RunType]},
        "start_time": _TIMESTAMP,
        "end_time": {**_TIMESTAMP, "nullable": True},
        "inputs": _OBJECT,
        "outputs": _OBJECT,
        "extra": _OBJECT,
        "error": _TEXT,
        "events": {"type": "array", "items": {"type": "object"}, "nullable": True},
        "tags": {"type": "array", "items": {"type": "string"}, "nullable": True},
        "serialized": _OBJECT,
        "session_name": {"type": "string"},
        "session_id": {**_ID, "nullable": True},
        "reference_example_id": {**_ID, "nullable": True},
    },
}
_ACCEPTED_RESPONSE = {
    "202": {
        "description": "Stored durably. Rejected runs are listed with the reason.",
        "content": {_JSON: {"schema": {"type": "object", "additionalProperties": True}}},
    }
}
_RUN_BODY = {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/IngestRun"}}}}
_LIST = {"type": "array", "items": {"$ref": "#/components/schemas/IngestRun"}}
_OPERATIONS: dict[str, dict[str, Any]] = {
    "/runs": {
        "post": {
            "operationId": "run_create",
            "description": "Create a run. Without an `id`, the server generates one.",
            "requestBody": _RUN_BODY,
            "responses": _ACCEPTED_RESPONSE,
        }
    },
    "/runs/{run_id}": {
        "patch": {
            "operationId": "run_update",
            "description": "Update a run. The update may arrive before the run.",
            "parameters": [{"name": "run_id", "in": "path", "required": True, "schema": _ID}],
            "requestBody": _RUN_BODY,
            "responses": _ACCEPTED_RESPONSE,
        }
    },
    "/runs/batch": {
        "post": {
            "operationId": "run_batch",
            "description": "Creates and updates of many runs.",
            "requestBody": {
                "content": {
                    _JSON: {
                        "schema": {"type": "object", "properties": {"post": _LIST, "patch": _LIST}}
                    }
                }
            },
            "responses": _ACCEPTED_RESPONSE,
        }
    },
    "/runs/multipart": {
        "post": {
            "operationId": "run_multipart",
            "description": (
                "`post.{id}`, `patch.{id}`, `post.{id}.{field}`, `attachment.{id}.{name}` and"
                " `feedback.{id}`, in any order; plain, gzip or zstd. Fields that may have a part"
                f" of their own: {', '.join(Payload)}."
            ),
            "requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object"}}}},
            "responses": _ACCEPTED_RESPONSE,
        }
    },
    "/otel/v1/traces": {
        "post": {
            "operationId": "otlp_traces",
            "description": "Spans as OpenTelemetry exporters send them; plain or gzip.",
            "requestBody": {
                "content": {
                    "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
                    _JSON: {"schema": {"type": "object"}},
                }
            },
            "responses": {"200": {"description": "Stored; rejected spans are counted."}},
        }
    },
}
_KEY_SCHEME = "ApiKey"
# Agent Servers have their own document; `_OPERATIONS` describes part of the `_HAND_WRITTEN` route.
_EXCLUDED_PREFIXES = ("agents/", "admin/")
_HAND_WRITTEN = "run-read-update"


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The OpenAPI security scheme of API keys."""

    target_class = "apps.api_keys.authentication.CallerAuthentication"
    name = _KEY_SCHEME

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "apiKey", "in": "header", "name": "X-Api-Key"}


@cache
def build_document() -> dict[str, Any]:
    """Return the OpenAPI document, built once per process."""
    patterns = [path("runs/<uuid:run_id>", RunView.as_view()), *_described_routes(get_resolver())]
    generator = SchemaGenerator(patterns=patterns)  # type: ignore[no-untyped-call]
    document: dict[str, Any] = generator.get_schema(  # type: ignore[no-untyped-call]
        request=None, public=True
    )
    for route, operations in _OPERATIONS.items():
        document["paths"].setdefault(route, {}).update(operations)
        for operation in operations.values():
            operation["security"] = [{_KEY_SCHEME: []}]
    document["components"]["schemas"]["IngestRun"] = _RUN
    document["info"]["description"] = f"Fields of a run: {', '.join(sorted(SELECTABLE))}."
    return document


def _described_routes(resolver: URLResolver) -> Iterator[URLPattern]:
    for entry in resolver.url_patterns:
        if str(entry.pattern).startswith(_EXCLUDED_PREFIXES):
            continue
        if isinstance(entry, URLResolver):
            yield from _described_routes(entry)
        elif entry.name != _HAND_WRITTEN:
            yield entry


class DocumentView(OpenAPIView):
    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Return OpenAPI 3 of the platform's routes; Agent Servers serve their own documents."""
        return Response(build_document())


routes = [path("openapi.json", DocumentView.as_view(), name="openapi")]
