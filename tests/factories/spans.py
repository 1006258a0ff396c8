"""Spans as exporters send them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

TRACE = bytes.fromhex("5b8efff798038103d269b633813fc60c")
SECOND = 1_000_000_000
BEGIN = (int(datetime.now(UTC).timestamp()) - 600) * SECOND
"""Ten minutes ago."""


def value(content: Any) -> AnyValue:
    match content:
        case bool():
            return AnyValue(bool_value=content)
        case int():
            return AnyValue(int_value=content)
        case float():
            return AnyValue(double_value=content)
        case list():
            return AnyValue(array_value=ArrayValue(values=[value(item) for item in content]))
        case dict():
            return AnyValue(kvlist_value=KeyValueList(values=encode_attributes(content)))
        case bytes():
            return AnyValue(bytes_value=content)
        case None:
            return AnyValue()
    return AnyValue(string_value=content)


def encode_attributes(values: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value(content)) for key, content in values.items()]


def span_id(number: int) -> bytes:
    return number.to_bytes(8)


def span(
    number: int = 1,
    parent: int = 0,
    *,
    trace: bytes = TRACE,
    at: float = 0,
    seconds: float = 1,
    name: str = "step",
    attributes: dict[str, Any] | None = None,
    error: str | None = None,
    **fields: Any,
) -> Span:
    """A finished span; `at` is its start and `seconds` its duration, both in seconds."""
    begin = BEGIN + int(at * SECOND)
    status = Status(code=Status.STATUS_CODE_ERROR, message=error) if error is not None else None
    return Span(
        **{
            "trace_id": trace,
            "span_id": span_id(number),
            "parent_span_id": span_id(parent) if parent else b"",
            "name": name,
            "kind": Span.SPAN_KIND_INTERNAL,
            "start_time_unix_nano": begin,
            "end_time_unix_nano": begin + int(seconds * SECOND),
            "attributes": encode_attributes(attributes or {}),
            "status": status,
        }
        | fields
    )


def event(name: str, attributes: dict[str, Any] | None = None, *, at: float = 0.5) -> Span.Event:
    time = BEGIN + int(at * SECOND)
    return Span.Event(
        name=name, time_unix_nano=time, attributes=encode_attributes(attributes or {})
    )


def export(
    *spans: Span,
    resource: dict[str, Any] | None = None,
    scope: str = "tests",
    project: str | None = None,
) -> ExportTraceServiceRequest:
    """Return a request as an exporter sends it."""
    resource_fields = {"service.name": "shop", **(resource or {})}
    if project is not None:
        resource_fields["langsmith.project.name"] = project
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=encode_attributes(resource_fields)),
                scope_spans=[
                    ScopeSpans(scope=InstrumentationScope(name=scope, version="1"), spans=spans)
                ],
            )
        ]
    )
