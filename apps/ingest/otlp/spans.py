"""Spans, independent of their encoding, and the run ids that follow from their ids.

Run ids are deterministic: a span that is sent again updates the same run.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec

SDK_SCOPES = frozenset({"langsmith", "langsmith-js"})
"""Instrumentation scopes of the SDK exporters that send runs as spans."""

Attributes = Mapping[str, Any]


def bytes_to_text(value: bytes) -> str:
    """A bytes attribute as text: a JSON document as it is, anything else in base64.

    OTLP's JSON encoding has base64 for bytes. The exporter of `langsmith` up to 0.11 sends inputs
    and outputs as bytes that are JSON.
    """
    if value[:1] in {b"{", b"["}:
        try:
            msgspec.json.decode(value, type=msgspec.Raw)
            return value.decode()
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return base64.b64encode(value).decode()


ERROR, OK = 2, 1


@dataclass(slots=True)
class SpanSource:
    """The resource and instrumentation scope of a group of spans."""

    resource: Attributes
    scope_name: str = ""
    scope_version: str = ""
    scope_attributes: Attributes = field(default_factory=dict)
    schema_url: str = ""
    encoded: tuple[msgspec.Raw, msgspec.Raw] | None = None
    """Resource and scope as JSON, encoded once for all spans."""

    @property
    def is_sdk(self) -> bool:
        return self.scope_name in SDK_SCOPES


@dataclass(slots=True)
class SpanEvent:
    name: str
    time_ns: int
    attributes: Attributes


@dataclass(slots=True)
class SpanLink:
    trace_id: bytes
    span_id: bytes
    attributes: Attributes
    trace_state: str = ""


@dataclass(slots=True)
class Span:
    source: SpanSource
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[SpanEvent]
    links: list[SpanLink]
    kind: int = 0
    status_code: int = 0
    status_message: str = ""
    trace_state: str = ""
    dropped: tuple[int, int, int] = (0, 0, 0)
    """Counts of dropped attributes, events and links."""


@dataclass(slots=True)
class DecodedSpans:
    """The spans of a request, and the name and reason of each undecodable span."""

    spans: list[Span] = field(default_factory=list)
    undecodable: list[tuple[str, str]] = field(default_factory=list)

    def reject(self, reason: str, label: str = "span") -> None:
        self.undecodable.append((label, reason))


# -- ids and times -----------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8


def trace_run_id(trace_id: bytes) -> UUID:
    """The run id of the trace and of its root: the same sixteen bytes."""
    return UUID(bytes=trace_id)


def span_run_id(trace_id: bytes, span_id: bytes) -> UUID:
    """The run id of a span below the root: a UUIDv8 derived from the ids of trace and span."""
    digest = int.from_bytes(blake2b(trace_id + span_id, digest_size=16).digest())
    return UUID(int=digest & ~(0xF << 76) & ~(0b11 << 62) | 0x8 << 76 | 0b10 << 62)


def span_label(span_id: bytes) -> str:
    """The name of a span in error messages."""
    return f"span {span_id.hex()}"


def padded_run_id(span_id: bytes) -> UUID:
    """The run id that the JavaScript SDK uses for runs traced only by OpenTelemetry."""
    return UUID(bytes=bytes(8) + span_id)


def padded_span_id(run_id: UUID) -> bytes | None:
    """The inverse of `padded_run_id`; None for other ids."""
    return run_id.bytes[8:] if run_id.int >> 64 == 0 else None


def to_datetime(nanoseconds: int) -> datetime:
    """Convert a time since 1970, rounded to microseconds as exporters use floating point."""
    return _EPOCH + timedelta(microseconds=(nanoseconds + 500) // 1000)
