"""The PostgreSQL implementation of `RunStore`; see docs/adr/0005 (tables) and 0019 (reads)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from apps.trace_store.aggregation import MetricsQuery, MetricsResult, ThreadPage, ThreadSummary
from apps.trace_store.postgres import partitions, payload_storage, run_counts
from apps.trace_store.postgres.postprocess import processor, queue, term_backlog
from apps.trace_store.postgres.reading import (
    example_runs,
    lookup,
    metadata_values,
    sorted_pages,
    trace_times,
)
from apps.trace_store.postgres.reading.locations import locate_runs
from apps.trace_store.postgres.rollups import build
from apps.trace_store.postgres.statistics import run_metrics, run_selection, thread_pages
from apps.trace_store.postgres.writing import (
    bulk_load,
    delete_runs,
    expire,
    move_runs,
    write_runs,
)
from apps.trace_store.protocol import NO_PAYLOADS
from apps.trace_store.run_writes import RunWrite
from apps.trace_store.types import (
    ExampleRuns,
    ExperimentRun,
    Payload,
    RunDetail,
    RunKey,
    RunPage,
    RunQuery,
    RunRow,
)

if TYPE_CHECKING:
    from apps.trace_store.protocol import RunStore


class PostgresRunStore:
    """Implements `RunStore`; methods without logic of their own refer to functions."""

    locate = staticmethod(locate_runs)
    fetch_rows = staticmethod(lookup.fetch_rows)
    get = staticmethod(lookup.fetch_run)
    fetch_trace = staticmethod(lookup.fetch_trace)
    fetch_example_runs = staticmethod(example_runs.fetch_example_runs)
    project_stats = staticmethod(run_counts.project_stats)
    fetch_turn_numbers = staticmethod(trace_times.fetch_turn_numbers)
    fetch_first_token_times = staticmethod(trace_times.fetch_first_token_times)
    fetch_trace_times = staticmethod(trace_times.fetch_trace_times)
    fetch_frequent_metadata_values = staticmethod(metadata_values.find_frequent_values)
    fetch_metadata_values = staticmethod(metadata_values.find_values_with_first_start)

    transaction = staticmethod(write_runs.write_transaction)
    offload_payloads = staticmethod(payload_storage.offload)
    enqueue = staticmethod(queue.enqueue)
    retain_traces = staticmethod(expire.retain_traces)
    fetch_dotted_orders = staticmethod(move_runs.fetch_dotted_orders)
    find_by_start = staticmethod(move_runs.find_by_start)
    move_subtrees = staticmethod(move_runs.move_subtrees)
    insert_placeholder = staticmethod(move_runs.insert_placeholder)
    delete_placeholder = staticmethod(move_runs.delete_placeholder)
    end_placeholder = staticmethod(move_runs.end_placeholder)

    delete_traces = staticmethod(delete_runs.delete_trace_runs)
    delete_project_runs = staticmethod(delete_runs.delete_project_runs)
    delete_project = staticmethod(delete_runs.delete_project)
    delete_pending_files = staticmethod(delete_runs.delete_pending_files)
    expire = staticmethod(expire.expire)

    count_pending_entries = staticmethod(queue.count_entries)
    index_term_backlog = staticmethod(term_backlog.index_backlog)
    rebuild_rollups = staticmethod(build.rebuild_dirty_intervals)
    compact_run_counts = staticmethod(run_counts.compact)
    compress = staticmethod(payload_storage.compress_payloads)
    append_finished = staticmethod(bulk_load.append_runs)
    bulk_load = staticmethod(bulk_load.bulk_load)

    def find_existing_ids(self, workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
        return set(locate_runs(workspace_id, run_ids))

    def fetch_rows_by_key(self, workspace_id: UUID, keys: Sequence[RunKey]) -> Sequence[RunRow]:
        runs = lookup.fetch_by_keys(workspace_id, keys, payloads=NO_PAYLOADS)
        return [run.row for run in runs]

    def query(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        limit: int,
        cursor: str | None = None,
        payloads: Collection[Payload] = NO_PAYLOADS,
    ) -> RunPage:
        return sorted_pages.query_page(
            self, workspace_id, query, limit=limit, cursor=cursor, payloads=payloads
        )

    def load_payloads(
        self, runs: Sequence[RunDetail], payloads: Collection[Payload]
    ) -> list[RunDetail]:
        return payload_storage.with_payloads([run.row for run in runs], payloads, lazily=True)

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
        return example_runs.find_examples(
            self,
            workspace_id,
            project_ids,
            matching=matching,
            example_ids=example_ids,
            after=after,
            offset=offset,
            limit=limit,
        )

    def list_experiment_runs(self, workspace_id: UUID, query: RunQuery) -> Sequence[ExperimentRun]:
        return example_runs.list_experiment_runs(self, workspace_id, query)

    def experiment_runs_sql(
        self, workspace_id: UUID, project_ids: Collection[UUID]
    ) -> tuple[str, list[Any]]:
        return example_runs.experiment_runs_sql(workspace_id, project_ids)

    def membership_sql(
        self, workspace_id: UUID, query: RunQuery, run_id: str
    ) -> tuple[str, list[Any]]:
        return run_selection.membership_sql(self, workspace_id, query, run_id)

    def query_threads(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        offset: int = 0,
        limit: int = 20,
        all_turns: bool = False,
    ) -> ThreadPage:
        return thread_pages.query_threads(
            self, workspace_id, query, offset=offset, limit=limit, all_turns=all_turns
        )

    def fetch_thread(
        self, workspace_id: UUID, thread_key: str, query: RunQuery
    ) -> ThreadSummary | None:
        return thread_pages.fetch_thread(self, workspace_id, thread_key, query)

    def aggregate(self, workspace_id: UUID, metrics_query: MetricsQuery) -> MetricsResult:
        return run_metrics.query_metrics(self, workspace_id, metrics_query)

    def write(
        self,
        workspace_id: UUID,
        runs: Sequence[RunWrite],
        *,
        optimistic: bool,
    ) -> None:
        new_keys = write_runs.write_runs(runs, optimistic=optimistic)
        run_counts.record_write(workspace_id, runs, new_keys)

    def create_partitions(self) -> None:
        partitions.create_partitions()

    def process_pending(self, seconds: float | None = None) -> int:
        return processor.process_all() if seconds is None else processor.process_for(seconds)


if TYPE_CHECKING:
    _implements: RunStore = PostgresRunStore()
