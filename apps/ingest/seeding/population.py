"""Fills a workspace: projects, traces over many days, feedback, files, counts, all settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection, transaction

from apps.core.json import dumps
from apps.feedback.models import Feedback
from apps.ingest.seeding.bulk import in_bulk
from apps.ingest.seeding.loading import Loader, Placed
from apps.ingest.seeding.steps import Stock
from apps.ingest.seeding.traces import LARGEST, Builder, SeededRun
from apps.trace_store.postprocess import Touched, processor, queue
from apps.trace_store.store import partitions
from apps.tracing.models import RunCount
from apps.tracing.services import ensure_project

PROJECTS = (("seed", 60), ("seed-support", 25), ("seed-research", 10), ("seed-evaluation", 5))
"""Names, and how many of a hundred traces each gets."""
_BATCH = 5_000
_FEEDBACK = 0.05
_FILES = 1 / 5_000
_MOST_FILES = 500
_KEYS = ("user_score", "helpfulness", "correctness")

Progress = Callable[[int], None]


@dataclass(slots=True)
class Seed:
    """What was asked for, and where it is up to."""

    workspace_id: UUID
    runs: int
    days: int
    seed: int
    until: datetime
    progress: Progress = field(default=lambda _: None)
    largest: int = LARGEST
    made: int = 0
    files: int = 0
    loader: Loader = field(init=False)
    dice: Random = field(init=False)

    def __post_init__(self) -> None:
        self.loader = Loader(self.workspace_id)
        self.dice = Random(f"population {self.seed}")  # noqa: S311  (no secrets here)

    def plant(self) -> int:
        """Write the population; how many runs it has. Repeated, it is there twice."""
        projects = [
            ensure_project(self.workspace_id, name).pk
            for name, share in PROJECTS
            for _ in range(share)
        ]
        partitions.ensure_covered(self.until)
        with in_bulk():
            self._sow(projects)
        self._analyze()
        processor.settle_everything()
        return self.made

    def _sow(self, projects: Sequence[UUID]) -> None:
        batch: list[Placed] = []
        for trace in self._traces():
            project_id = projects[int(self.dice.random() * len(projects))]
            if len(trace) >= self.largest:
                project_id = projects[0]
            batch += [(project_id, run) for run in trace]
            self.made += len(trace)
            if len(batch) >= _BATCH:
                self._write(batch)
                batch = []
        self._write(batch)

    def _traces(self) -> Iterator[list[SeededRun]]:
        """Traces in order, spread over the days; the largest in the last hour."""
        stock = Stock(self.seed)
        builder = Builder(stock, self.dice)
        begin, span = self.until - timedelta(days=self.days), timedelta(days=self.days)
        largest_at = max(self.runs - self.largest - 1, 0) if self.runs > 2 * self.largest else None
        while self.made < self.runs:
            at = begin + span * (self.made / self.runs)
            if largest_at is not None and self.made >= largest_at:
                largest_at = None
                yield builder.largest(self.until - timedelta(hours=6), self.largest)
                continue
            yield builder.trace(at + timedelta(milliseconds=self.dice.randrange(1000)))

    @transaction.atomic
    def _write(self, batch: Sequence[Placed]) -> None:
        if not batch:
            return
        self.loader.attachments = dict(self._attached(batch))
        self.loader.load(batch)
        self._count(batch)
        self._give_feedback(batch)
        # What is kept for whole stretches of time, like statistics, is told of each of them once.
        queue.append(self.workspace_id, self._one_of_each_stretch(batch))
        self.progress(self.made)

    def _attached(self, batch: Sequence[Placed]) -> Iterator[tuple[UUID, bytes]]:
        for _, run in batch:
            if self.files >= _MOST_FILES or self.dice.random() > _FILES:
                continue
            self.files += 1
            name, content = f"notes-{self.files}.txt", run.step.name.encode()
            path = f"attachments/{self.workspace_id}/{run.id}/{name}"
            default_storage.save(path, ContentFile(content))
            said = {"path": path, "mime_type": "text/plain", "size": len(content)}
            yield run.id, dumps({name: said})

    def _count(self, batch: Sequence[Placed]) -> None:
        """The ledger's rows: when seeded runs came is when they happened."""
        runs: Counter[tuple[UUID, datetime]] = Counter()
        traces: Counter[tuple[UUID, datetime]] = Counter()
        last: dict[tuple[UUID, datetime], datetime] = {}
        for project_id, run in batch:
            key = project_id, run.start_time.replace(minute=0, second=0, microsecond=0)
            runs[key] += 1
            traces[key] += run.parent is None
            last[key] = max(last.get(key, run.start_time), run.start_time)
        RunCount.objects.for_workspace(self.workspace_id).bulk_create(
            RunCount(
                workspace_id=self.workspace_id,
                project_id=key[0],
                hour=key[1],
                runs=count,
                traces=traces[key],
                last_start_time=last[key],
            )
            for key, count in runs.items()
        )

    def _give_feedback(self, batch: Sequence[Placed]) -> None:
        roots = [one for one in batch if one[1].parent is None and self.dice.random() < _FEEDBACK]
        Feedback.objects.for_workspace(self.workspace_id).bulk_create(
            Feedback(
                workspace_id=self.workspace_id,
                id=UUID(int=self.dice.getrandbits(128), version=4),
                run_id=run.id,
                trace_id=run.trace_id,
                project_id=project_id,
                is_root=True,
                start_time=run.start_time,
                thread_key=run.context.thread,
                created_at=run.end_time or run.start_time,
                key=self.dice.choice(_KEYS),
                score=self.dice.choice((0.0, 1.0, 1.0, 1.0)),
                source={"type": "api"},
            )
            for project_id, run in roots
        )

    @staticmethod
    def _one_of_each_stretch(batch: Sequence[Placed]) -> Iterator[Touched]:
        seen: dict[tuple[UUID, datetime], Touched] = {}
        for project_id, run in batch:
            at = run.start_time
            stretch = at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)
            if (project_id, stretch) not in seen:
                seen[project_id, stretch] = Touched(run.id, project_id, at, run.trace_id)
        yield from seen.values()

    @staticmethod
    def _analyze() -> None:
        """What autovacuum would come to in its time: the planner's figures, and visible pages."""
        # A test is one transaction, in which nothing can be vacuumed.
        verb = "ANALYZE" if connection.in_atomic_block else "VACUUM (ANALYZE)"
        with connection.cursor() as cursor:
            for table in (*partitions.TABLES, Feedback._meta.db_table):
                cursor.execute(f"{verb} {table}")


def last_full_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
