"""Trajectory of a thread: the model and tool calls of each turn, without messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from apps.trace_store import RunQuery, RunRow, RunType, filters, run_store
from apps.tracing.models import Project
from apps.tracing.pages.threads import load_turns

STEP_TYPES = (RunType.LLM, RunType.TOOL, RunType.RETRIEVER, RunType.EMBEDDING)
MAX_STEPS = 1000
_CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class TrajectoryStep:
    """One call, or several concurrent calls of the same parent run."""

    steps: Sequence[RunRow]

    @property
    def is_parallel(self) -> bool:
        return len(self.steps) > 1


@dataclass(frozen=True)
class TurnSteps:
    """A turn with its steps in order."""

    number: int
    turn: RunRow
    steps: Sequence[TrajectoryStep]


@dataclass(frozen=True)
class Trajectory:
    turns: Sequence[TurnSteps]
    next_cursor: str | None
    is_cut: bool
    """Whether the turn has more steps than `MAX_STEPS`."""


def load_trajectory(project: Project, key: str, *, cursor: str = "") -> Trajectory:
    """Load the steps of a page of turns; empty if the thread does not exist."""
    page = load_turns(project, key, cursor=cursor)
    turns = [detail.row for detail in page.runs]
    steps, is_cut = _read_steps(project, turns)
    by_trace: dict[UUID, list[RunRow]] = defaultdict(list)
    for step in steps:
        by_trace[step.trace_id].append(step)
    turns_with_steps = [
        TurnSteps(number, turn, group_steps(by_trace[turn.trace_id]))
        for number, turn in enumerate(turns, 1)
    ]
    return Trajectory(turns_with_steps, page.next_cursor, is_cut)


def _read_steps(project: Project, turns: Sequence[RunRow]) -> tuple[list[RunRow], bool]:
    if not turns:
        return [], False
    traces = ", ".join(filters.quote(str(turn.trace_id)) for turn in turns)
    kinds = ", ".join(filters.quote(str(kind)) for kind in STEP_TYPES)
    query = RunQuery(
        project_ids=[project.pk],
        started_from=min(turn.start_time for turn in turns) - _CLOCK_SKEW,
        where=filters.parse(f"and(in(trace_id, [{traces}]), in(run_type, [{kinds}]))"),
        oldest_first=True,
    )
    page = run_store.query(project.workspace_id, query, limit=MAX_STEPS)
    return [detail.row for detail in page.runs], page.next_cursor is not None


def group_steps(steps: Iterable[RunRow]) -> list[TrajectoryStep]:
    """Group the calls by time; overlapping calls of one parent form one step."""
    groups: list[list[RunRow]] = []
    for step in sorted(steps, key=lambda item: (item.start_time, item.dotted_order)):
        if groups and _is_concurrent(step, groups[-1]):
            groups[-1].append(step)
        else:
            groups.append([step])
    return [TrajectoryStep(item) for item in groups]


def _is_concurrent(step: RunRow, others: Sequence[RunRow]) -> bool:
    first = others[0]
    is_same_kind = step.run_type == first.run_type and step.parent_run_id == first.parent_run_id
    return is_same_kind and any(
        other.end_time is None or other.end_time > step.start_time for other in others
    )
