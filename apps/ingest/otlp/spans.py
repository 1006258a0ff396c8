"""A span without its encoding: what both encodings of OTLP are decoded to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

SDK_SCOPES = frozenset({"langsmith", "langsmith-js"})
"""Scopes of the exporters that write runs as spans."""

Attributes = Mapping[str, Any]
ERROR, OK = 2, 1


@dataclass(slots=True)
class Origin:
    """What the spans of one resource and scope share."""

    resource: Attributes
    scope_name: str = ""
    scope_version: str = ""
    scope_attributes: Attributes = field(default_factory=dict)
    schema_url: str = ""
    encoded: tuple[msgspec.Raw, msgspec.Raw] | None = None
    """Resource and scope as JSON, made once for all spans that have them."""

    @property
    def is_sdk(self) -> bool:
        return self.scope_name in SDK_SCOPES


@dataclass(slots=True)
class Event:
    name: str
    time_ns: int
    attributes: Attributes


@dataclass(slots=True)
class Link:
    trace_id: bytes
    span_id: bytes
    attributes: Attributes
    trace_state: str = ""


@dataclass(slots=True)
class Span:
    origin: Origin
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[Event]
    links: list[Link]
    kind: int = 0
    status_code: int = 0
    status_message: str = ""
    trace_state: str = ""
    dropped: tuple[int, int, int] = (0, 0, 0)
    """Attributes, events and links that the exporter left out."""


@dataclass(slots=True)
class Decoded:
    """The spans of a request, and how many of its spans cannot be read, with the first reason."""

    spans: list[Span] = field(default_factory=list)
    unread: int = 0
    reason: str = ""

    def refuse(self, reason: str) -> None:
        self.unread += 1
        self.reason = self.reason or reason
