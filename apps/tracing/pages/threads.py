"""Data of threads: the list, a thread's turns as one conversation, and its metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from apps.feedback.services import score_stats
from apps.trace_store import Payload, RunDetail, RunPage, RunQuery, RunRow, filters, run_store
from apps.trace_store.aggregation import ThreadSummary
from apps.trace_store.metrics import Measure
from apps.tracing import messages
from apps.tracing.messages import Message
from apps.tracing.models import Project
from apps.tracing.pages.list_state import ListState
from apps.tracing.pages.payload_views import PayloadView, build_turn_payload_view
from apps.tracing.pages.query_clauses import QueryProblem
from apps.tracing.pages.run_feedback import feedback_chips

TURNS_PER_PAGE = 50
THREADS_PER_PAGE = 50


@dataclass(frozen=True)
class Turn:
    row: RunRow
    inputs: PayloadView
    outputs: PayloadView
    new_inputs: Sequence[Message]
    """The input messages that are not in earlier turns."""
    new_outputs: Sequence[Message]
    feedback: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class ThreadOverview:
    key: str
    turns: list[Turn]
    next_cursor: str | None

    @property
    def tokens(self) -> int:
        return sum(turn.row.total_tokens or 0 for turn in self.turns)

    @property
    def cost(self) -> Decimal | None:
        costs = [c for turn in self.turns if (c := turn.row.usage.total_cost) is not None]
        return sum(costs, Decimal(0)) if costs else None

    @property
    def errors(self) -> int:
        return sum(turn.row.has_failed for turn in self.turns)


@dataclass(frozen=True)
class ListedThread:
    row: ThreadSummary
    feedback: Sequence[tuple[str, str]]

    @property
    def tokens(self) -> int:
        return int(self.row.metrics.total(Measure.TOTAL_TOKENS))

    @property
    def cost(self) -> Decimal:
        return Decimal(self.row.metrics.total(Measure.TOTAL_COST))

    @property
    def latency(self) -> float | None:
        result = self.row.metrics.quantile(Measure.LATENCY, 0.5)
        return None if result is None else float(result)


@dataclass(frozen=True)
class ThreadList:
    threads: Sequence[ListedThread] = ()
    total: int = 0
    problem: QueryProblem | None = None


def load_thread_list(project: Project, state: ListState, page: int) -> ThreadList:
    """Load a page of threads by latest turn; an invalid filter is not applied but reported."""
    query = state.without_invalid_filters.query(project)
    result = run_store.query_threads(
        project.workspace_id, query, offset=page * THREADS_PER_PAGE, limit=THREADS_PER_PAGE
    )
    scores = score_stats.by_thread(
        project.workspace_id, project.pk, [row.thread_key for row in result.threads]
    )
    rows = [
        ListedThread(row, feedback_chips(scores.get(row.thread_key, {}))) for row in result.threads
    ]
    return ThreadList(rows, result.total, state.problem)


def load_turns(
    project: Project,
    key: str,
    *,
    cursor: str = "",
    limit: int = TURNS_PER_PAGE,
    payloads: Collection[Payload] = (),
) -> RunPage:
    """Load a page of the thread's turns (root runs), oldest first."""
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True,
        oldest_first=True,
        where=filters.thread_filter(key),
    )
    return run_store.query(
        project.workspace_id,
        query,
        limit=limit,
        cursor=cursor or None,
        payloads=payloads,
    )


def load_thread(project: Project, key: str, *, cursor: str = "") -> ThreadOverview:
    """Load a page of the thread's turns as a conversation; no turns if it does not exist."""
    page = load_turns(project, key, cursor=cursor, payloads=(Payload.INPUTS, Payload.OUTPUTS))
    ids = [detail.row.id for detail in page.runs]
    scores = score_stats.by_run(project.workspace_id, ids) if ids else {}
    turns: list[Turn] = []
    for detail in page.runs:
        turns.append(_build_turn(detail, turns, feedback_chips(scores.get(detail.row.id, {}))))
    return ThreadOverview(key, turns, page.next_cursor)


def _build_turn(
    detail: RunDetail, before: Sequence[Turn], feedback: Sequence[tuple[str, str]]
) -> Turn:
    """Build a turn without the messages of earlier ones."""
    inputs, outputs = (
        build_turn_payload_view(detail, p) for p in (Payload.INPUTS, Payload.OUTPUTS)
    )
    earlier = [m for turn in before for m in (*turn.new_inputs, *turn.new_outputs)]
    new_inputs = messages.new_messages(inputs.messages, earlier)
    new_outputs = messages.new_messages(outputs.messages, [*earlier, *new_inputs])
    return Turn(detail.row, inputs, outputs, new_inputs, new_outputs, feedback)


@dataclass(frozen=True)
class ThreadDetails:
    row: ThreadSummary
    turns: Sequence[RunRow]
    next_cursor: str | None
    feedback: Sequence[tuple[str, Mapping[str, Any]]]
    """Feedback on the thread and on its turns, by key."""
    metadata: Sequence[tuple[str, Any]]
    """Metadata of the page's last turn."""

    @property
    def duration(self) -> timedelta | None:
        """Return the time from the first turn's start to the last turn's end."""
        return None if self.row.last_end is None else self.row.last_end - self.row.first_start

    def _quantile(self, share: float) -> float | None:
        result = self.row.metrics.quantile(Measure.LATENCY, share)
        return None if result is None else float(result)

    @property
    def median_latency(self) -> float | None:
        return self._quantile(0.5)

    @property
    def p99_latency(self) -> float | None:
        return self._quantile(0.99)

    @property
    def tokens(self) -> tuple[int, int, int]:
        """Return the amounts of input, output and total."""
        measures = (Measure.PROMPT_TOKENS, Measure.COMPLETION_TOKENS, Measure.TOTAL_TOKENS)
        prompt, completion, total = (int(self.row.metrics.total(measure)) for measure in measures)
        return prompt, completion, total

    @property
    def costs(self) -> tuple[Decimal, Decimal, Decimal]:
        """Return the amounts of input, output and total."""
        measures = (Measure.PROMPT_COST, Measure.COMPLETION_COST, Measure.TOTAL_COST)
        prompt, completion, total = (
            Decimal(self.row.metrics.total(measure)) for measure in measures
        )
        return prompt, completion, total


def load_details(project: Project, key: str, *, cursor: str = "") -> ThreadDetails | None:
    """Load the thread's metrics with a page of its turns; None if it does not exist."""
    query = RunQuery(project_ids=[project.pk], where=filters.thread_filter(key))
    row = run_store.fetch_thread(project.workspace_id, key, query)
    if row is None:
        return None
    page = load_turns(project, key, cursor=cursor)
    turns = [detail.row for detail in page.runs]
    scores = score_stats.by_thread(project.workspace_id, project.pk, [key]).get(key, {})
    metadata = sorted(turns[-1].metadata.items()) if turns else []
    return ThreadDetails(row, turns, page.next_cursor, sorted(scores.items()), metadata)
