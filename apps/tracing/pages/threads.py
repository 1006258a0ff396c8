"""Data of threads: their turns as one conversation."""

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
from apps.tracing.pages.run_list import FilterProblem, ListState, feedback_chips, filter_problem
from apps.tracing.pages.run_views import PayloadView, build_payload_view

TURNS_PER_PAGE = 50
THREADS_PER_PAGE = 50


@dataclass(frozen=True)
class Turn:
    row: RunRow
    inputs: PayloadView
    outputs: PayloadView
    new_inputs: Sequence[Message]
    """The input messages that the previous turn did not have."""
    new_outputs: Sequence[Message]
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
        result = self.row.figures.quantile(Measure.LATENCY, 0.5)
        return None if result is None else float(result)


@dataclass(frozen=True)
class ThreadList:
    threads: Sequence[ListedThread] = ()
    total: int = 0
    problem: FilterProblem | None = None


def load_thread_list(project: Project, state: ListState, page: int) -> ThreadList:
    """Load a page of the project's threads by latest turn."""
    try:
        query = state.query(project)
    except FilterError as error:
        return ThreadList(problem=filter_problem(error, state.filter))
    result = run_store.threads(
        project.workspace_id, query, offset=page * THREADS_PER_PAGE, limit=THREADS_PER_PAGE
    )
    data = score_stats.by_thread(
        project.workspace_id, project.pk, [row.thread_key for row in result.threads]
    )
    rows = [
        ListedThread(row, feedback_chips(data.get(row.thread_key, {}))) for row in result.threads
    ]
    return ThreadList(rows, result.total)


def load_turns(
    project: Project, key: str, *, cursor: str = "", payloads: Collection[Payload] = ()
) -> RunPage:
    """Load a page of the thread's turns (root runs), oldest first."""
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True,
        oldest_first=True,
        where=filters.parse(f"eq(thread_id, {filters.quote(key)})"),
    )
    return run_store.query(
        project.workspace_id,
        query,
        limit=TURNS_PER_PAGE,
        cursor=cursor or None,
        payloads=payloads,
    )


def load_thread(project: Project, key: str, *, cursor: str = "") -> Thread:
    """Load a page of the thread's turns as a conversation; None if it does not exist."""
    page = load_turns(project, key, cursor=cursor, payloads=(Payload.INPUTS, Payload.OUTPUTS))
    ids = [detail.row.id for detail in page.runs]
    data = score_stats.by_run(project.workspace_id, ids) if ids else {}
    turns: list[Turn] = []
    for detail in page.runs:
        turns.append(_build_turn(detail, turns, feedback_chips(data.get(detail.row.id, {}))))
    return Thread(key, turns, page.next_cursor)


def _build_turn(
    detail: RunDetail, before: Sequence[Turn], feedback: Sequence[tuple[str, str]]
) -> Turn:
    """Build a turn without the messages of the previous one."""
    inputs, outputs = (build_payload_view(detail, p) for p in (Payload.INPUTS, Payload.OUTPUTS))
    known = [m for turn in before for m in (*turn.new_inputs, *turn.new_outputs)]
    new_inputs = conversations.new_messages(inputs.messages, known)
    new_outputs = conversations.new_messages(outputs.messages, [*known, *new_inputs])
    return Turn(detail.row, inputs, outputs, new_inputs, new_outputs, feedback)
