"""Trees of runs, put together from the stock of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from uuid import UUID

from apps.ingest.seeding.steps import Step, Stock
from apps.ingest.seeding.texts import RARE_WORDS
from apps.trace_store.dotted_order import segment

WIDE = 60
DEEP = 40
LARGEST = 25_000
_TAGS = ("prod", "canary", "beta", "eval", "nightly")
_TAG_WEIGHTS = (70, 15, 8, 5, 2)
_SHAPES = ("single", "agent", "wide", "deep")
_SHAPE_WEIGHTS = (560, 420, 15, 5)
_CUSTOMERS = 500
_THREADS = 50_000
_ERRORS = 0.03
_RARE = 1 / 2_500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = timedelta(milliseconds=2)
_NOTHING = (0, 0, Decimal(0), Decimal(0))


@dataclass(slots=True, eq=False)
class SeededRun:
    """A run with its place. `sums` are of prompt and completion: tokens, then costs."""

    id: UUID
    trace_id: UUID
    parent: SeededRun | None
    dotted_order: str
    start_time: datetime
    step: Step
    context: Context
    end_time: datetime | None = None
    sums: tuple[int, int, Decimal, Decimal] = _NOTHING


@dataclass(frozen=True, slots=True)
class Context:
    """What all runs of a trace share."""

    customer: str
    environment: str
    revision: str
    thread: str | None
    tags: tuple[str, ...]


@dataclass(slots=True)
class Builder:
    """Makes one trace after another; the same seed makes the same ones."""

    stock: Stock
    dice: Random
    runs: list[SeededRun] = field(default_factory=list)

    def trace(self, at: datetime) -> list[SeededRun]:
        """A trace that began then, its root first."""
        shape = self.dice.choices(_SHAPES, _SHAPE_WEIGHTS)[0]
        return self._trace(shape, at)

    def largest(self, at: datetime, size: int = LARGEST) -> list[SeededRun]:
        """A trace of very many runs: an agent that went on and on."""
        self.runs, context = [], self._context()
        root = self._begin(self._pick(self.stock.agents), None, at, context)
        clock = at
        while len(self.runs) < size:
            turn = self._begin(self._pick(self.stock.chains), root, clock, context)
            for _ in range(min(self.dice.randint(3, 30), size - len(self.runs))):
                clock = self._leaf(turn, clock) + _MOMENT
            turn.end_time = clock
        root.end_time = clock
        return self._done()

    def _trace(self, shape: str, at: datetime) -> list[SeededRun]:
        self.runs, context = [], self._context()
        if shape == "single":
            self._finish(self._begin(self._pick(self.stock.models), None, at, context))
            return self._done()
        root = self._begin(self._pick(self.stock.agents), None, at, context)
        getattr(self, f"_{shape}")(root, at + _MOMENT)
        root.end_time = max(run.end_time or at for run in self.runs) + _MOMENT
        if self.dice.random() < _ERRORS:
            root.step = self.stock.failed(root.step)
        return self._done()

    def _agent(self, root: SeededRun, clock: datetime) -> None:
        """Some turns: thinks, calls tools, sometimes in a step of its own."""
        above = root
        for _ in range(self.dice.randint(2, 7)):
            if above is root and self.dice.random() < 0.25:
                above = self._begin(self._pick(self.stock.chains), root, clock, root.context)
            clock = self._leaf(above, clock) + _MOMENT
            if above is not root and self.dice.random() < 0.5:
                above.end_time, above = clock, root
        if above is not root:
            above.end_time = clock

    def _wide(self, root: SeededRun, clock: datetime) -> None:
        for _ in range(WIDE):
            self._leaf(root, clock)
            clock += _MOMENT

    def _deep(self, root: SeededRun, clock: datetime) -> None:
        path = [root]
        for _ in range(DEEP):
            step = self._pick(self.stock.chains)
            path.append(self._begin(step, path[-1], clock, root.context))
            clock += _MOMENT
        clock = self._leaf(path[-1], clock)
        for run in reversed(path[1:]):
            clock += _MOMENT
            run.end_time = clock

    def _leaf(self, above: SeededRun, at: datetime) -> datetime:
        share = self.dice.random()
        stock = self.stock
        steps = stock.models if share < 0.5 else stock.tools if share < 0.85 else stock.retrievers
        run = self._begin(self._pick(steps), above, at, above.context)
        self._finish(run)
        return run.end_time or at

    def _begin(
        self, step: Step, parent: SeededRun | None, at: datetime, context: Context
    ) -> SeededRun:
        run_id = self._id(at)
        own = segment(at, run_id)
        run = SeededRun(
            id=run_id,
            trace_id=parent.trace_id if parent else run_id,
            parent=parent,
            dotted_order=f"{parent.dotted_order}.{own}" if parent else own,
            start_time=at,
            step=step,
            context=context,
        )
        self.runs.append(run)
        return run

    def _finish(self, run: SeededRun) -> None:
        share = self.dice.random()
        if share < _ERRORS:
            run.step = self.stock.failed(run.step)
        elif share < _ERRORS + _RARE:
            run.step = self.stock.with_word(run.step, self._pick_word())
        run.end_time = run.start_time + timedelta(seconds=run.step.seconds * (0.5 + share))

    def _done(self) -> list[SeededRun]:
        """Sums go up the tree from every call of a model."""
        for run in self.runs:
            usage = run.step.usage
            if not usage:
                continue
            own = (
                usage["prompt_tokens"],
                usage["completion_tokens"],
                usage["prompt_cost"],
                usage["completion_cost"],
            )
            above = run.parent
            while above is not None:
                a, b, c, d = above.sums
                above.sums = (a + own[0], b + own[1], c + own[2], d + own[3])
                above = above.parent
        return self.runs

    def _context(self) -> Context:
        dice = self.dice
        return Context(
            customer=f"customer-{int(_CUSTOMERS * dice.random() ** 2):04d}",
            environment="staging" if dice.random() < 0.2 else "production",
            revision=f"v{dice.randint(1, 6)}.{dice.randint(0, 9)}",
            thread=f"thread-{int(dice.random() * _THREADS):05d}" if dice.random() < 0.4 else None,
            tags=tuple(sorted({dice.choices(_TAGS, _TAG_WEIGHTS)[0] for _ in range(2)})),
        )

    def _pick(self, steps: list[Step]) -> Step:
        return steps[int(self.dice.random() * len(steps))]

    def _pick_word(self) -> str:
        return RARE_WORDS[int(self.dice.random() * len(RARE_WORDS))]

    def _id(self, at: datetime) -> UUID:
        milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
        value = milliseconds << 80 | self.dice.getrandbits(80)
        value = value & ~(0xF << 76) | 0x7 << 76
        return UUID(int=value & ~(0x3 << 62) | 0x2 << 62)


def times(count: int, begin: datetime, end: datetime, dice: Random) -> Iterator[datetime]:
    """Moments for that many traces, in order, more by day than by night."""
    step = (end - begin) / max(count, 1)
    for number in range(count):
        yield begin + step * (number + dice.random() * 0.9)
