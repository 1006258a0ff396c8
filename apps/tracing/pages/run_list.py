"""The rows of the run list of a project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from apps.core.json import dumps_text
from apps.feedback.services import score_stats
from apps.trace_store import RunRow, run_store
from apps.tracing.models import Project
from apps.tracing.pages.columns import Column
from apps.tracing.pages.list_state import ListState
from apps.tracing.pages.query_clauses import QueryProblem
from apps.tracing.pages.run_feedback import feedback_chips

RUNS_PER_PAGE = 50


@dataclass(frozen=True)
class ListedRun:
    row: RunRow
    cells: list[tuple[Column, str]]
    feedback: list[tuple[str, str]]


@dataclass(frozen=True)
class RunList:
    rows: list[ListedRun] = field(default_factory=list)
    next_cursor: str | None = None
    problem: QueryProblem | None = None

    @property
    def empty_columns(self) -> set[str]:
        """Return the keys of the columns without a value in any row, which get less space."""
        columns = [column for column, _ in self.rows[0].cells] if self.rows else []
        return {
            column.key
            for column in columns
            if column.key in _HAS_VALUE and not any(map(_HAS_VALUE[column.key], self.rows))
        }


_HAS_VALUE: dict[str, Callable[[ListedRun], object]] = {
    "error": lambda listed: listed.row.error_preview,
    "first_token": lambda listed: listed.row.first_token_time,
    "tokens": lambda listed: listed.row.usage.total_tokens,
    "cost": lambda listed: listed.row.usage.total_cost,
    "tags": lambda listed: listed.row.tags,
    "feedback": lambda listed: listed.feedback,
    "model": lambda listed: listed.row.model,
    "thread": lambda listed: listed.row.thread_key,
}


def load_run_list(
    project: Project, state: ListState, columns: Sequence[Column], *, cursor: str = ""
) -> RunList:
    """Load a page of runs; an invalid filter is not applied and is returned as `problem`."""
    problem = state.problem
    query = replace(state.without_invalid_filters.query(project), sort=state.run_sort)
    page = run_store.query(project.workspace_id, query, limit=RUNS_PER_PAGE, cursor=cursor or None)
    rows = [detail.row for detail in page.runs]
    scores: Mapping[Any, score_stats.FeedbackStats] = {}
    if any(column.kind == "feedback" for column in columns):
        scores = score_stats.by_run(project.workspace_id, [row.id for row in rows])
    return RunList(
        [_build_row(row, columns, scores.get(row.id, {})) for row in rows],
        page.next_cursor,
        problem,
    )


def _build_row(
    row: RunRow, columns: Sequence[Column], feedback: score_stats.FeedbackStats
) -> ListedRun:
    chips = feedback_chips(feedback)
    metadata = row.metadata if any(column.kind == "metadata" for column in columns) else {}
    cells = [(column, _cell_text(column, metadata, chips)) for column in columns]
    return ListedRun(row, cells, chips)


def _cell_text(column: Column, metadata: Mapping[str, Any], chips: list[tuple[str, str]]) -> str:
    if column.kind == "metadata":
        value = metadata.get(column.inner)
        return "" if value is None else value if isinstance(value, str) else dumps_text(value)
    if column.kind == "feedback" and column.inner:
        return dict(chips).get(column.inner, "")
    return ""
