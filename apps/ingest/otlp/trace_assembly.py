"""Assembles traces from spans that arrive leaf first, over many requests.

A span whose parent has not arrived is placed directly below the root. The transaction that stores
the parent moves the span and its subtree below it. Until the root arrives, a placeholder run is the
root. The resulting tree does not depend on the order of arrival.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.ingest.decoders import ProjectOf
from apps.ingest.operations import RunOperation
from apps.ingest.otlp import trace_state
from apps.ingest.otlp.spans import span_run_id, trace_run_id
from apps.ingest.otlp.trace_state import SpanTree, WaitingSpan
from apps.trace_store import StartCriterion, SubtreeMove, run_store
from apps.trace_store.dotted_order import SEGMENT_LENGTH, TreePosition, format_segment

MAX_DEPTH = 1000
"""Deeper runs are placed below the root, because dotted orders grow with each level."""
USAGE_COLUMNS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_cost",
    "completion_cost",
    "total_cost",
    "usage_details",
)
START_TOLERANCE = timedelta(milliseconds=1)
"""JavaScript SDKs put a counter into the digits below milliseconds."""


@dataclass(slots=True)
class SpanNode:
    """A span, its operation and its position according to its ids."""

    operation: RunOperation
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    start: datetime
    end: datetime | None
    is_root: bool
    root_run_id: UUID
    """The run id if the span is the root."""
    is_sdk: bool = False
    repeats_call: bool = False
    """Below a model call, the span is the same call again."""

    trace: UUID = field(init=False)
    key: UUID = field(init=False)
    """The run id if the span is not the root."""
    parent_key: UUID | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.trace = trace_run_id(self.trace_id)
        self.key = span_run_id(self.trace_id, self.span_id)
        if self.parent_span_id and self.parent_span_id != self.span_id:
            self.parent_key = span_run_id(self.trace_id, self.parent_span_id)


@dataclass(slots=True)
class _RelativePosition:
    """The path of a run below an ancestor; an `ancestor` of None is the root."""

    ancestor: UUID | None
    tail: str


def place_spans(workspace_id: UUID, nodes: Sequence[SpanNode], project_of: ProjectOf) -> None:
    """Set run ids and positions of the operations, and move runs whose parents arrived.

    Call it in the transaction that writes the operations. Safe to repeat.
    """
    nodes_by_trace: dict[UUID, list[SpanNode]] = defaultdict(list)
    for node in nodes:
        nodes_by_trace[node.trace].append(node)
    summaries = [_summarize(trace_nodes) for trace_nodes in nodes_by_trace.values()]
    trees = trace_state.lock_trees(workspace_id, summaries)
    assemblers = [
        _TraceAssembler(workspace_id, trees[trace], trace_nodes)
        for trace, trace_nodes in nodes_by_trace.items()
    ]
    sdk_traces = [item for item in assemblers if any(node.is_sdk for node in item.nodes)]
    if sdk_traces:
        _match_sdk_runs(workspace_id, sdk_traces, project_of)
    _load_relatives(workspace_id, [item for item in assemblers if not item.tree.is_new])
    _count_calls_once(workspace_id, assemblers)
    waiting: list[WaitingSpan] = []
    for assembler in assemblers:
        waiting += assembler.assemble(project_of)
    trace_state.save_trees(workspace_id, [item.tree for item in assemblers if item.is_changed])
    trace_state.add_waiting(workspace_id, waiting)


def _summarize(nodes: Sequence[SpanNode]) -> SpanTree:
    root = _earliest_root(nodes)
    ends = [node.end for node in nodes if node.end is not None]
    tree = SpanTree(
        trace_id=nodes[0].trace,
        first_at=min(node.start for node in nodes),
        last_at=max(node.start for node in nodes),
        ended_at=max(ends, default=None),
        root_run_id=nodes[0].trace,
    )
    if root is not None:
        _set_root(tree, root)
    return tree


def _earliest_root(nodes: Iterable[SpanNode]) -> SpanNode | None:
    roots = [node for node in nodes if node.is_root]
    return min(roots, key=lambda node: (node.start, node.span_id)) if roots else None


def _set_root(tree: SpanTree, root: SpanNode) -> None:
    tree.root_span = root.span_id
    tree.root_run_id = root.root_run_id
    tree.root_segment = format_segment(root.start, root.root_run_id)


class _TraceAssembler:
    """Assembles the spans of one trace in one request."""

    def __init__(self, workspace_id: UUID, tree: SpanTree, nodes: list[SpanNode]) -> None:
        self.workspace_id = workspace_id
        self.tree = tree
        self.nodes = nodes
        self.nodes_by_key = {node.key: node for node in nodes}
        self.stored: dict[UUID, str] = {}
        """Dotted orders of stored runs."""
        self.sdk_runs: dict[UUID, tuple[UUID, datetime]] = {}
        """Run ids and partition times of spans whose runs an SDK also sent as runs."""
        self.released: dict[UUID, WaitingSpan] = {}
        self.is_changed = False
        self._dotted_orders: dict[UUID, str] = {}
        self._old_root_id = tree.root_run_id
        self._old_segment = tree.root_segment

    @property
    def _root_segment(self) -> str:
        return self.tree.root_segment or ""

    def missing_parents(self) -> set[UUID]:
        """Keys of parents that are not in the request."""
        parents = {node.parent_key for node in self.nodes if not node.is_root}
        return {
            parent for parent in parents if parent is not None and parent not in self.nodes_by_key
        }

    def match_run(
        self, node: SpanNode, run_id: UUID, dotted_order: str, partition_time: datetime
    ) -> None:
        """Use the existing run for the span, and its root for the trace."""
        self.sdk_runs[node.key] = run_id, partition_time
        self.stored[node.key] = dotted_order
        root_segment = dotted_order[:SEGMENT_LENGTH]
        if self.tree.placeholder_at is None and self.tree.root_segment != root_segment:
            self.tree.root_segment = root_segment
            self.tree.root_run_id = UUID(root_segment[22:])
            self.is_changed = True

    def assemble(self, project_of: ProjectOf) -> list[WaitingSpan]:
        """Assign all positions, move runs whose parents arrived, and return runs without one."""
        self._resolve_root(project_of)
        if self.tree.root_span is not None:
            key = span_run_id(self.tree.trace_id.bytes, self.tree.root_span)
            self._dotted_orders[key] = self._root_segment
        waiting = [
            waiting_span
            for node in self.nodes
            if (waiting_span := self._assign_position(node)) is not None
        ]
        self._move_subtrees()
        return waiting

    def _resolve_root(self, project_of: ProjectOf) -> None:
        """Find the root, or insert a placeholder root until it arrives."""
        tree = self.tree
        root = None if tree.root_span is not None else _earliest_root(self.nodes)
        if root is not None:
            placeholder = tree.placeholder
            is_sdk_run = tree.root_segment is not None and tree.placeholder_at is None
            sdk_root = tree.root_segment, tree.root_run_id
            _set_root(tree, root)
            if is_sdk_run:  # an SDK sent the root as a run: keep its position
                tree.root_segment, tree.root_run_id = sdk_root
            tree.placeholder_at = tree.placeholder_project_id = None
            self.is_changed = True
            if placeholder is not None:
                run_store.delete_placeholder(self.workspace_id, placeholder)
        elif tree.root_segment is None:
            first = min(self.nodes, key=lambda node: (node.start, node.span_id))
            tree.placeholder_at = first.start
            tree.placeholder_project_id = self._find_project(project_of)
            tree.root_segment = format_segment(first.start, tree.root_run_id)
            self.is_changed = True
            if tree.placeholder is not None:
                columns = {"start_time": tree.first_at, **_placeholder_columns(first)}
                run_store.insert_placeholder(self.workspace_id, tree.placeholder, columns)

    def _find_project(self, project_of: ProjectOf) -> UUID | None:
        ordered = sorted(self.nodes, key=lambda node: (node.start, node.span_id))
        project_ids = (project_of(node.operation) for node in ordered)
        return next((item for item in project_ids if item is not None), None)

    def _assign_position(self, node: SpanNode) -> WaitingSpan | None:
        """Set the position of the operation; return an entry if the run awaits its parent."""
        tree, operation = self.tree, node.operation
        if (sdk_run := self.sdk_runs.get(node.key)) is not None:
            run_id, partition_time = sdk_run
            dotted_order = self.stored[node.key]
        elif node.span_id == tree.root_span:
            run_id, dotted_order = tree.root_run_id, self._root_segment
            partition_time = node.start
        else:
            run_id, partition_time = node.key, node.start
            dotted_order = self._build_dotted_order(node.key)
        depth = dotted_order.count(".")
        parent_id = (
            None
            if depth == 0
            else UUID(dotted_order[-2 * SEGMENT_LENGTH + 21 : -SEGMENT_LENGTH - 1])
        )
        operation.run_id = run_id
        operation.position = TreePosition(
            dotted_order, UUID(dotted_order[22:SEGMENT_LENGTH]), parent_id, partition_time
        )
        parent = None if node.is_root else node.parent_key
        if depth != 1 or parent is None or run_id != node.key or parent in self._dotted_orders:
            return None
        return WaitingSpan(tree.trace_id, parent, run_id, partition_time)

    def _relative_position(self, key: UUID) -> _RelativePosition | None:
        """The known position of a run; None for an unknown run."""
        node = self.nodes_by_key.get(key)
        if node is not None and key not in self.sdk_runs:
            ancestor = None if node.is_root else node.parent_key
            return _RelativePosition(ancestor, format_segment(node.start, key))
        waiting = self.released.get(key)
        if waiting is not None:
            return _RelativePosition(waiting.awaits, format_segment(waiting.partition_time, key))
        stored = self.stored.get(key)
        if stored is None:
            return None
        second = stored[SEGMENT_LENGTH + 1 : 2 * SEGMENT_LENGTH + 1]
        if second and (orphan := UUID(second[22:])) in self.released:
            return _RelativePosition(orphan, stored[2 * SEGMENT_LENGTH + 2 :])
        return _RelativePosition(None, stored[SEGMENT_LENGTH + 1 :])

    def _build_dotted_order(self, key: UUID) -> str:
        """Walk up to the first ancestor with a known dotted order, and build the path back down."""
        path: list[tuple[UUID, str]] = []
        visited: set[UUID] = set()
        ancestor: UUID | None = key
        while ancestor is not None and ancestor not in self._dotted_orders:
            # A cycle, or a run without a known ancestor, is placed below the root.
            position = None if ancestor in visited else self._relative_position(ancestor)
            if position is None:
                break
            visited.add(ancestor)
            path.append((ancestor, position.tail))
            ancestor = position.ancestor
        root = self._root_segment
        dotted_order = root if ancestor is None else self._dotted_orders.get(ancestor, root)
        for run_id, tail in reversed(path):
            if (dotted_order.count(".") + tail.count(".")) > MAX_DEPTH:
                dotted_order = root
            dotted_order = f"{dotted_order}.{tail}" if tail else dotted_order
            self._dotted_orders[run_id] = dotted_order
        return dotted_order

    def _move_subtrees(self) -> None:
        """Move waiting runs below their parents, and all other runs below a new root."""
        old_segment = self._old_segment
        if old_segment is None:
            return
        moves = []
        for key, waiting in self.released.items():
            old_order = f"{old_segment}.{format_segment(waiting.partition_time, key)}"
            new_order = self._build_dotted_order(key)
            parent_id = UUID(new_order[-2 * SEGMENT_LENGTH + 21 : -SEGMENT_LENGTH - 1])
            moves.append(SubtreeMove(old_order, new_order, key, parent_id))
        if old_segment != self._root_segment:
            moves.append(SubtreeMove(old_segment, self._root_segment, None, None))
        if moves:
            run_store.move_subtrees(
                self.workspace_id,
                moves,
                old_trace_id=self._old_root_id,
                new_trace_id=self.tree.root_run_id,
                begin=self.tree.first_at,
                end=self.tree.last_at,
            )


def _load_relatives(workspace_id: UUID, assemblers: Sequence[_TraceAssembler]) -> None:
    """Load stored parents, and runs that await spans of this request."""
    if not assemblers:
        return
    awaited = [key for assembler in assemblers for key in assembler.nodes_by_key]
    by_trace = {assembler.tree.trace_id: assembler for assembler in assemblers}
    for waiting in trace_state.take_waiting(workspace_id, by_trace.keys(), awaited):
        by_trace[waiting.trace_id].released[waiting.run_id] = waiting
    parents = {key for assembler in assemblers for key in assembler.missing_parents()}
    if not parents:
        return
    first = min(assembler.tree.first_at for assembler in assemblers)
    last = max(assembler.tree.last_at for assembler in assemblers)
    dotted_orders = run_store.fetch_dotted_orders(workspace_id, parents, begin=first, end=last)
    for assembler in assemblers:
        keys = assembler.missing_parents() & dotted_orders.keys()
        assembler.stored |= {key: dotted_orders[key] for key in keys}


def _count_calls_once(workspace_id: UUID, assemblers: Sequence[_TraceAssembler]) -> None:
    """Make a span a chain without usage if its parent is the model call that it repeats.

    LiteLLM sends the parent first. If it arrives later, the span stays a model call; the totals of
    the trace leave out calls below calls.
    """
    repeats: list[tuple[SpanNode, UUID]] = []
    """Spans and the run ids of their parents that were stored before."""
    for assembler in assemblers:
        tree = assembler.tree
        for node in assembler.nodes:
            if not node.repeats_call or node.parent_key is None:
                continue
            parent = assembler.nodes_by_key.get(node.parent_key)
            if parent is None:
                is_root = node.parent_span_id == tree.root_span
                repeats.append((node, tree.root_run_id if is_root else node.parent_key))
            elif parent.operation.run.run_type == "llm":
                _remove_usage(node.operation)
    if repeats:
        rows = run_store.fetch_rows(workspace_id, {parent for _, parent in repeats})
        calls = {row.id for row in rows if row.run_type == "llm"}
        for node, parent_id in repeats:
            if parent_id in calls:
                _remove_usage(node.operation)


def _remove_usage(operation: RunOperation) -> None:
    columns = operation.content.columns
    columns["run_type"] = "chain"
    for name in USAGE_COLUMNS:
        columns.pop(name, None)


def _match_sdk_runs(
    workspace_id: UUID, assemblers: Sequence[_TraceAssembler], project_of: ProjectOf
) -> None:
    """Match spans to runs that an SDK sent by both protocols, with different ids.

    Both have the same project, name and start time; each run is matched to its nearest span.
    """
    spans = {
        node.key: (assembler, node)
        for assembler in assemblers
        for node in assembler.nodes
        if node.is_sdk
    }
    criteria = [
        StartCriterion(key, project_id, node.start, node.operation.run.name or "")
        for key, (_, node) in spans.items()
        if (project_id := project_of(node.operation)) is not None
    ]
    used_ids: set[UUID] = set()
    matches = run_store.find_by_start(workspace_id, criteria, START_TOLERANCE)
    for key, run_id, dotted_order, partition_time in matches:
        assembler, node = spans[key]
        if run_id not in used_ids and key not in assembler.sdk_runs:
            used_ids.add(run_id)
            assembler.match_run(node, run_id, dotted_order, partition_time)


def _placeholder_columns(node: SpanNode) -> dict[str, Any]:
    """Columns of the placeholder root, copied from the first span."""
    columns = node.operation.content.columns
    names = ("name", "inputs_preview", "outputs_preview", "thread_key")
    return {name: columns[name] for name in names if name in columns}
