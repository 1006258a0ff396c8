"""Builds an ingest request from spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from apps.ingest.decoders import IngestRequest, ProjectOf
from apps.ingest.operations import RejectedItem, RunOperation, WireRun
from apps.ingest.otlp import litellm, rules
from apps.ingest.otlp.attributes import parse_uuid
from apps.ingest.otlp.run_mapping import map_span
from apps.ingest.otlp.spans import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    DecodedSpans,
    Span,
    padded_run_id,
    padded_span_id,
    span_label,
    to_datetime,
    trace_run_id,
)
from apps.ingest.otlp.trace_assembly import SpanNode, place_spans
from apps.ingest.token_usage.vocabulary import find_unread_attributes
from apps.trace_store.dotted_order import latest_start_time
from apps.tracing.models import DEFAULT_PROJECT

_LOGFIRE_SPAN_TYPE = "logfire.span_type"


def build_request(decoded: DecodedSpans, *, project: str | None) -> IngestRequest:
    """Map the spans to operations; `project` is the default for spans that name none."""
    request = IngestRequest(protocol="otlp")
    assembler = BatchAssembler()
    latest_start = latest_start_time()
    for span in decoded.spans:
        label = span_label(span.span_id)
        try:
            _validate(span)
            if span.attributes.get(_LOGFIRE_SPAN_TYPE) == "pending_span":
                continue  # Logfire announces a started span; the finished span follows.
            if to_datetime(span.start_ns or span.end_ns) > latest_start:
                raise RejectedItem("The span starts in the future.")
            repeats_call = litellm.rewrite_raw_request(span)
            has_calls_below = litellm.complete_call(span)
            run = map_span(span)
            if has_calls_below and run.run_type == "llm":
                run.run_type = "chain"
            _set_project(run, span, project)
            operation = RunOperation(False, run, location=label)
            operation.unread_usage = find_unread_attributes(span.attributes)
            if not _take_sdk_position(run, span.attributes):
                assembler.add(operation, span, repeats_call=repeats_call)
        except RejectedItem as error:
            request.reject(label, error)
        except (RecursionError, orjson.JSONEncodeError):
            request.reject(label, RejectedItem("The span is nested too deeply.", "too_deep"))
        else:
            request.operations.append(operation)
    for label, reason in decoded.undecodable:
        request.reject(label, RejectedItem(reason))
    if assembler.nodes:
        request.assembler = assembler
    return request


def _validate(span: Span) -> None:
    if len(span.trace_id) != TRACE_ID_BYTES or not any(span.trace_id):
        raise RejectedItem("The trace id must have 16 bytes and must not be zero.")
    if len(span.span_id) != SPAN_ID_BYTES or not any(span.span_id):
        raise RejectedItem("The span id must have 8 bytes and must not be zero.")
    if span.parent_span_id and len(span.parent_span_id) != SPAN_ID_BYTES:
        raise RejectedItem("The parent span id must have 8 bytes.")
    if span.start_ns <= 0 and span.end_ns <= 0:
        raise RejectedItem("The span has no start time.")


def _set_project(run: WireRun, span: Span, project: str | None) -> None:
    """Set the project from the span, resource, request or OpenInference resource, in this order."""
    attributes, resource = span.attributes, span.source.resource
    for name in rules.PROJECT_ID:
        if (project_id := parse_uuid(attributes.get(name))) is not None:
            run.session_id = project_id
            return
    for value in (
        *(attributes.get(name) for name in rules.PROJECT),
        resource.get(rules.RESOURCE_PROJECT),
        project,
        resource.get(rules.OPENINFERENCE_RESOURCE_PROJECT),
    ):
        if isinstance(value, str) and value:
            run.session_name = value
            return
    run.session_name = DEFAULT_PROJECT


def _take_sdk_position(run: WireRun, attributes: dict[str, Any]) -> bool:
    """Take the ids and the dotted order that SDKs put in attributes; False without them."""
    dotted_order = attributes.get(rules.DOTTED_ORDER)
    run_id = parse_uuid(attributes.get(rules.RUN_ID))
    if not isinstance(dotted_order, str) or run_id is None:
        return False
    run.id, run.dotted_order = run_id, dotted_order
    run.trace_id = parse_uuid(attributes.get(rules.TRACE_ID))
    run.parent_run_id = parse_uuid(attributes.get(rules.PARENT_ID))
    return True


@dataclass(slots=True)
class BatchAssembler:
    """The spans of a request whose positions depend on other spans."""

    nodes: dict[int, SpanNode] = field(default_factory=dict)
    """Nodes by `id()` of their operation."""

    def add(self, operation: RunOperation, span: Span, *, repeats_call: bool = False) -> None:
        node = build_node(operation, span)
        node.repeats_call = repeats_call
        operation.run.id = node.key
        self.nodes[id(operation)] = node

    def assign_positions(
        self, workspace_id: UUID, operations: Sequence[RunOperation], project_of: ProjectOf
    ) -> None:
        """Assign run ids and positions to the operations that are spans of this batch."""
        nodes = [
            node for operation in operations if (node := self.nodes.get(id(operation))) is not None
        ]
        if nodes:
            place_spans(workspace_id, nodes, project_of)


def build_node(operation: RunOperation, span: Span) -> SpanNode:
    attributes = span.attributes
    is_root = _is_root(span, attributes)
    traced_by_js = attributes.get(rules.IS_TRACEABLE) in {"true", True}
    return SpanNode(
        operation,
        span.trace_id,
        span.span_id,
        b"" if is_root else _parent_span_id(span, attributes),
        to_datetime(span.start_ns or span.end_ns),
        to_datetime(span.end_ns) if span.end_ns else None,
        is_root,
        padded_run_id(span.span_id) if traced_by_js else trace_run_id(span.trace_id),
        span.source.is_sdk,
    )


def _is_root(span: Span, attributes: dict[str, Any]) -> bool:
    parent = span.parent_span_id
    if not parent or not any(parent) or attributes.get(rules.IS_ROOT) is True:
        return True
    # The SDK exporter gives a root a parent that is never sent: the first half of the run id.
    return span.source.is_sdk and parent == span.trace_id[:SPAN_ID_BYTES]


def _parent_span_id(span: Span, attributes: dict[str, Any]) -> bytes:
    """The parent, or the nearest exported ancestor if an SDK omits the spans in between."""
    ancestor = attributes.get(rules.PARENT_SPAN)
    if isinstance(ancestor, str):
        try:
            span_id = bytes.fromhex(ancestor)
        except ValueError:
            span_id = b""
        if len(span_id) == SPAN_ID_BYTES:
            return span_id
    run_id = parse_uuid(attributes.get(rules.PARENT_ID))
    padded = None if run_id is None else padded_span_id(run_id)
    return padded or span.parent_span_id
