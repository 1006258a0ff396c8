"""Generates projects, traces over many days, feedback, attachments and counts in a workspace."""

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
from apps.ingest.seeding.loader import Loader, PlacedRun
from apps.ingest.seeding.steps import StepLibrary
from apps.ingest.seeding.traces import LARGEST_TRACE_RUNS, SeededRun, TraceBuilder
from apps.trace_store import ChangedRun, run_store
from apps.trace_store.models import RunCount
from apps.tracing.services import ensure_project

PROJECTS = (("seed", 60), ("seed-support", 25), ("seed-research", 10), ("seed-evaluation", 5))
"""Project names with their percentage of the traces."""
_BATCH_SIZE = 5_000
_FEEDBACK_SHARE = 0.05
_FILE_SHARE = 1 / 5_000
_MAX_FILES = 500
_FEEDBACK_KEYS = ("user_score", "helpfulness", "correctness")

Progress = Callable[[int], None]


@dataclass(slots=True)
class PopulationGenerator:
    """Generates `runs` runs over `days` days; the same seed gives the same population."""

    workspace_id: UUID
    runs: int
    days: int
    seed: int
    until: datetime
    progress: Progress = field(default=lambda _: None)
    largest: int = LARGEST_TRACE_RUNS
    run_count: int = 0
    file_count: int = 0
    loader: Loader = field(init=False)
    rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self.loader = Loader(self.workspace_id)
        self.rng = Random(f"population {self.seed}")  # noqa: S311  (no secrets here)

    def generate(self) -> int:
        """Write the population and return its number of runs. Repeating adds it again."""
        projects = [
            ensure_project(self.workspace_id, name).pk
            for name, share in PROJECTS
            for _ in range(share)
        ]
        run_store.create_partitions()
        with run_store.bulk_load():
            self._generate_traces(projects)
        self._analyze()
        run_store.process_pending()
        return self.run_count

    def _generate_traces(self, projects: Sequence[UUID]) -> None:
        batch: list[PlacedRun] = []
        for trace in self._traces():
            project_id = projects[int(self.rng.random() * len(projects))]
            if len(trace) >= self.largest:
                project_id = projects[0]
            batch += [(project_id, run) for run in trace]
            self.run_count += len(trace)
            if len(batch) >= _BATCH_SIZE:
                self._write(batch)
                batch = []
        self._write(batch)

    def _traces(self) -> Iterator[list[SeededRun]]:
        """Yield traces in order of time, with the largest trace six hours before the end."""
        builder = TraceBuilder(StepLibrary(self.seed), self.rng)
        begin, span = self.until - timedelta(days=self.days), timedelta(days=self.days)
        largest_at = max(self.runs - self.largest - 1, 0) if self.runs > 2 * self.largest else None
        while self.run_count < self.runs:
            start_time = begin + span * (self.run_count / self.runs)
            if largest_at is not None and self.run_count >= largest_at:
                largest_at = None
                yield builder.build_largest(self.until - timedelta(hours=6), self.largest)
                continue
            yield builder.build_trace(start_time + timedelta(milliseconds=self.rng.randrange(1000)))

    @transaction.atomic
    def _write(self, batch: Sequence[PlacedRun]) -> None:
        if not batch:
            return
        self.loader.attachments = dict(self._attachments(batch))
        self.loader.load(batch)
        self._count(batch)
        self._add_feedback(batch)
        # Post-processing of one run per rollup interval is enough.
        run_store.enqueue(self.workspace_id, self._one_run_per_interval(batch))
        self.progress(self.run_count)

    def _attachments(self, batch: Sequence[PlacedRun]) -> Iterator[tuple[UUID, bytes]]:
        for _, run in batch:
            if self.file_count >= _MAX_FILES or self.rng.random() > _FILE_SHARE:
                continue
            self.file_count += 1
            name, content = f"notes-{self.file_count}.txt", run.step.name.encode()
            path = f"attachments/{self.workspace_id}/{run.id}/{name}"
            default_storage.save(path, ContentFile(content))
            attachment = {"path": path, "mime_type": "text/plain", "size": len(content)}
            yield run.id, dumps({name: attachment})

    def _count(self, batch: Sequence[PlacedRun]) -> None:
        """Add run counts; the time of receipt is the start time."""
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

    def _add_feedback(self, batch: Sequence[PlacedRun]) -> None:
        roots = [
            item for item in batch if item[1].parent is None and self.rng.random() < _FEEDBACK_SHARE
        ]
        Feedback.objects.for_workspace(self.workspace_id).bulk_create(
            Feedback(
                workspace_id=self.workspace_id,
                id=UUID(int=self.rng.getrandbits(128), version=4),
                run_id=run.id,
                trace_id=run.trace_id,
                project_id=project_id,
                is_root=True,
                start_time=run.start_time,
                thread_key=run.context.thread,
                created_at=run.end_time or run.start_time,
                key=self.rng.choice(_FEEDBACK_KEYS),
                score=self.rng.choice((0.0, 1.0, 1.0, 1.0)),
                source={"type": "api"},
            )
            for project_id, run in roots
        )

    @staticmethod
    def _one_run_per_interval(batch: Sequence[PlacedRun]) -> Iterator[ChangedRun]:
        runs_by_key: dict[tuple[UUID, datetime], ChangedRun] = {}
        for project_id, run in batch:
            start = run.start_time
            interval = start.replace(minute=start.minute // 15 * 15, second=0, microsecond=0)
            runs_by_key.setdefault(
                (project_id, interval), ChangedRun(run.id, project_id, start, run.trace_id)
            )
        yield from runs_by_key.values()

    @staticmethod
    def _analyze() -> None:
        """Update planner statistics and the visibility map, which autovacuum would do later."""
        # VACUUM cannot run in the transaction of a test.
        verb = "ANALYZE" if connection.in_atomic_block else "VACUUM (ANALYZE)"
        with connection.cursor() as cursor:
            cursor.execute(f"{verb} {Feedback._meta.db_table}")


def last_full_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
