"""Where spans stand in their trees, though they come leaf first and over many requests.

A span whose parent has not come stands directly below the root, and is readable there. When the
parent comes, in that same transaction, it moves below it with all that hangs on it. While no root
is there, a run of its own stands in for it. The order of arrival leaves no trace in the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.ingest.operations import Operation
from apps.ingest.otlp import ids
from apps.trace_store.dotted_order import Place, segment
from apps.trace_store.postprocess import Touched, queue
from apps.trace_store.store import partitions, trees
from apps.trace_store.store.trees import SEGMENT, Move, Tree, Waiting

DEEPEST = 1000
"""Levels of a tree; what lies deeper stands below the root: dotted orders grow with each level."""

Project = Callable[[Operation], UUID | None]


@dataclass(slots=True)
class Node:
    """What a span says about its place."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    start: datetime
    end: datetime | None
    is_root: bool
    root_run_id: UUID
    """Its run's id if it is the root."""
    is_sdk: bool = False
    operation: Operation = field(init=False)
    """What writes it, when it has been read."""

    trace: UUID = field(init=False)
    key: UUID = field(init=False)
    """The run's id if it is not the root."""
    parent_key: UUID | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.trace = ids.trace_uuid(self.trace_id)
        self.key = ids.span_uuid(self.trace_id, self.span_id)
        if self.parent_span_id and self.parent_span_id != self.span_id:
            self.parent_key = ids.span_uuid(self.trace_id, self.parent_span_id)


@dataclass(slots=True)
class _Spot:
    """A run's own segments, and above whom they hang; None is the root."""

    above: UUID | None
    tail: str


def place(workspace_id: UUID, nodes: Sequence[Node], project_of: Project) -> None:
    """Give the operations of the nodes their ids and places, and move what they set free.

    In the transaction that writes the operations; safe to repeat.
    """
    grouped: dict[UUID, list[Node]] = defaultdict(list)
    for node in nodes:
        grouped[node.trace].append(node)
    known = trees.open_trees(workspace_id, [_seen(some) for some in grouped.values()])
    groves = [_Grove(workspace_id, known[trace], some) for trace, some in grouped.items()]
    by_sdk = [one for one in groves if any(node.is_sdk for node in one.nodes)]
    if by_sdk:
        _meet_runs(workspace_id, by_sdk, project_of)
    _look_up(workspace_id, [one for one in groves if not one.tree.is_fresh])
    waiting: list[Waiting] = []
    for grove in groves:
        waiting += grove.settle(project_of)
    trees.keep(workspace_id, [one.tree for one in groves if one.is_changed])
    trees.wait(workspace_id, waiting)


def _seen(nodes: Iterable[Node]) -> Tree:
    some = list(nodes)
    root = _earliest_root(some)
    ends = [node.end for node in some if node.end is not None]
    tree = Tree(
        trace_id=some[0].trace,
        first_at=min(node.start for node in some),
        last_at=max(node.start for node in some),
        ended_at=max(ends, default=None),
        root_run_id=some[0].trace,
    )
    if root is not None:
        _take_root(tree, root)
    return tree


def _earliest_root(nodes: Iterable[Node]) -> Node | None:
    roots = [node for node in nodes if node.is_root]
    return min(roots, key=lambda node: (node.start, node.span_id)) if roots else None


def _take_root(tree: Tree, root: Node) -> None:
    tree.root_span = root.span_id
    tree.root_run_id = root.root_run_id
    tree.root_segment = segment(root.start, root.root_run_id)


