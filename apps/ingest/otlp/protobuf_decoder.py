"""Decodes OTLP in protobuf."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as wire

from apps.ingest.errors import BadBody
from apps.ingest.otlp.invalid_text import iterate_messages, repair_text
from apps.ingest.otlp.spans import (
    DecodedSpans,
    Span,
    SpanEvent,
    SpanLink,
    SpanSource,
    bytes_to_text,
    span_label,
)

_SPAN_PATH = (1, 2, 2)
"""Field numbers of `resource_spans`, `scope_spans` and `spans`."""


def decode(body: bytes) -> DecodedSpans:
    """Decode an `ExportTraceServiceRequest`. Raises `BadBody` if it is malformed.

    A span with a string that is not UTF-8 does not stop the others.
    """
    request, is_valid = parse(body, ExportTraceServiceRequest)
    decoded = _convert_request(request)
    if not is_valid:
        decoded = _without_invalid_text(decoded, body)
    return decoded


def parse(body: bytes, message_type: Any) -> tuple[Any, bool]:
    """Parse a message, if need be with U+FFFD for invalid UTF-8; return whether it was valid.

    Raises `BadBody` if the body is malformed.
    """
    with suppress(DecodeError, RecursionError):
        return message_type.FromString(body), True
    try:
        return message_type.FromString(repair_text(body, message_type.DESCRIPTOR)), False
    except (DecodeError, RecursionError):
        name = message_type.DESCRIPTOR.name
        raise BadBody(f"The body is not an {name} in protobuf.") from None


def _without_invalid_text(decoded: DecodedSpans, body: bytes) -> DecodedSpans:
    """Reject the spans whose own strings are not UTF-8; those of resources stay repaired."""
    valid = DecodedSpans()
    for span, raw in zip(decoded.spans, iterate_messages(body, *_SPAN_PATH), strict=True):
        try:
            wire.Span.FromString(raw)
        except DecodeError:
            valid.reject("A string of the span is not UTF-8.", span_label(span.span_id))
        else:
            valid.spans.append(span)
    return valid


def _convert_request(request: Any) -> DecodedSpans:
    decoded = DecodedSpans()
    for resource_spans in request.resource_spans:
        resource = convert_attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope
            source = SpanSource(
                resource,
                scope.name,
                scope.version,
                convert_attributes(scope.attributes),
                scope_spans.schema_url or resource_spans.schema_url,
            )
            decoded.spans += [_convert_span(span, source) for span in scope_spans.spans]
    return decoded


def _convert_span(span: wire.Span, source: SpanSource) -> Span:
    status = span.status
    return Span(
        source,
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        convert_attributes(span.attributes),
        [
            SpanEvent(event.name, event.time_unix_nano, convert_attributes(event.attributes))
            for event in span.events
        ],
        [
            SpanLink(
                link.trace_id, link.span_id, convert_attributes(link.attributes), link.trace_state
            )
            for link in span.links
        ],
        span.kind,
        status.code,
        status.message,
        span.trace_state,
        (span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count),
    )


def convert_attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in pairs:
        value = pair.value
        # Nearly every value is a string, and reading it is cheaper than `WhichOneof`.
        attributes[pair.key] = value.string_value or _convert_value(value)
    return attributes


def _convert_value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_convert_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return convert_attributes(value.kvlist_value.values)
        case "bytes_value":
            return bytes_to_text(value.bytes_value)
        case kind:
            return getattr(value, kind)
