"""Data of the trace page: the tree of runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.core.json import Fragment, dumps_text
from apps.feedback.services import score_stats
from apps.feedback.services.score_stats import FeedbackStats
from apps.trace_store import RunRow, run_store
from apps.tracing.models import Project
from apps.tracing.pages.run_list import feedback_chips

FIRST_ROWS = 60
"""Rows rendered by the server; the rest is sent as data."""
INLINE_RUNS = 1_000
"""A larger tree is fetched after the page has loaded."""


@dataclass(frozen=True)
class TreeRun:
    """A row of the tree; times are milliseconds from the trace's start."""

    row: RunRow
    parent: int
    depth: int
    start: float
    took: float | None
    feedback: Sequence[tuple[str, str]] = ()

    def as_json(self) -> list[Any]:
        """Return the array that `<trace-tree>` reads."""
        usage, token = self.row.usage, self.row.first_token_time
        cost = usage.total_cost
        return [
            str(self.row.id),
            self.parent,
            self.row.run_type,
            self.row.name,
            self.row.status.value,
            round(self.start, 3),
            None if self.took is None else round(self.took, 3),
            usage.prompt_tokens,
            usage.completion_tokens,
            None if cost is None else float(cost),
            None if token is None else round(_milliseconds(token - self.row.start_time), 3),
            self.feedback,
        ]


@dataclass(frozen=True)
class Tree:
    """The runs of one trace in depth-first order."""

    runs: list[TreeRun] = field(default_factory=list)
    total: float = 0.0
    """Milliseconds from the earliest start to the latest end."""

    @property
    def first(self) -> list[TreeRun]:
        return self.runs[:FIRST_ROWS]

    @property
    def is_inline(self) -> bool:
        return len(self.runs) <= INLINE_RUNS

    @property
    def errors(self) -> int:
        return sum(run.row.error_preview is not None for run in self.runs)

    def as_json(self) -> Fragment:
        visible_tree = [run.as_json() for run in self.runs]
        return Fragment(dumps_text({"total": self.total, "runs": visible_tree}).encode())


def load_trace(project: Project, trace_id: UUID, *, now: datetime | None = None) -> Tree:
    """Load the whole trace with the feedback on its runs."""
    rows = run_store.trace(project.workspace_id, trace_id, project_id=project.pk)
    data = _feedback(project.workspace_id, rows)
    return build_tree(rows, now or datetime.now(UTC), data)


def visible_tree(rows: Sequence[RunRow]) -> Tree:
    """Build the tree of runs in any order; runs of several traces form several trees."""
    return build_tree(sorted(rows, key=lambda row: row.dotted_order), datetime.now(UTC))


def build_tree(
    rows: Sequence[RunRow], now: datetime, feedback: Mapping[UUID, FeedbackStats] | None = None
) -> Tree:
    """Build the tree of rows in depth-first order; a run without its parent becomes a root."""
    if not rows:
        return Tree()
    begin = min(row.start_time for row in rows)
    end = max(row.end_time or now for row in rows)
    position = {row.id: index for index, row in enumerate(rows)}
    created: list[TreeRun] = []
    for row in rows:
        parent = position.get(row.parent_run_id, -1) if row.parent_run_id else -1
        depth = created[parent].depth + 1 if 0 <= parent < len(created) else 0
        latency = row.latency
        took = None if latency is None else max(0.0, _milliseconds(latency))
        chips = feedback_chips((feedback or {}).get(row.id, {}))
        created.append(
            TreeRun(row, parent, depth, _milliseconds(row.start_time - begin), took, chips)
        )
    return Tree(created, max(0.0, _milliseconds(end - begin)))


def _feedback(workspace_id: UUID, rows: Collection[RunRow]) -> Mapping[UUID, FeedbackStats]:
    return score_stats.by_run(workspace_id, [row.id for row in rows]) if rows else {}


def _milliseconds(span: timedelta) -> float:
    return span / timedelta(milliseconds=1)