class _Grove:
    """The spans of one trace in a request, on their way into its tree."""

    def __init__(self, workspace_id: UUID, tree: Tree, nodes: list[Node]) -> None:
        self.workspace_id = workspace_id
        self.tree = tree
        self.nodes = nodes
        self.by_key = {node.key: node for node in nodes}
        self.stored: dict[UUID, str] = {}
        """Dotted orders of runs that are in the store."""
        self.met: dict[UUID, tuple[UUID, datetime]] = {}
        """Spans that are runs which came by another wire: their ids and places."""
        self.released: dict[UUID, Waiting] = {}
        self.is_changed = False
        self._done: dict[UUID, str] = {}
        self._old_root_id = tree.root_run_id
        self._old_segment = tree.root_segment

    @property
    def _root_segment(self) -> str:
        return self.tree.root_segment or ""

    def wanted(self) -> set[UUID]:
        """Parents that are not in the request."""
        parents = {node.parent_key for node in self.nodes if not node.is_root}
        return {one for one in parents if one is not None and one not in self.by_key}

    def meet(self, node: Node, run_id: UUID, dotted_order: str, placed_at: datetime) -> None:
        """The span is that run, and the run's root is the trace's."""
        self.met[node.key] = run_id, placed_at
        self.stored[node.key] = dotted_order
        root_segment = dotted_order[:SEGMENT]
        if self.tree.stand_in_at is None and self.tree.root_segment != root_segment:
            self.tree.root_segment = root_segment
            self.tree.root_run_id = UUID(root_segment[22:])
            self.is_changed = True

    def settle(self, project_of: Project) -> list[Waiting]:
        """Place all spans, move what they set free, and say who waits."""
        self._root(project_of)
        if self.tree.root_span is not None:
            key = ids.span_uuid(self.tree.trace_id.bytes, self.tree.root_span)
            self._done[key] = self._root_segment
        waiting = [one for node in self.nodes if (one := self._place(node)) is not None]
        self._move()
        return waiting

    def _root(self, project_of: Project) -> None:
        """Find the root, or let a run stand in for it until it comes."""
        tree = self.tree
        root = None if tree.root_span is not None else _earliest_root(self.nodes)
        if root is not None:
            stood_in = tree.stand_in_at, tree.stand_in_project_id
            is_met = tree.root_segment is not None and tree.stand_in_at is None
            before = tree.root_segment, tree.root_run_id
            _take_root(tree, root)
            if is_met:  # the root's run came by another wire, and its place stands
                tree.root_segment, tree.root_run_id = before
            tree.stand_in_at = tree.stand_in_project_id = None
            self.is_changed = True
            if stood_in[0] is not None:
                self._drop_stand_in(stood_in[0], stood_in[1])
        elif tree.root_segment is None:
            first = min(self.nodes, key=lambda node: (node.start, node.span_id))
            tree.stand_in_at = first.start
            tree.stand_in_project_id = self._project(project_of)
            tree.root_segment = segment(first.start, tree.root_run_id)
            self.is_changed = True
            if tree.stand_in_project_id is not None:
                partitions.ensure_covered(first.start)
                trees.put_stand_in(self.workspace_id, tree, _look(first))
                self._touch(tree.root_run_id, tree.stand_in_project_id, first.start)

    def _project(self, project_of: Project) -> UUID | None:
        ordered = sorted(self.nodes, key=lambda node: (node.start, node.span_id))
        found = (project_of(node.operation) for node in ordered)
        return next((one for one in found if one is not None), None)

    def _drop_stand_in(self, placed_at: datetime, project_id: UUID | None) -> None:
        trees.drop_stand_in(self.workspace_id, self._old_root_id, project_id, placed_at)
        if project_id is not None:
            self._touch(self._old_root_id, project_id, placed_at)

    def _touch(self, run_id: UUID, project_id: UUID, placed_at: datetime) -> None:
        queue.append(self.workspace_id, [Touched(run_id, project_id, placed_at, run_id)])

    def _place(self, node: Node) -> Waiting | None:
        """Where the node's run goes, and whom it waits for."""
        tree, operation = self.tree, node.operation
        if (met := self.met.get(node.key)) is not None:
            run_id, placed_at = met
            dotted_order = self.stored[node.key]
        elif node.span_id == tree.root_span:
            run_id, dotted_order = tree.root_run_id, self._root_segment
            placed_at = node.start
        else:
            run_id, placed_at = node.key, node.start
            dotted_order = self._dotted_order(node.key)
        depth = dotted_order.count(".")
        above = None if depth == 0 else UUID(dotted_order[-2 * SEGMENT + 21 : -SEGMENT - 1])
        operation.run_id = run_id
        operation.place = Place(dotted_order, UUID(dotted_order[22:SEGMENT]), above, placed_at)
        parent = None if node.is_root else node.parent_key
        if depth != 1 or parent is None or run_id != node.key or parent in self._done:
            return None
        return Waiting(tree.trace_id, parent, run_id, placed_at)

    def _spot(self, key: UUID) -> _Spot | None:
        """What is known of where a run hangs; None of one that is not known."""
        node = self.by_key.get(key)
        if node is not None and key not in self.met:
            above = None if node.is_root else node.parent_key
            return _Spot(above, segment(node.start, key))
        waiting = self.released.get(key)
        if waiting is not None:
            return _Spot(waiting.awaits, segment(waiting.placed_at, key))
        stored = self.stored.get(key)
        if stored is None:
            return None
        second = stored[SEGMENT + 1 : 2 * SEGMENT + 1]
        if second and (orphan := UUID(second[22:])) in self.released:
            return _Spot(orphan, stored[2 * SEGMENT + 2 :])
        return _Spot(None, stored[SEGMENT + 1 :])

    def _dotted_order(self, key: UUID) -> str:
        """Up to the first run whose place is known, and down again."""
        path: list[tuple[UUID, str]] = []
        seen: set[UUID] = set()
        above: UUID | None = key
        while above is not None and above not in self._done:
            # Whoever is above itself, or above whom nothing is known, hangs below the root.
            spot = None if above in seen else self._spot(above)
            if spot is None:
                break
            seen.add(above)
            path.append((above, spot.tail))
            above = spot.above
        root = self._root_segment
        found = self._done.get(above, root) if above is not None else root
        for run_id, tail in reversed(path):
            if (found.count(".") + tail.count(".")) > DEEPEST:
                found = root
            found = f"{found}.{tail}" if tail else found
            self._done[run_id] = found
        return found

    def _move(self) -> None:
        """Those who waited to their parents, and what is left of the trace under its new root."""
        old = self._old_segment
        if old is None:
            return
        moves = []
        for key, waiting in self.released.items():
            before = f"{old}.{segment(waiting.placed_at, key)}"
            after = self._dotted_order(key)
            above = UUID(after[-2 * SEGMENT + 21 : -SEGMENT - 1])
            moves.append(Move(self.tree.trace_id, before, after, key, above))
        if old != self._root_segment:
            moves.append(Move(self.tree.trace_id, old, self._root_segment, None, None))
        trees.move(self.workspace_id, self.tree, self._old_root_id, moves)


