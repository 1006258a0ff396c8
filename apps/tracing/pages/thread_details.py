"""Metrics of a thread (duration, tokens, cost, feedback) with one row per turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from apps.feedback.services import score_stats
from apps.trace_store import RunQuery, RunRow, filters, run_store
from apps.trace_store.aggregation import ThreadRow
from apps.trace_store.metrics import Measure
from apps.tracing.models import Project
from apps.tracing.pages.threads import load_turns


@dataclass(frozen=True)
class ThreadDetails:
    row: ThreadRow
    turns: Sequence[RunRow]
    next_cursor: str | None
    feedback: Sequence[tuple[str, Mapping[str, Any]]]
    """Feedback on the thread and on its turns, by key."""
    metadata: Sequence[tuple[str, Any]]
    """The last turn of the page."""

    @property
    def lasted(self) -> timedelta | None:
        """Return the time from the first turn's start to the last turn's end."""
        return None if self.row.last_end is None else self.row.last_end - self.row.first_start

    def _quantile(self, share: float) -> float | None:
        result = self.row.figures.quantile(Measure.LATENCY, share)
        return None if result is None else float(result)

    @property
    def usual_latency(self) -> float | None:
        return self._quantile(0.5)

    @property
    def worst_latency(self) -> float | None:
        return self._quantile(0.99)

    @property
    def tokens(self) -> tuple[int, int, int]:
        """Return input, output and total."""
        measures = (Measure.PROMPT_TOKENS, Measure.COMPLETION_TOKENS, Measure.TOTAL_TOKENS)
        first, second, both = (int(self.row.figures.total(measure)) for measure in measures)
        return first, second, both

    @property
    def costs(self) -> tuple[Decimal, Decimal, Decimal]:
        """Return input, output and total."""
        measures = (Measure.PROMPT_COST, Measure.COMPLETION_COST, Measure.TOTAL_COST)
        first, second, both = (Decimal(self.row.figures.total(measure)) for measure in measures)
        return first, second, both


def load_details(project: Project, key: str, *, cursor: str = "") -> ThreadDetails | None:
    """Load the thread's metrics with a page of its turns; None if it does not exist."""
    of_thread = filters.parse(f"eq(thread_id, {filters.quote(key)})")
    query = RunQuery(project_ids=[project.pk], where=of_thread)
    row = run_store.thread(project.workspace_id, key, query)
    if row is None:
        return None
    page = load_turns(project, key, cursor=cursor)
    turns = [detail.row for detail in page.runs]
    data = score_stats.by_thread(project.workspace_id, project.pk, [key]).get(key, {})
    metadata = sorted(turns[-1].metadata.items()) if turns else []
    return ThreadDetails(row, turns, page.next_cursor, sorted(data.items()), metadata)
