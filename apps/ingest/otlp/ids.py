"""Ids of runs from ids of spans: the same span is the same run, however often it comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TRACE_ID, SPAN_ID = 16, 8


def trace_uuid(trace_id: bytes) -> UUID:
    """The trace's, and by that its root's: the same sixteen bytes."""
    return UUID(bytes=trace_id)


def span_uuid(trace_id: bytes, span_id: bytes) -> UUID:
    """That of a span below the root: a UUIDv8 of both ids."""
    digest = int.from_bytes(blake2b(trace_id + span_id, digest_size=16).digest())
    return UUID(int=digest & ~(0xF << 76) & ~(0b11 << 62) | 0x8 << 76 | 0b10 << 62)


def padded_uuid(span_id: bytes) -> UUID:
    """As the JavaScript SDK names runs that it traces by OpenTelemetry alone."""
    return UUID(bytes=bytes(8) + span_id)


def padded_span_id(run_id: UUID) -> bytes | None:
    """The span in an id that `padded_uuid` made."""
    return run_id.bytes[8:] if run_id.int >> 64 == 0 else None


def moment(nanoseconds: int) -> datetime:
    """The time in whole microseconds, rounded: exporters come from floating point."""
    return _EPOCH + timedelta(microseconds=(nanoseconds + 500) // 1000)
