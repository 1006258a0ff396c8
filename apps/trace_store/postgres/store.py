"""The PostgreSQL implementation of `RunStore`; see docs/adr/0005 (tables) and 0019 (reads)."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.aggregation import MetricsQuery, MetricsResult, ThreadPage, ThreadRow
from apps.trace_store.postgres.reading import lookup, pages
from apps.trace_store.postgres.reading.locations import locate_runs
from apps.trace_store.postgres.statistics import run_metrics, thread_pages
from apps.trace_store.protocol import ALL_PAYLOADS, NO_PAYLOADS
from apps.trace_store.types import Payload, ProjectStats, RunDetail, RunPage, RunQuery, RunRow


class PostgresRunStore:
    """Implements `RunStore`."""

    def existing(self, workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
        return set(locate_runs(workspace_id, run_ids))

    def get(
        self,
        workspace_id: UUID,
        run_id: UUID,
        *,
        project_id: UUID | None = None,
        payloads: Collection[Payload] = ALL_PAYLOADS,
    ) -> RunDetail | None:
        return lookup.fetch_run(workspace_id, run_id, project_id=project_id, payloads=payloads)

    def trace(
        self, workspace_id: UUID, trace_id: UUID, *, project_id: UUID | None = None
    ) -> Sequence[RunRow]:
        return lookup.fetch_trace(workspace_id, trace_id, project_id=project_id)

    def query(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        limit: int,
        cursor: str | None = None,
        payloads: Collection[Payload] = NO_PAYLOADS,
    ) -> RunPage:
        return pages.query_page(workspace_id, query, limit=limit, cursor=cursor, payloads=payloads)

    def threads(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        offset: int = 0,
        limit: int = 20,
        whole: bool = False,
    ) -> ThreadPage:
        return thread_pages.query_threads(
            self, workspace_id, query, offset=offset, limit=limit, whole=whole
        )

    def thread(self, workspace_id: UUID, thread_key: str, query: RunQuery) -> ThreadRow | None:
        return thread_pages.get_thread(self, workspace_id, thread_key, query)

    def aggregate(self, workspace_id: UUID, question: MetricsQuery) -> MetricsResult:
        return run_metrics.query_metrics(self, workspace_id, question)

    def project_stats(
        self, workspace_id: UUID, project_ids: Collection[UUID], *, since: datetime | None = None
    ) -> Mapping[UUID, ProjectStats]:
        result = dict.fromkeys(project_ids, ProjectStats())
        values: list[Any] = [workspace_id, list(project_ids)]
        limited = ""
        if since is not None:
            limited = "AND hour >= date_trunc('hour', %s::timestamptz, 'UTC')"
            values.append(since)
        statement = (
            "SELECT project_id, sum(runs - removed_runs)::bigint,"
            " sum(traces - removed_traces)::bigint, max(last_start_time)"
            " FROM tracing_runcount WHERE workspace_id = %s AND project_id = ANY(%s)"
            f" {limited} GROUP BY project_id"
        )
        with raw_cursor() as cursor:
            cursor.execute(sql(statement), values)
            result |= {row[0]: ProjectStats(*row[1:]) for row in cursor}
        return result
