"""OTLP in protobuf."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as wire

from apps.ingest.errors import BadBody
from apps.ingest.otlp.spans import Decoded, Event, Link, Origin, Span


def decode(body: bytes) -> Decoded:
    """The spans in an `ExportTraceServiceRequest`; `BadBody` when it is none."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except (DecodeError, RecursionError):
        raise BadBody("The body is no ExportTraceServiceRequest in protobuf.") from None
    found = Decoded()
    for resource_spans in request.resource_spans:
        resource = attributes_of(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope
            origin = Origin(
                resource,
                scope.name,
                scope.version,
                attributes_of(scope.attributes),
                scope_spans.schema_url or resource_spans.schema_url,
            )
            found.spans += [_span(span, origin) for span in scope_spans.spans]
    return found


def _span(span: wire.Span, origin: Origin) -> Span:
    status = span.status
    return Span(
        origin,
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        attributes_of(span.attributes),
        [
            Event(event.name, event.time_unix_nano, attributes_of(event.attributes))
            for event in span.events
        ],
        [
            Link(link.trace_id, link.span_id, attributes_of(link.attributes), link.trace_state)
            for link in span.links
        ],
        span.kind,
        status.code,
        status.message,
        span.trace_state,
        (span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count),
    )


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        value = pair.value
        # Nearly every value is a text, and asking which one it is costs more than reading it.
        found[pair.key] = value.string_value or _value(value)
    return found


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_value(one) for one in value.array_value.values]
        case "kvlist_value":
            return attributes_of(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case kind:
            return getattr(value, kind)
