"""Decodes OTLP in JSON: hexadecimal ids, 64-bit integers as strings, enums by number or name."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from apps.ingest.errors import BadBody
from apps.ingest.otlp.spans import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    DecodedSpans,
    Span,
    SpanEvent,
    SpanLink,
    SpanSource,
    bytes_to_text,
)
from apps.trace_store.json_repair import repair

T = TypeVar("T")


class Struct(msgspec.Struct, rename="camel"):
    pass


class AnyValue(Struct):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: _Array | None = None
    kvlist_value: Pairs | None = None
    bytes_value: str | None = None


class _Array(Struct):
    values: list[AnyValue] | None = None


class KeyValue(Struct):
    key: str = ""
    value: AnyValue | None = None


class Pairs(Struct):
    values: list[KeyValue] | None = None


class _Event(Struct):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[KeyValue] | None = None


class _Link(Struct):
    trace_id: str = ""
    span_id: str = ""
    trace_state: str | None = None
    attributes: list[KeyValue] | None = None


class _Status(Struct):
    code: int | str | None = None
    message: str | None = None


class _Span(Struct):
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str | None = None
    trace_state: str | None = None
    name: str | None = None
    kind: int | str | None = None
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[KeyValue] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None
    dropped_attributes_count: int | str | None = None
    dropped_events_count: int | str | None = None
    dropped_links_count: int | str | None = None


class InstrumentationScope(Struct):
    name: str | None = None
    version: str | None = None
    attributes: list[KeyValue] | None = None


class _ScopeSpans(Struct):
    scope: InstrumentationScope | None = None
    spans: list[msgspec.Raw] | None = None
    schema_url: str | None = None


class ResourceFields(Struct):
    attributes: list[KeyValue] | None = None


class _ResourceSpans(Struct):
    resource: ResourceFields | None = None
    scope_spans: list[_ScopeSpans] | None = None
    schema_url: str | None = None


class _Request(Struct):
    resource_spans: list[_ResourceSpans] | None = None


_request_decoder = msgspec.json.Decoder(_Request)
_span_decoder = msgspec.json.Decoder(_Span)
_KINDS = {
    f"SPAN_KIND_{name}": number
    for number, name in enumerate(
        ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
    )
}
_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}


def decode(body: bytes) -> DecodedSpans:
    """Decode the spans; an undecodable span does not stop the others."""
    request = _decode_request(body)
    decoded = DecodedSpans()
    for resource_spans in request.resource_spans or ():
        for scope_spans in resource_spans.scope_spans or ():
            source = _build_source(resource_spans, scope_spans)
            for raw in scope_spans.spans or ():
                try:
                    decoded.spans.append(_convert_span(_span_decoder.decode(raw), source))
                except (ValueError, RecursionError) as error:
                    decoded.reject(f"A span cannot be decoded: {error}")
    return decoded


def _decode_request(body: bytes) -> _Request:
    try:
        return decode_lenient(body, _request_decoder)
    except (ValueError, RecursionError) as error:
        raise BadBody(f"The body is not OTLP in JSON: {error}") from None


def decode_lenient(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode the body, after repairing it if it is not strict JSON."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = repair(body)
    return decoder.decode(body)


def _build_source(resource_spans: _ResourceSpans, scope_spans: _ScopeSpans) -> SpanSource:
    resource, scope = resource_spans.resource, scope_spans.scope or InstrumentationScope()
    try:
        return SpanSource(
            convert_attributes(resource.attributes if resource else None),
            scope.name or "",
            scope.version or "",
            convert_attributes(scope.attributes),
            scope_spans.schema_url or resource_spans.schema_url or "",
        )
    except (ValueError, RecursionError) as error:
        raise BadBody(f"A resource or scope cannot be decoded: {error}") from None


def _convert_span(span: _Span, source: SpanSource) -> Span:
    status = span.status or _Status()
    return Span(
        source,
        _parse_id(span.trace_id, TRACE_ID_BYTES),
        _parse_id(span.span_id, SPAN_ID_BYTES),
        _parse_id(span.parent_span_id or "", SPAN_ID_BYTES),
        span.name or "",
        parse_int(span.start_time_unix_nano),
        parse_int(span.end_time_unix_nano),
        convert_attributes(span.attributes),
        [
            SpanEvent(
                item.name, parse_int(item.time_unix_nano), convert_attributes(item.attributes)
            )
            for item in span.events or ()
        ],
        [
            SpanLink(
                _parse_id(item.trace_id, TRACE_ID_BYTES),
                _parse_id(item.span_id, SPAN_ID_BYTES),
                convert_attributes(item.attributes),
                item.trace_state or "",
            )
            for item in span.links or ()
        ],
        _parse_enum(span.kind, _KINDS),
        _parse_enum(status.code, _CODES),
        status.message or "",
        span.trace_state or "",
        (
            parse_int(span.dropped_attributes_count),
            parse_int(span.dropped_events_count),
            parse_int(span.dropped_links_count),
        ),
    )


def convert_attributes(pairs: list[KeyValue] | None) -> dict[str, Any]:
    return {pair.key: _convert_value(pair.value) for pair in pairs or ()}


def _convert_value(value: AnyValue | None) -> Any:
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.bool_value is not None:
        return value.bool_value
    if value.int_value is not None:
        return parse_int(value.int_value)
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_convert_value(item) for item in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return convert_attributes(value.kvlist_value.values)
    return _convert_bytes(value.bytes_value)


def _convert_bytes(text: str | None) -> str | None:
    """The bytes that the base64 text encodes, as text; invalid base64 is kept as it is."""
    if text is None:
        return None
    try:
        return bytes_to_text(base64.b64decode(text, validate=True))
    except binascii.Error:
        return text


def _parse_id(text: str, length: int) -> bytes:
    """An id in hexadecimal, or in base64 as generic protobuf libraries write it."""
    try:
        value = bytes.fromhex(text)
    except ValueError:
        try:
            value = base64.b64decode(text, validate=True)
        except binascii.Error:
            value = b"?"
    if value and len(value) != length:
        raise ValueError(f"{text[:40]!r} is not an id of {length} bytes")
    return value


def parse_int(value: int | str | None) -> int:
    number = int(value or 0)
    if not -(2**63) <= number < 2**64:
        raise ValueError("a number needs more than 64 bits")
    return number


def _parse_enum(value: int | str | None, names: dict[str, int]) -> int:
    if isinstance(value, str) and value in names:
        return names[value]
    return parse_int(value)
