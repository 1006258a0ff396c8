"""A thread: its turns, each a trace, as one conversation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal

from apps.feedback.services import score_stats
from apps.trace_store import Payload, RunDetail, RunPage, RunQuery, RunRow, filters, run_store
from apps.trace_store.aggregation import ThreadRow
from apps.trace_store.errors import FilterError
from apps.trace_store.metrics import Measure
from apps.tracing import conversations
from apps.tracing.messages import Message
from apps.tracing.models import Project
from apps.tracing.pages.run_list import ListState, Problem, chips, problem_of
from apps.tracing.pages.run_views import PayloadView, payload_view

TURNS_A_PAGE = 50
THREADS_A_PAGE = 50


@dataclass(frozen=True)
class Turn:
    row: RunRow
    inputs: PayloadView
    outputs: PayloadView
    said: Sequence[Message]
    """What is new in this turn: the messages that came in after those of the turn before."""
    answered: Sequence[Message]
    feedback: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Thread:
    key: str
    turns: list[Turn]
    next_cursor: str | None

    @property
    def tokens(self) -> int:
        return sum(turn.row.total_tokens or 0 for turn in self.turns)

    @property
    def cost(self) -> Decimal | None:
        known = [c for turn in self.turns if (c := turn.row.usage.total_cost) is not None]
        return sum(known, Decimal(0)) if known else None

    @property
    def errors(self) -> int:
        return sum(turn.row.error_preview is not None for turn in self.turns)


@dataclass(frozen=True)
class ListedThread:
    row: ThreadRow
    feedback: Sequence[tuple[str, str]]

    @property
    def tokens(self) -> int:
        return int(self.row.figures.total(Measure.TOTAL_TOKENS))

    @property
    def cost(self) -> Decimal:
        return Decimal(self.row.figures.total(Measure.TOTAL_COST))

    @property
    def latency(self) -> float | None:
        found = self.row.figures.quantile(Measure.LATENCY, 0.5)
        return None if found is None else float(found)


@dataclass(frozen=True)
class ThreadList:
    threads: Sequence[ListedThread] = ()
    total: int = 0
    problem: Problem | None = None


def listed(project: Project, state: ListState, page: int) -> ThreadList:
    """A page of the project's threads, those that went on last first."""
    try:
        query = state.query(project)
    except FilterError as error:
        return ThreadList(problem=problem_of(error, state.filter))
    found = run_store.threads(
        project.workspace_id, query, offset=page * THREADS_A_PAGE, limit=THREADS_A_PAGE
    )
    said = score_stats.by_thread(
        project.workspace_id, project.pk, [row.thread_key for row in found.threads]
    )
    rows = [ListedThread(row, chips(said.get(row.thread_key, {}))) for row in found.threads]
    return ThreadList(rows, found.total)


def turns_of(
    project: Project, key: str, *, cursor: str = "", payloads: Collection[Payload] = ()
) -> RunPage:
    """A page of the roots that are the thread's turns, oldest first."""
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True,
        oldest_first=True,
        where=filters.parse(f"eq(thread_id, {filters.quote(key)})"),
    )
    return run_store.query(
        project.workspace_id,
        query,
        limit=TURNS_A_PAGE,
        cursor=cursor or None,
        payloads=payloads,
    )


def thread(project: Project, key: str, *, cursor: str = "") -> Thread:
    """A page of the thread's turns as a conversation; none when there is no such thread."""
    page = turns_of(project, key, cursor=cursor, payloads=(Payload.INPUTS, Payload.OUTPUTS))
    ids = [detail.row.id for detail in page.runs]
    said = score_stats.by_run(project.workspace_id, ids) if ids else {}
    turns: list[Turn] = []
    for detail in page.runs:
        turns.append(_turn(detail, turns, chips(said.get(detail.row.id, {}))))
    return Thread(key, turns, page.next_cursor)


def _turn(detail: RunDetail, before: Sequence[Turn], feedback: Sequence[tuple[str, str]]) -> Turn:
    """What was there already is left out."""
    inputs, outputs = (payload_view(detail, p) for p in (Payload.INPUTS, Payload.OUTPUTS))
    known = [m for turn in before for m in (*turn.said, *turn.answered)]
    said = conversations.fresh(inputs.messages, known)
    answered = conversations.fresh(outputs.messages, [*known, *said])
    return Turn(detail.row, inputs, outputs, said, answered, feedback)