def _look_up(workspace_id: UUID, groves: Sequence[_Grove]) -> None:
    """Find the parents that came before, and those who waited for what comes now."""
    if not groves:
        return
    awaited = [key for grove in groves for key in grove.by_key]
    by_trace = {grove.tree.trace_id: grove for grove in groves}
    for one in trees.no_longer_waiting(workspace_id, by_trace.keys(), awaited):
        by_trace[one.trace_id].released[one.run_id] = one
    wanted = {key for grove in groves for key in grove.wanted()}
    if not wanted:
        return
    first = min(grove.tree.first_at for grove in groves)
    last = max(grove.tree.last_at for grove in groves)
    found = trees.places(workspace_id, wanted, first, last)
    for grove in groves:
        grove.stored |= {key: found[key] for key in grove.wanted() & found.keys()}


def _meet_runs(workspace_id: UUID, groves: Sequence[_Grove], project_of: Project) -> None:
    """Find the runs that an SDK sends by both wires: its spans have ids of their own.

    Project, name and start are the same on both; the nearest in time goes first, each to one span.
    """
    spans = {node.key: (grove, node) for grove in groves for node in grove.nodes if node.is_sdk}
    wanted = [
        (key, project_id, node.start, node.operation.run.name or "")
        for key, (_, node) in spans.items()
        if (project_id := project_of(node.operation)) is not None
    ]
    taken: set[UUID] = set()
    for key, run_id, dotted_order, placed_at in trees.runs_of_moments(workspace_id, wanted):
        grove, node = spans[key]
        if run_id not in taken and key not in grove.met:
            taken.add(run_id)
            grove.meet(node, run_id, dotted_order, placed_at)


def _look(node: Node) -> dict[str, Any]:
    """How a root that has not come shows: as the first of its spans that has."""
    columns = node.operation.content.columns
    names = ("name", "inputs_preview", "outputs_preview", "thread_key")
    return {name: columns[name] for name in names if name in columns}
