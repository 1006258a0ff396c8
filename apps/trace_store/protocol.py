"""The interface of the run store. PostgreSQL implements it; another store may.

Arguments and results are values of `types`, `run_writes` and `aggregation`. All methods but those
of `StoreMaintenance` concern one workspace; an id of another workspace counts as unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from apps.trace_store.aggregation import MetricsQuery, MetricsResult, ThreadPage, ThreadSummary
from apps.trace_store.run_writes import FinishedRun, RunWrite
from apps.trace_store.types import (
    ChangedRun,
    ExampleRuns,
    ExperimentRun,
    Payload,
    PlaceholderRoot,
    ProjectStats,
    RetentionCutoffs,
    RunDetail,
    RunKey,
    RunLocation,
    RunPage,
    RunQuery,
    RunRow,
    StartCriterion,
    StartMatch,
    SubtreeMove,
    TraceTimes,
)

NO_PAYLOADS: frozenset[Payload] = frozenset()
ALL_PAYLOADS: frozenset[Payload] = frozenset(Payload)


class RunReader(Protocol):
    """Reads runs."""

    def find_existing_ids(self, workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
        """Return the ids that are runs of the workspace."""

    def locate(self, workspace_id: UUID, run_ids: Collection[UUID]) -> dict[UUID, RunLocation]:
        """Return the project and position of each run.

        If several projects have a run with the id, the run received last is returned.
        """

    def fetch_rows(self, workspace_id: UUID, run_ids: Collection[UUID]) -> Sequence[RunRow]:
        """Return the runs with these ids in all projects, without totals of descendants."""

    def fetch_rows_by_key(self, workspace_id: UUID, keys: Sequence[RunKey]) -> Sequence[RunRow]:
        """Return the runs with these keys, without totals of descendants."""

    def get(
        self,
        workspace_id: UUID,
        run_id: UUID,
        *,
        project_id: UUID | None = None,
        payloads: Collection[Payload] = ALL_PAYLOADS,
    ) -> RunDetail | None:
        """Return the run; without `project_id`, the newest one if several projects have that id."""

    def fetch_trace(
        self, workspace_id: UUID, trace_id: UUID, *, project_id: UUID | None = None
    ) -> Sequence[RunRow]:
        """Return all runs of the trace, depth first, parents before children."""

    def query(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        limit: int,
        cursor: str | None = None,
        payloads: Collection[Payload] = NO_PAYLOADS,
    ) -> RunPage:
        """Return a page of runs, newest first unless the query says otherwise.

        A query with a `sort` is in the order of that value, which changes while descendants of a
        run arrive; its cursors are only valid for the same order. Pages by start are stable while
        runs arrive, because a cursor names the last run seen. Raises `InvalidCursor` for a
        malformed cursor and `QueryTooSlow` if no run matches within the time limit; a page by start
        with some matches is then short and has a cursor.
        """

    def load_payloads(
        self, runs: Sequence[RunDetail], payloads: Collection[Payload]
    ) -> Sequence[RunDetail]:
        """Return these runs of one workspace, in their order, with the payloads.

        Of many runs with large payloads, only the first are loaded: see `RunDetail`.
        """

    def find_examples(
        self,
        workspace_id: UUID,
        project_ids: Collection[UUID],
        *,
        matching: Sequence[RunQuery] = (),
        example_ids: Collection[UUID] | None = None,
        after: tuple[datetime, UUID] | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Sequence[ExampleRuns]:
        """Return the examples that root runs of the experiments refer to, the first run first.

        `matching` keeps the examples with a root run in each of the queries. `after` is the first
        time and the id of the last example of the previous page.
        """

    def fetch_example_runs(
        self,
        workspace_id: UUID,
        project_ids: Collection[UUID],
        examples: Sequence[ExampleRuns],
        *,
        payloads: Collection[Payload],
    ) -> Sequence[RunDetail]:
        """Return the root runs of the experiments that refer to the examples, oldest first."""

    def list_experiment_runs(self, workspace_id: UUID, query: RunQuery) -> Sequence[ExperimentRun]:
        """Return the root runs of the query that refer to an example, in any order."""

    def experiment_runs_sql(
        self, workspace_id: UUID, project_ids: Collection[UUID]
    ) -> tuple[str, list[Any]]:
        """Return a PostgreSQL query and its parameters, to join runs with other tables.

        The query lists the root runs of the experiments that refer to an example, in the columns
        `project_id`, `example_id` and `run_id`. A store outside of PostgreSQL returns `unnest` of
        arrays of ids.
        """

    def membership_sql(
        self, workspace_id: UUID, query: RunQuery, run_id: str
    ) -> tuple[str, list[Any]]:
        """Return a PostgreSQL condition and its parameters, to join runs with other tables.

        The condition is true if the column `run_id` names a run of the query. A store outside of
        PostgreSQL compares the column with an array of ids.
        """

    def project_stats(
        self, workspace_id: UUID, project_ids: Collection[UUID], *, since: datetime | None = None
    ) -> Mapping[UUID, ProjectStats]:
        """Return the counts of each project, from counters; every project has an entry."""

    def aggregate(self, workspace_id: UUID, metrics_query: MetricsQuery) -> MetricsResult:
        """Return counts, sums and quantiles of the runs, by time bucket and group.

        Uses rollups where possible and reads the runs otherwise. If there are too many, only the
        newest are counted, and the result's `counted_since` is set.
        """

    def query_threads(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        offset: int = 0,
        limit: int = 20,
        all_turns: bool = False,
    ) -> ThreadPage:
        """Return a page of the threads with a matching turn, ordered by newest turn.

        The metrics cover the matching turns; with `all_turns`, all turns in the projects and time
        range of the query.
        """

    def fetch_thread(
        self, workspace_id: UUID, thread_key: str, query: RunQuery
    ) -> ThreadSummary | None:
        """Return one thread, with metrics of its matching turns."""

    def fetch_turn_numbers(
        self, workspace_id: UUID, project_id: UUID, thread_key: str
    ) -> dict[UUID, int]:
        """Return the number of each turn in the thread, from 1, by trace id."""

    def fetch_trace_times(
        self, workspace_id: UUID, trace_ids: Collection[UUID]
    ) -> dict[UUID, TraceTimes]:
        """Return for each trace the first and last start of its runs and the first receipt."""

    def fetch_first_token_times(
        self, workspace_id: UUID, rows: Sequence[RunRow]
    ) -> dict[UUID, datetime]:
        """Return the earliest first token time of each run and its descendants, by run id."""

    def fetch_frequent_metadata_values(
        self,
        workspace_id: UUID,
        project_id: UUID,
        *,
        keys: Collection[str] | None,
        since: datetime | None,
        values_per_key: int,
    ) -> Mapping[str, Sequence[str]]:
        """Return the most frequent values by key of recent runs, the most frequent key first."""

    def fetch_metadata_values(
        self, workspace_id: UUID, project_id: UUID, key: str
    ) -> Sequence[tuple[str, datetime]]:
        """Return the values of the key in traces, as text, with the first start time of each.

        The newest value comes first.
        """


class RunWriter(Protocol):
    """Writes runs. Every write counts them and queues them for post-processing."""

    def transaction(self, *, optimistic: bool) -> AbstractContextManager[None]:
        """A transaction for `write`; with `optimistic`, it raises `WriteConflict` on conflicts.

        It is also the transaction of the caller's own tables: both are stored, or neither.
        """

    def write(
        self,
        workspace_id: UUID,
        runs: Sequence[RunWrite],
        *,
        optimistic: bool,
    ) -> None:
        """Store the runs in a `transaction`. Safe to repeat.

        An update overwrites stored values, a create fills gaps. A run id is one run per project:
        a write with another position moves the stored run. With `optimistic`, creates are only
        inserted, which conflicts if a run exists.
        """

    def offload_payloads(
        self, workspace_id: UUID, run_id: UUID, payloads: Mapping[Payload, bytes]
    ) -> Mapping[Payload, bytes]:
        """Put large payloads in object storage; return the values to write. Call it before `write`.

        Raises `Unavailable` if object storage rejects a payload; the run must not be stored then.
        """

    def enqueue(self, workspace_id: UUID, changed_runs: Iterable[ChangedRun]) -> None:
        """Queue changed runs for post-processing in the caller's transaction."""

    def retain_traces(self, workspace_id: UUID, trace_ids: Collection[UUID]) -> None:
        """Keep the traces until the long cutoff of their project. Safe to repeat."""

    def fetch_dotted_orders(
        self, workspace_id: UUID, run_ids: Collection[UUID], *, begin: datetime, end: datetime
    ) -> dict[UUID, str]:
        """Return the dotted orders of the stored runs with partition times in the range."""

    def find_by_start(
        self, workspace_id: UUID, criteria: Sequence[StartCriterion], tolerance: timedelta
    ) -> Sequence[StartMatch]:
        """Find created runs by project, start and name, the nearest start first."""

    def move_subtrees(
        self,
        workspace_id: UUID,
        moves: Sequence[SubtreeMove],
        *,
        old_trace_id: UUID,
        new_trace_id: UUID,
        begin: datetime,
        end: datetime,
    ) -> None:
        """Move subtrees of the old trace, possibly to another trace.

        The runs have partition times between `begin` and `end`.
        """

    def insert_placeholder(
        self, workspace_id: UUID, root: PlaceholderRoot, columns: Mapping[str, Any]
    ) -> None:
        """Insert a placeholder root with known values, so that the trace is visible at once."""

    def delete_placeholder(self, workspace_id: UUID, root: PlaceholderRoot) -> None:
        """Delete the placeholder of a root that arrived."""

    def end_placeholder(
        self,
        workspace_id: UUID,
        root: PlaceholderRoot,
        *,
        start_time: datetime,
        end_time: datetime,
    ) -> bool:
        """Set start and end of a placeholder; return False if its root arrived meanwhile."""


