"""Alignment of two traces: which runs correspond, and where the traces first differ."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from typing import Any
from uuid import UUID

from apps.core.json import dumps_text
from apps.trace_store import Payload, RunDetail, RunQuery, RunRow, RunType, run_store
from apps.tracing.messages import Conversation, parse_conversation

MAX_STEPS = 1_000
"""The steps that a page shows."""
MAX_COMPARED_RUNS = 2_000
"""The runs of each trace whose payloads are compared; later ones are compared by previews."""
MAX_PARSED_BYTES = 500_000
"""Larger payloads are compared as they are."""
_MAX_CELLS = 250_000
"""The largest table of the exact alignment of siblings; larger lists are aligned by blocks."""
_SAME_ARGUMENTS = 1_000
"""Equal arguments decide between runs of one name, but never against a longer alignment."""
_READ_BATCH = 100
_VOLATILE_KEYS = frozenset(
    {
        "created",
        "llm_output",
        "response_metadata",
        "system_fingerprint",
        "usage",
        "usage_metadata",
    }
)
"""Keys of replies whose values differ between any two runs."""
_GENERATED_ID = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"
    r"|\b(?:call|chatcmpl|gen|lc_run|msg|resp|run|toolu)[-_][0-9A-Za-z_-]{12,}",
    re.IGNORECASE,
)


@dataclass
class StepNode:
    """A run of one trace or of both, with the steps below it."""

    first: RunRow | None
    second: RunRow | None
    children: list[StepNode] = field(default_factory=list)

    @property
    def row(self) -> RunRow:
        row = self.first or self.second
        if row is None:
            raise ValueError("a step has a run of at least one trace")
        return row

    @property
    def pair(self) -> tuple[RunRow, RunRow] | None:
        return None if self.first is None or self.second is None else (self.first, self.second)


@dataclass(frozen=True)
class Bar:
    """A bar on the common axis of both traces, in thousandths."""

    x: int
    width: int


@dataclass(frozen=True)
class Step:
    """A row of the comparison."""

    number: int
    depth: int
    first: RunRow | None
    second: RunRow | None
    difference: str = ""
    """What differs first: `only in A`, `only in B`, `status`, `arguments`, `input`, `output`."""
    is_equal_below: bool = True
    """Whether this step and all steps below are equal."""
    first_bar: Bar | None = None
    second_bar: Bar | None = None

    @property
    def row(self) -> RunRow:
        row = self.first or self.second
        if row is None:
            raise ValueError("a step has a run of at least one trace")
        return row

    @property
    def latency(self) -> Delta:
        return Delta.compare(_seconds(self.first), _seconds(self.second))

    @property
    def tokens(self) -> Delta:
        return Delta.compare(*(_tokens(row) for row in (self.first, self.second)))

    @property
    def cost(self) -> Delta:
        return Delta.compare(*(_cost(row) for row in (self.first, self.second)))


@dataclass(frozen=True)
class Delta:
    """Two values and their difference; a missing value is None, never 0."""

    first: float | None
    second: float | None
    verdict: str = ""
    """`worse` or `better` if the second is more or less by over 10 %."""

    @classmethod
    def compare(cls, first: float | None, second: float | None) -> Delta:
        if first is None or second is None:
            return cls(first, second)
        if abs(second - first) <= 0.1 * abs(first):
            return cls(first, second)
        return cls(first, second, "worse" if second > first else "better")

    @property
    def is_missing(self) -> bool:
        return self.first is None and self.second is None


@dataclass(frozen=True)
class Alignment:
    """The steps of two traces in order, and the first that differs."""

    steps: Sequence[Step]
    first_difference: Step | None
    is_cut: bool = False

    @property
    def differences(self) -> list[Step]:
        return [step for step in self.steps if step.difference]

    def only_differences(self) -> list[Step | int]:
        """Return the steps without equal subtrees, whose number of steps stands in their place."""
        result: list[Step | int] = []
        skipped = 0
        for step in self.steps:
            if step.is_equal_below:
                skipped += 1
                continue
            if skipped:
                result.append(skipped)
                skipped = 0
            result.append(step)
        return [*result, skipped] if skipped else result


def align_traces(
    workspace_id: UUID, first: Sequence[RunRow], second: Sequence[RunRow]
) -> Alignment:
    """Align the runs of two traces level by level. Both are in depth-first order."""
    roots = _align(_build_trees(first), _build_trees(second))
    nodes = list(_walk(roots))
    payloads = _PayloadTexts(workspace_id, nodes)
    axis = max(_duration(first), _duration(second)) or timedelta(milliseconds=1)
    steps = _build_steps(nodes, payloads, _begin(first), _begin(second), axis)
    own = next((step for step in steps if step.difference), None)
    return Alignment(steps[:MAX_STEPS], own, is_cut=len(steps) > MAX_STEPS)


@dataclass
class _Tree:
    row: RunRow
    children: list[_Tree] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        return self.row.run_type, self.row.name


def _build_trees(rows: Sequence[RunRow]) -> list[_Tree]:
    trees = {row.id: _Tree(row) for row in rows}
    roots: list[_Tree] = []
    for row in rows:
        parent = trees.get(row.parent_run_id) if row.parent_run_id else None
        (parent.children if parent is not None else roots).append(trees[row.id])
    for tree in trees.values():
        tree.children.sort(key=lambda child: (child.row.start_time, child.row.dotted_order))
    return roots


def _align(first: Sequence[_Tree], second: Sequence[_Tree]) -> list[StepNode]:
    """Pair the siblings of two levels, and the levels below each pair, without recursion."""
    roots: list[StepNode] = []
    pending: list[tuple[list[StepNode], Sequence[_Tree], Sequence[_Tree], bool]] = [
        (roots, first, second, True)
    ]
    while pending:
        target, left, right, is_root = pending.pop()
        # Two traces are compared as they are, whatever the names of their roots.
        is_forced = is_root and len(left) == len(right) == 1
        pairs: list[tuple[_Tree | None, _Tree | None]] = (
            [(left[0], right[0])] if is_forced else _pair_siblings(left, right)
        )
        for one, other in pairs:
            node = StepNode(one.row if one else None, other.row if other else None)
            target.append(node)
            below = (one.children if one else [], other.children if other else [])
            if any(below):
                pending.append((node.children, *below, False))
    return roots


def _pair_siblings(
    left: Sequence[_Tree], right: Sequence[_Tree]
) -> list[tuple[_Tree | None, _Tree | None]]:
    matches = (
        _longest_common(left, right)
        if len(left) * len(right) <= _MAX_CELLS
        else _common_blocks(left, right)
    )
    pairs: list[tuple[_Tree | None, _Tree | None]] = []
    i = j = 0
    for a, b in [*matches, (len(left), len(right))]:
        pairs += [(tree, None) for tree in left[i:a]]
        pairs += [(None, tree) for tree in right[j:b]]
        if a < len(left):
            pairs.append((left[a], right[b]))
        i, j = a + 1, b + 1
    return pairs


def _longest_common(left: Sequence[_Tree], right: Sequence[_Tree]) -> list[tuple[int, int]]:
    """The longest common subsequence by type and name; equal arguments break ties."""
    scores = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) - 1, -1, -1):
        for j in range(len(right) - 1, -1, -1):
            best = max(scores[i + 1][j], scores[i][j + 1])
            if weight := _pair_weight(left[i], right[j]):
                best = max(best, scores[i + 1][j + 1] + weight)
            scores[i][j] = best
    matches: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        weight = _pair_weight(left[i], right[j])
        if weight and scores[i][j] == scores[i + 1][j + 1] + weight:
            matches.append((i, j))
            i, j = i + 1, j + 1
        elif scores[i][j] == scores[i + 1][j]:
            i += 1
        else:
            j += 1
    return matches


def _pair_weight(one: _Tree, other: _Tree) -> int:
    if one.key != other.key:
        return 0
    return _SAME_ARGUMENTS + (one.row.inputs_preview == other.row.inputs_preview)


def _common_blocks(left: Sequence[_Tree], right: Sequence[_Tree]) -> list[tuple[int, int]]:
    matcher = SequenceMatcher(
        None, [tree.key for tree in left], [tree.key for tree in right], autojunk=False
    )
    return [
        (block.a + offset, block.b + offset)
        for block in matcher.get_matching_blocks()
        for offset in range(block.size)
    ]


def _walk(roots: Sequence[StepNode]) -> Iterator[tuple[int, StepNode]]:
    """All steps depth first with their depths."""
    pending = [(0, node) for node in reversed(roots)]
    while pending:
        depth, node = pending.pop()
        yield depth, node
        pending += [(depth + 1, child) for child in reversed(node.children)]


def _build_steps(
    nodes: Sequence[tuple[int, StepNode]],
    payloads: _PayloadTexts,
    first_begin: datetime,
    second_begin: datetime,
    axis: timedelta,
) -> list[Step]:
    steps: list[Step] = []
    # From the last step up, so that a step knows whether one below it differs.
    differs: dict[int, bool] = {}
    for index in range(len(nodes) - 1, -1, -1):
        depth, node = nodes[index]
        has_difference_below = any(differs.get(id(child), False) for child in node.children)
        difference = _difference(node, payloads, has_difference_below=has_difference_below)
        differs[id(node)] = bool(difference) or has_difference_below
        steps.append(
            Step(
                index + 1,
                depth,
                node.first,
                node.second,
                difference,
                not differs[id(node)],
                _bar(node.first, first_begin, axis),
                _bar(node.second, second_begin, axis),
            )
        )
    steps.reverse()
    return steps


def _difference(node: StepNode, payloads: _PayloadTexts, *, has_difference_below: bool) -> str:
    """Name what differs at the step itself, not only because a step below it differs."""
    if node.pair is None:
        return "only in A" if node.second is None else "only in B"
    first, second = node.pair
    if payloads.text(first, Payload.INPUTS) != payloads.text(second, Payload.INPUTS):
        return "arguments" if first.run_type == RunType.TOOL else "input"
    if has_difference_below:
        return ""
    if first.shown_status != second.shown_status:
        return "status"
    if payloads.text(first, Payload.OUTPUTS) != payloads.text(second, Payload.OUTPUTS):
        return "output"
    return ""


class _PayloadTexts:
    """The payloads of paired runs without what differs between any two runs, such as ids."""

    def __init__(self, workspace_id: UUID, nodes: Sequence[tuple[int, StepNode]]) -> None:
        pairs = [node.pair for _, node in nodes if node.pair is not None][:MAX_COMPARED_RUNS]
        self._texts: dict[tuple[UUID, Payload], str] = {}
        rows = [row for pair in pairs for row in pair]
        for start in range(0, len(rows), _READ_BATCH):
            self._read(workspace_id, rows[start : start + _READ_BATCH])

    def _read(self, workspace_id: UUID, rows: Collection[RunRow]) -> None:
        begin = min(row.start_time for row in rows)
        query = RunQuery(
            project_ids=list({row.project_id for row in rows}),
            run_ids=list({row.id for row in rows}),
            started_from=begin,
        )
        page = run_store.query(
            workspace_id, query, limit=len(rows), payloads=(Payload.INPUTS, Payload.OUTPUTS)
        )
        for detail in page.runs:
            for payload in (Payload.INPUTS, Payload.OUTPUTS):
                self._texts[detail.row.id, payload] = comparable_text(detail, payload)

    def text(self, row: RunRow, payload: Payload) -> str:
        preview = row.inputs_preview if payload is Payload.INPUTS else row.outputs_preview
        return self._texts.get((row.id, payload), preview or "")


def comparable_text(detail: RunDetail, payload: Payload) -> str:
    """Return what two payloads with the same content have in common.

    A conversation is its roles, texts and tool calls; any other payload is its JSON without
    generated ids and usage.
    """
    json = detail.json(payload) or b""
    if len(json) > MAX_PARSED_BYTES:
        return json.decode("utf-8", "replace")
    value = detail.value(payload)
    conversation = parse_conversation(value)
    if conversation.messages:
        return _conversation_text(conversation)
    return _GENERATED_ID.sub("", dumps_text(_without_volatile(value)))


def _conversation_text(conversation: Conversation) -> str:
    parts = [
        [
            message.role,
            message.text,
            [[call.name, call.arguments] for call in message.tool_calls],
        ]
        for message in conversation.messages
    ]
    return dumps_text(parts)


def _without_volatile(value: Any) -> Any:
    match value:
        case dict():
            return {
                key: _without_volatile(item)
                for key, item in sorted(value.items())
                if key not in _VOLATILE_KEYS
            }
        case list():
            return [_without_volatile(item) for item in value]
    return value


def _begin(rows: Sequence[RunRow]) -> datetime:
    return min(row.start_time for row in rows)


def _duration(rows: Sequence[RunRow]) -> timedelta:
    return max(row.end_time or row.start_time for row in rows) - _begin(rows)


def _bar(row: RunRow | None, begin: datetime, axis: timedelta) -> Bar | None:
    if row is None:
        return None
    x = round(1_000 * ((row.start_time - begin) / axis))
    width = round(1_000 * (((row.end_time or row.start_time) - row.start_time) / axis))
    return Bar(max(0, min(x, 998)), max(2, min(width, 1_000)))


def _seconds(row: RunRow | None) -> float | None:
    return None if row is None or row.latency is None else row.latency.total_seconds()


def _tokens(row: RunRow | None) -> float | None:
    return None if row is None else row.usage.total_tokens


def _cost(row: RunRow | None) -> float | None:
    cost = None if row is None else row.usage.total_cost
    return None if cost is None else float(cost)


def count_kinds(rows: Sequence[RunRow]) -> Mapping[str, int]:
    """Return the model calls, tool calls and errors of a trace."""
    failed_parents = {row.parent_run_id for row in rows if row.has_failed}
    return {
        "LLM calls": sum(row.run_type == RunType.LLM for row in rows),
        "Tool calls": sum(row.run_type == RunType.TOOL for row in rows),
        "Errors": sum(row.has_failed and row.id not in failed_parents for row in rows),
    }
