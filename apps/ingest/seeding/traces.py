"""Builds traces from the step library."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from uuid import UUID

from apps.ingest.seeding.steps import RARE_WORDS, StepContent, StepLibrary
from apps.trace_store.dotted_order import format_segment

WIDE_TRACE_CHILDREN = 60
DEEP_TRACE_LEVELS = 40
LARGEST_TRACE_RUNS = 25_000
_TAGS = ("prod", "canary", "beta", "eval", "nightly")
_TAG_WEIGHTS = (70, 15, 8, 5, 2)
_SHAPES = ("single", "agent", "wide", "deep")
_SHAPE_WEIGHTS = (560, 420, 15, 5)
_CUSTOMERS = 500
_THREADS = 50_000
_ERROR_SHARE = 0.03
_RARE_WORD_SHARE = 1 / 2_500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GAP = timedelta(milliseconds=2)
_NO_SUMS = (0, 0, Decimal(0), Decimal(0))


@dataclass(slots=True, eq=False)
class SeededRun:
    """A run and its position. `sums`: prompt and completion tokens, prompt and completion costs."""

    id: UUID
    trace_id: UUID
    parent: SeededRun | None
    dotted_order: str
    start_time: datetime
    step: StepContent
    context: TraceContext
    end_time: datetime | None = None
    sums: tuple[int, int, Decimal, Decimal] = _NO_SUMS


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Values that all runs of a trace share."""

    customer: str
    environment: str
    revision: str
    thread: str | None
    tags: tuple[str, ...]


@dataclass(slots=True)
class TraceBuilder:
    """Builds traces; the same seed gives the same traces."""

    library: StepLibrary
    rng: Random
    runs: list[SeededRun] = field(default_factory=list)

    def build_trace(self, at: datetime) -> list[SeededRun]:
        """A trace that starts at `at`, root first."""
        shape = self.rng.choices(_SHAPES, _SHAPE_WEIGHTS)[0]
        return self._trace(shape, at)

    def build_largest(self, at: datetime, size: int = LARGEST_TRACE_RUNS) -> list[SeededRun]:
        """A trace with very many runs, such as one of a long-running agent."""
        self.runs, context = [], self._generate_context()
        root = self._begin_run(self._pick(self.library.agents), None, at, context)
        clock = at
        while len(self.runs) < size:
            turn = self._begin_run(self._pick(self.library.chains), root, clock, context)
            for _ in range(min(self.rng.randint(3, 30), size - len(self.runs))):
                clock = self._add_leaf(turn, clock) + _GAP
            turn.end_time = clock
        root.end_time = clock
        return self._add_sums()

    def _trace(self, shape: str, at: datetime) -> list[SeededRun]:
        self.runs, context = [], self._generate_context()
        if shape == "single":
            self._finish_run(self._begin_run(self._pick(self.library.models), None, at, context))
            return self._add_sums()
        root = self._begin_run(self._pick(self.library.agents), None, at, context)
        getattr(self, f"_{shape}")(root, at + _GAP)
        root.end_time = max(run.end_time or at for run in self.runs) + _GAP
        if self.rng.random() < _ERROR_SHARE:
            root.step = self.library.with_error(root.step)
        return self._add_sums()

    def _agent(self, root: SeededRun, clock: datetime) -> None:
        """Some turns of model and tool calls, sometimes in a nested chain."""
        parent = root
        for _ in range(self.rng.randint(2, 7)):
            if parent is root and self.rng.random() < 0.25:
                parent = self._begin_run(self._pick(self.library.chains), root, clock, root.context)
            clock = self._add_leaf(parent, clock) + _GAP
            if parent is not root and self.rng.random() < 0.5:
                parent.end_time, parent = clock, root
        if parent is not root:
            parent.end_time = clock

    def _wide(self, root: SeededRun, clock: datetime) -> None:
        for _ in range(WIDE_TRACE_CHILDREN):
            self._add_leaf(root, clock)
            clock += _GAP

    def _deep(self, root: SeededRun, clock: datetime) -> None:
        path = [root]
        for _ in range(DEEP_TRACE_LEVELS):
            step = self._pick(self.library.chains)
            path.append(self._begin_run(step, path[-1], clock, root.context))
            clock += _GAP
        clock = self._add_leaf(path[-1], clock)
        for run in reversed(path[1:]):
            clock += _GAP
            run.end_time = clock

    def _add_leaf(self, parent: SeededRun, at: datetime) -> datetime:
        share = self.rng.random()
        if share < 0.5:
            steps = self.library.models
        else:
            steps = self.library.tools if share < 0.85 else self.library.retrievers
        run = self._begin_run(self._pick(steps), parent, at, parent.context)
        self._finish_run(run)
        return run.end_time or at

    def _begin_run(
        self, step: StepContent, parent: SeededRun | None, at: datetime, context: TraceContext
    ) -> SeededRun:
        run_id = self._generate_id(at)
        segment = format_segment(at, run_id)
        run = SeededRun(
            id=run_id,
            trace_id=parent.trace_id if parent else run_id,
            parent=parent,
            dotted_order=f"{parent.dotted_order}.{segment}" if parent else segment,
            start_time=at,
            step=step,
            context=context,
        )
        self.runs.append(run)
        return run

    def _finish_run(self, run: SeededRun) -> None:
        share = self.rng.random()
        if share < _ERROR_SHARE:
            run.step = self.library.with_error(run.step)
        elif share < _ERROR_SHARE + _RARE_WORD_SHARE:
            run.step = self.library.with_word(run.step, self._pick_word())
        run.end_time = run.start_time + timedelta(seconds=run.step.seconds * (0.5 + share))

    def _add_sums(self) -> list[SeededRun]:
        """Add the usage of each model call to its ancestors and return the runs."""
        for run in self.runs:
            usage = run.step.usage
            if not usage:
                continue
            ancestor = run.parent
            while ancestor is not None:
                prompt_tokens, completion_tokens, prompt_cost, completion_cost = ancestor.sums
                ancestor.sums = (
                    prompt_tokens + usage["prompt_tokens"],
                    completion_tokens + usage["completion_tokens"],
                    prompt_cost + usage["prompt_cost"],
                    completion_cost + usage["completion_cost"],
                )
                ancestor = ancestor.parent
        return self.runs

    def _generate_context(self) -> TraceContext:
        rng = self.rng
        return TraceContext(
            customer=f"customer-{int(_CUSTOMERS * rng.random() ** 2):04d}",
            environment="staging" if rng.random() < 0.2 else "production",
            revision=f"v{rng.randint(1, 6)}.{rng.randint(0, 9)}",
            thread=f"thread-{int(rng.random() * _THREADS):05d}" if rng.random() < 0.4 else None,
            tags=tuple(sorted({rng.choices(_TAGS, _TAG_WEIGHTS)[0] for _ in range(2)})),
        )

    def _pick(self, steps: list[StepContent]) -> StepContent:
        return steps[int(self.rng.random() * len(steps))]

    def _pick_word(self) -> str:
        return RARE_WORDS[int(self.rng.random() * len(RARE_WORDS))]

    def _generate_id(self, at: datetime) -> UUID:
        milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
        value = milliseconds << 80 | self.rng.getrandbits(80)
        value = value & ~(0xF << 76) | 0x7 << 76
        return UUID(int=value & ~(0x3 << 62) | 0x2 << 62)
