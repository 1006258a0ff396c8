"""One trace: its runs as a tree."""

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
from apps.tracing.pages.run_list import chips

FIRST_ROWS = 60
"""Rows of a tree that the page has without script; the rest comes as data."""
INLINE_RUNS = 1_000
"""A larger tree comes after the page, so that the page is there first."""


@dataclass(frozen=True)
class TreeRun:
    """A run in its tree: what a row shows, times in milliseconds from the trace's beginning."""

    row: RunRow
    parent: int
    depth: int
    start: float
    took: float | None
    feedback: Sequence[tuple[str, str]] = ()

    def as_json(self) -> list[Any]:
        """The shape that `<trace-tree>` reads."""
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
    """The runs of one trace, depth first."""

    runs: list[TreeRun] = field(default_factory=list)
    total: float = 0.0
    """Milliseconds from the first start to the last end."""

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
        shown = [run.as_json() for run in self.runs]
        return Fragment(dumps_text({"total": self.total, "runs": shown}).encode())


def trace(project: Project, trace_id: UUID, *, now: datetime | None = None) -> Tree:
    """The whole trace, with what was said about its runs."""
    rows = run_store.trace(project.workspace_id, trace_id, project_id=project.pk)
    said = _feedback(project.workspace_id, rows)
    return tree(rows, now or datetime.now(UTC), said)


def shown(rows: Sequence[RunRow]) -> Tree:
    """Runs in any order as a tree, or as several when they are of several traces."""
    return tree(sorted(rows, key=lambda row: row.dotted_order), datetime.now(UTC))


def tree(
    rows: Sequence[RunRow], now: datetime, said: Mapping[UUID, FeedbackStats] | None = None
) -> Tree:
    """Rows in depth-first order as a tree; a run whose parent is not there stands at the edge."""
    if not rows:
        return Tree()
    begin = min(row.start_time for row in rows)
    end = max(row.end_time or now for row in rows)
    at = {row.id: index for index, row in enumerate(rows)}
    made: list[TreeRun] = []
    for row in rows:
        parent = at.get(row.parent_run_id, -1) if row.parent_run_id else -1
        depth = made[parent].depth + 1 if 0 <= parent < len(made) else 0
        latency = row.latency
        took = None if latency is None else max(0.0, _milliseconds(latency))
        feedback = chips((said or {}).get(row.id, {}))
        made.append(
            TreeRun(row, parent, depth, _milliseconds(row.start_time - begin), took, feedback)
        )
    return Tree(made, max(0.0, _milliseconds(end - begin)))


def _feedback(workspace_id: UUID, rows: Collection[RunRow]) -> Mapping[UUID, FeedbackStats]:
    return score_stats.by_run(workspace_id, [row.id for row in rows]) if rows else {}


def _milliseconds(span: timedelta) -> float:
    return span / timedelta(milliseconds=1)
