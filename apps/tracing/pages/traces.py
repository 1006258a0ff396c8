"""Data of the trace page: the tree of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.core.json import Fragment, dumps_text
from apps.feedback.services import score_stats
from apps.feedback.services.score_stats import FeedbackStats
from apps.trace_store import RunRow, run_store
from apps.tracing.models import Project
from apps.tracing.pages.run_feedback import feedback_chips

FIRST_ROWS = 60
"""The number of rows that the server renders; further rows are sent as data."""
INLINE_RUNS = 1_000
"""The largest tree in the page; a larger tree is fetched after the page has loaded."""


@dataclass(frozen=True)
class TreeRun:
    """A row of the tree; times are milliseconds from the trace's start."""

    row: RunRow
    parent: int
    depth: int
    start: float
    duration: float | None
    feedback: Sequence[tuple[str, str]] = ()

    def as_json(self) -> list[Any]:
        """Return the array that `<trace-tree>` reads."""
        usage, token = self.row.usage, self.row.first_token_time
        cost = usage.total_cost
        return [
            str(self.row.id),
            self.parent,
            self.row.run_type,
            self.row.shown_name,
            self.row.shown_status,
            round(self.start, 3),
            None if self.duration is None else round(self.duration, 3),
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
        return sum(run.row.has_failed for run in self.runs)

    @property
    def failed_run(self) -> RunRow | None:
        """Return the deepest run that failed by itself, the first of several; None without one."""
        parents = {run.parent for run in self.runs if run.row.has_failed}
        failed = [
            run
            for index, run in enumerate(self.runs)
            if run.row.has_failed and index not in parents
        ]
        return max(failed, key=lambda run: run.depth).row if failed else None

    def as_json(self) -> Fragment:
        runs = [run.as_json() for run in self.runs]
        return Fragment(dumps_text({"total": self.total, "runs": runs}).encode())


def load_trace(project: Project, trace_id: UUID) -> Tree:
    """Load the whole trace with the feedback on its runs."""
    rows = run_store.fetch_trace(project.workspace_id, trace_id, project_id=project.pk)
    feedback = score_stats.by_run(project.workspace_id, [row.id for row in rows]) if rows else {}
    return build_tree(rows, datetime.now(UTC), feedback)


def build_shared_tree(rows: Sequence[RunRow]) -> Tree:
    """Build the tree of runs in any order; runs of several traces form several trees."""
    return build_tree(sorted(rows, key=lambda row: row.dotted_order), datetime.now(UTC))


def build_tree(
    rows: Sequence[RunRow], now: datetime, feedback: Mapping[UUID, FeedbackStats] | None = None
) -> Tree:
    """Build the tree of rows in depth-first order; a run without its parent becomes a root."""
    if not rows:
        return Tree()
    begin = min(row.start_time for row in rows)
    # A run without an end reaches to now as long as one is expected.
    end = max(row.end_time or (row.start_time if row.has_no_end else now) for row in rows)
    position = {row.id: index for index, row in enumerate(rows)}
    runs: list[TreeRun] = []
    for row in rows:
        parent = position.get(row.parent_run_id, -1) if row.parent_run_id else -1
        depth = runs[parent].depth + 1 if 0 <= parent < len(runs) else 0
        latency = row.latency
        duration = None if latency is None else max(0.0, _milliseconds(latency))
        chips = feedback_chips((feedback or {}).get(row.id, {}))
        runs.append(
            TreeRun(row, parent, depth, _milliseconds(row.start_time - begin), duration, chips)
        )
    return Tree(runs, max(0.0, _milliseconds(end - begin)))


def _milliseconds(interval: timedelta) -> float:
    return interval / timedelta(milliseconds=1)
