"""What happened in a thread, turn by turn: calls of models and tools, without what was said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from apps.trace_store import RunQuery, RunRow, RunType, filters, run_store
from apps.tracing.models import Project
from apps.tracing.pages.threads import turns_of

STEPS = (RunType.LLM, RunType.TOOL, RunType.RETRIEVER, RunType.EMBEDDING)
MOST_STEPS = 1000
_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class Moment:
    """One step, or several that were taken at the same time by the same run."""

    steps: Sequence[RunRow]

    @property
    def is_parallel(self) -> bool:
        return len(self.steps) > 1


@dataclass(frozen=True)
class Passage:
    """A turn and its steps, in order."""

    number: int
    turn: RunRow
    moments: Sequence[Moment]


@dataclass(frozen=True)
class Trajectory:
    passages: Sequence[Passage]
    next_cursor: str | None
    is_cut: bool
    """Whether there are more steps than are shown."""


def trajectory(project: Project, key: str, *, cursor: str = "") -> Trajectory:
    """The steps of a page of turns; no passage when there is no such thread."""
    page = turns_of(project, key, cursor=cursor)
    turns = [detail.row for detail in page.runs]
    steps, is_cut = _steps(project, turns)
    by_trace: dict[UUID, list[RunRow]] = defaultdict(list)
    for step in steps:
        by_trace[step.trace_id].append(step)
    passages = [
        Passage(number, turn, moments(by_trace[turn.trace_id]))
        for number, turn in enumerate(turns, 1)
    ]
    return Trajectory(passages, page.next_cursor, is_cut)


def _steps(project: Project, turns: Sequence[RunRow]) -> tuple[list[RunRow], bool]:
    if not turns:
        return [], False
    traces = ", ".join(filters.quote(str(turn.trace_id)) for turn in turns)
    kinds = ", ".join(filters.quote(str(kind)) for kind in STEPS)
    query = RunQuery(
        project_ids=[project.pk],
        started_from=min(turn.start_time for turn in turns) - _SKEW,
        where=filters.parse(f"and(in(trace_id, [{traces}]), in(run_type, [{kinds}]))"),
        oldest_first=True,
    )
    page = run_store.query(project.workspace_id, query, limit=MOST_STEPS)
    return [detail.row for detail in page.runs], page.next_cursor is not None


def moments(steps: Iterable[RunRow]) -> list[Moment]:
    """The steps in order of time; those of one parent that overlap are one moment."""
    found: list[list[RunRow]] = []
    for step in sorted(steps, key=lambda one: (one.start_time, one.dotted_order)):
        if found and _is_beside(step, found[-1]):
            found[-1].append(step)
        else:
            found.append([step])
    return [Moment(one) for one in found]


def _is_beside(step: RunRow, others: Sequence[RunRow]) -> bool:
    first = others[0]
    is_of_kind = step.run_type == first.run_type and step.parent_run_id == first.parent_run_id
    return is_of_kind and any(
        other.end_time is None or other.end_time > step.start_time for other in others
    )