class RunRemover(Protocol):
    """Removes runs with all related rows, see `hooks.register_removal`."""

    def delete_traces(
        self, workspace_id: UUID, project_id: UUID, trace_ids: Collection[UUID]
    ) -> int:
        """Delete a batch of the traces' runs in the project; return their number, 0 at the end."""

    def delete_project_runs(self, workspace_id: UUID, project_id: UUID) -> int:
        """Delete a batch of the project's runs; return their number, 0 at the end."""

    def delete_project(self, workspace_id: UUID, project_id: UUID) -> None:
        """Delete the remaining data of a project whose runs were deleted."""

    def delete_pending_files(self) -> None:
        """Delete the files of removed runs. Safe to interrupt."""

    def expire(self, cutoffs: Mapping[UUID, Sequence[RetentionCutoffs]]) -> None:
        """Remove the runs that have expired by the cutoffs of each workspace's projects.

        Idempotent, safe to run concurrently and to interrupt.
        """


class StoreMaintenance(Protocol):
    """Periodic work on all workspaces. Safe to repeat, to run concurrently and to interrupt."""

    def create_partitions(self) -> None:
        """Create the partitions of coming days."""

    def process_pending(self, seconds: float | None = None) -> int:
        """Post-process received runs until none is left or time is up; return their number."""

    def index_term_backlog(self, seconds: float) -> int:
        """Index runs of an earlier version again until none is left or time is up."""

    def count_pending_entries(self) -> int:
        """Return the number of writes whose runs await post-processing."""

    def rebuild_rollups(self) -> int:
        """Rebuild the rollups of intervals with changed runs; return the number of intervals."""

    def compact_run_counts(self) -> None:
        """Merge the run counts of each project and past hour into one row."""

    def bulk_load(self) -> AbstractContextManager[None]:
        """Set options for `append_finished`; update statistics at the end."""

    def compress(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        """Return the stored form of payloads for `append_finished`."""

    def append_finished(self, workspace_id: UUID, runs: Sequence[FinishedRun]) -> None:
        """Append new runs in the state after post-processing, in the caller's transaction."""


class RunStore(RunReader, RunWriter, RunRemover, StoreMaintenance, Protocol):
    """The complete interface to stored runs."""
