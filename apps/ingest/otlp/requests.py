"""From spans to the one list of operations that every wire brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.ingest.decoders import Placing, Refused, Request, Said
from apps.ingest.operations import Operation
from apps.ingest.otlp import ids, rules
from apps.ingest.otlp.mapping import run_of, uuid_of
from apps.ingest.otlp.placing import Node, Project, place
from apps.ingest.otlp.spans import Decoded, Span
from apps.ingest.wire import Refusal, WireRun
from apps.trace_store.store import partitions
from apps.tracing.models import DEFAULT_PROJECT

_LOGFIRE_KIND = "logfire.span_type"


def request_of(decoded: Decoded, *, project: str | None) -> Request:
    """The request of these spans; `project` is for those that name none themselves."""
    request = Request()
    forest = _Forest()
    latest = partitions.latest_placement()
    for span in decoded.spans:
        name = f"span {span.span_id.hex()}"
        try:
            _check(span)
            if span.attributes.get(_LOGFIRE_KIND) == "pending_span":
                continue  # says that a span began, in the clothes of one
            if ids.moment(span.start_ns or span.end_ns) > latest:
                raise Refusal("The span starts in the future.")
            run = run_of(span)
            _belong(run, span, project)
            if not _placed_by_sdk(run, span.attributes):
                forest.add(run, span)
        except Refusal as refusal:
            request.refused.append(Refused(name, refusal))
        else:
            request.operations.append(Said(False, run, where=name))
    request.refused += [Refused("span", Refusal(decoded.reason)) for _ in range(decoded.unread)]
    if forest.nodes:
        request.placing = forest.placing
    return request


def _check(span: Span) -> None:
    if len(span.trace_id) != ids.TRACE_ID or not any(span.trace_id):
        raise Refusal("The trace id is not sixteen bytes.")
    if len(span.span_id) != ids.SPAN_ID or not any(span.span_id):
        raise Refusal("The span id is not eight bytes.")
    if span.parent_span_id and len(span.parent_span_id) != ids.SPAN_ID:
        raise Refusal("The parent's span id is not eight bytes.")
    if span.start_ns <= 0 and span.end_ns <= 0:
        raise Refusal("The span has no start time.")


def _belong(run: WireRun, span: Span, project: str | None) -> None:
    """The span's own word, its resource's, the request's, and at last that of other products."""
    attributes, resource = span.attributes, span.origin.resource
    for name in rules.PROJECT_ID:
        if (found := uuid_of(attributes.get(name))) is not None:
            run.session_id = found
            return
    for value in (
        *(attributes.get(name) for name in rules.PROJECT),
        resource.get(rules.RESOURCE_PROJECT),
        project,
        resource.get(rules.RESOURCE_PROJECT_OF_OTHERS),
    ):
        if isinstance(value, str) and value:
            run.session_name = value
            return
    run.session_name = DEFAULT_PROJECT


def _placed_by_sdk(run: WireRun, attributes: dict[str, Any]) -> bool:
    """Whether the span brings its run's ids and place along, as SDKs write them."""
    dotted_order = attributes.get(rules.DOTTED_ORDER)
    run_id = uuid_of(attributes.get(rules.RUN_ID))
    if not isinstance(dotted_order, str) or run_id is None:
        return False
    run.id, run.dotted_order = run_id, dotted_order
    run.trace_id = uuid_of(attributes.get(rules.TRACE_ID))
    run.parent_run_id = uuid_of(attributes.get(rules.PARENT_ID))
    return True


@dataclass(slots=True)
class _Forest:
    """The spans of a request that are to be placed, by the runs made of them."""

    nodes: dict[int, Node] = field(default_factory=dict)

    def add(self, run: WireRun, span: Span) -> None:
        node = node_of(span)
        run.id = node.key
        self.nodes[id(run)] = node

    def placing(self, workspace_id: UUID, operations: Sequence[Operation]) -> Placing:
        """What places those of the operations that are spans of the forest."""
        found = []
        for operation in operations:
            node = self.nodes.get(id(operation.run))
            if node is not None:
                node.operation = operation
                found.append(node)

        def placed(project_of: Project) -> None:
            if found:
                place(workspace_id, found, project_of)

        return placed


def node_of(span: Span) -> Node:
    attributes = span.attributes
    is_sdk = span.origin.is_sdk
    is_root = _is_root(span, attributes)
    traced_by_js = attributes.get(rules.IS_TRACEABLE) in {"true", True}
    root_run_id = ids.padded_uuid(span.span_id) if traced_by_js else ids.trace_uuid(span.trace_id)
    return Node(
        span.trace_id,
        span.span_id,
        b"" if is_root else _parent(span, attributes),
        ids.moment(span.start_ns or span.end_ns),
        ids.moment(span.end_ns) if span.end_ns else None,
        is_root,
        root_run_id,
        is_sdk,
    )


def _is_root(span: Span, attributes: dict[str, Any]) -> bool:
    parent = span.parent_span_id
    if not parent or not any(parent) or attributes.get(rules.IS_ROOT) is True:
        return True
    # The SDK's exporter hangs a root below a span that never was: the beginning of the run's id.
    return span.origin.is_sdk and parent == span.trace_id[: ids.SPAN_ID]


def _parent(span: Span, attributes: dict[str, Any]) -> bytes:
    """The parent, or the next above that an SDK names where it leaves spans out between."""
    named = attributes.get(rules.PARENT_SPAN)
    if isinstance(named, str):
        try:
            found = bytes.fromhex(named)
        except ValueError:
            found = b""
        if len(found) == ids.SPAN_ID:
            return found
    run_id = uuid_of(attributes.get(rules.PARENT_ID))
    padded = None if run_id is None else ids.padded_span_id(run_id)
    return padded or span.parent_span_id
