"""OTLP in JSON: hexadecimal ids, 64-bit integers as texts, enums as numbers or by name."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from apps.ingest.errors import BadBody
from apps.ingest.otlp.spans import Decoded, Event, Link, Origin, Span
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


class Pair(Struct):
    key: str = ""
    value: AnyValue | None = None


class Pairs(Struct):
    values: list[Pair] | None = None


class _Event(Struct):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[Pair] | None = None


class _Link(Struct):
    trace_id: str = ""
    span_id: str = ""
    trace_state: str | None = None
    attributes: list[Pair] | None = None


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
    attributes: list[Pair] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None
    dropped_attributes_count: int | str | None = None
    dropped_events_count: int | str | None = None
    dropped_links_count: int | str | None = None


class Scope(Struct):
    name: str | None = None
    version: str | None = None
    attributes: list[Pair] | None = None


class _ScopeSpans(Struct):
    scope: Scope | None = None
    spans: list[msgspec.Raw] | None = None
    schema_url: str | None = None


class Resource(Struct):
    attributes: list[Pair] | None = None


class _ResourceSpans(Struct):
    resource: Resource | None = None
    scope_spans: list[_ScopeSpans] | None = None
    schema_url: str | None = None


class _Request(Struct):
    resource_spans: list[_ResourceSpans] | None = None


_requests = msgspec.json.Decoder(_Request)
_spans = msgspec.json.Decoder(_Span)
_KINDS = {
    f"SPAN_KIND_{name}": number
    for number, name in enumerate(
        ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
    )
}
_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_TRACE_ID, _SPAN_ID = 16, 8


def decode(body: bytes) -> Decoded:
    """The spans in the body; one that cannot be read does not stop the others."""
    request = _envelope(body)
    found = Decoded()
    for resource_spans in request.resource_spans or ():
        for scope_spans in resource_spans.scope_spans or ():
            origin = _origin(resource_spans, scope_spans)
            for raw in scope_spans.spans or ():
                try:
                    found.spans.append(_span(_spans.decode(raw), origin))
                except (ValueError, RecursionError) as error:
                    found.refuse(f"A span cannot be read: {error}")
    return found


def _envelope(body: bytes) -> _Request:
    try:
        return strict_or_repaired(body, _requests)
    except (ValueError, RecursionError) as error:
        raise BadBody(f"The body is no OTLP in JSON: {error}") from None


def strict_or_repaired(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """What the decoder makes of the body, or of what strict JSON would be in its place."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = repair(body)
    return decoder.decode(body)


def _origin(resource_spans: _ResourceSpans, scope_spans: _ScopeSpans) -> Origin:
    resource, scope = resource_spans.resource, scope_spans.scope or Scope()
    try:
        return Origin(
            attributes_of(resource.attributes if resource else None),
            scope.name or "",
            scope.version or "",
            attributes_of(scope.attributes),
            scope_spans.schema_url or resource_spans.schema_url or "",
        )
    except (ValueError, RecursionError) as error:
        raise BadBody(f"A resource or scope cannot be read: {error}") from None


def _span(span: _Span, origin: Origin) -> Span:
    status = span.status or _Status()
    return Span(
        origin,
        _id(span.trace_id, _TRACE_ID),
        _id(span.span_id, _SPAN_ID),
        _id(span.parent_span_id or "", _SPAN_ID),
        span.name or "",
        number(span.start_time_unix_nano),
        number(span.end_time_unix_nano),
        attributes_of(span.attributes),
        [
            Event(one.name, number(one.time_unix_nano), attributes_of(one.attributes))
            for one in span.events or ()
        ],
        [
            Link(
                _id(one.trace_id, _TRACE_ID),
                _id(one.span_id, _SPAN_ID),
                attributes_of(one.attributes),
                one.trace_state or "",
            )
            for one in span.links or ()
        ],
        _enum(span.kind, _KINDS),
        _enum(status.code, _CODES),
        status.message or "",
        span.trace_state or "",
        (
            number(span.dropped_attributes_count),
            number(span.dropped_events_count),
            number(span.dropped_links_count),
        ),
    )


def attributes_of(pairs: list[Pair] | None) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs or ()}


def _value(value: AnyValue | None) -> Any:
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.bool_value is not None:
        return value.bool_value
    if value.int_value is not None:
        return number(value.int_value)
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_value(one) for one in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return attributes_of(value.kvlist_value.values)
    return value.bytes_value


def _id(text: str, length: int) -> bytes:
    """An id in hexadecimal, or in base64 as plain protobuf libraries write it."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        try:
            found = base64.b64decode(text, validate=True)
        except binascii.Error:
            found = b"?"
    if found and len(found) != length:
        raise ValueError(f"{text[:40]!r} is no id of {length} bytes")
    return found


def number(value: int | str | None) -> int:
    number = int(value or 0)
    if not -(2**63) <= number < 2**64:
        raise ValueError("a number needs more than 64 bits")
    return number


def _enum(value: int | str | None, names: dict[str, int]) -> int:
    if isinstance(value, str) and value in names:
        return names[value]
    return number(value)
