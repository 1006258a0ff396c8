"""The interface of the run store. PostgreSQL implements it; another store may."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from apps.trace_store.aggregation import MetricsQuery, MetricsResult, ThreadPage, ThreadRow
from apps.trace_store.types import Payload, ProjectStats, RunDetail, RunPage, RunQuery, RunRow

NO_PAYLOADS: frozenset[Payload] = frozenset()
ALL_PAYLOADS: frozenset[Payload] = frozenset(Payload)


class RunStore(Protocol):
    """Reads runs of one workspace. An id of another workspace counts as unknown."""

    def existing(self, workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
        """Return the ids that are runs of the workspace."""

    def get(
        self,
        workspace_id: UUID,
        run_id: UUID,
        *,
        project_id: UUID | None = None,
        payloads: Collection[Payload] = ALL_PAYLOADS,
    ) -> RunDetail | None:
        """Return the run; without `project_id`, the newest one if several projects have that id."""

    def trace(
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

        Stable while runs arrive, because a cursor names the last run seen. Raises `InvalidCursor`
        for a malformed cursor and `QueryTooSlow` if no run matches within the time limit; a page
        with some matches is then short and has a cursor.
        """

    def project_stats(
        self, workspace_id: UUID, project_ids: Collection[UUID], *, since: datetime | None = None
    ) -> Mapping[UUID, ProjectStats]:
        """Return the counts of each project, from counters; every project has an entry."""

    def aggregate(self, workspace_id: UUID, question: MetricsQuery) -> MetricsResult:
        """Return counts, sums and quantiles of the runs, by time bucket and group.

        Uses rollups where they can answer. Otherwise it counts runs; if there are too many, only
        the newest, and `counted_since` of the result says from when.
        """

    def threads(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        offset: int = 0,
        limit: int = 20,
        whole: bool = False,
    ) -> ThreadPage:
        """Return a page of threads with a turn that matches, ordered by newest turn.

        The metrics cover the matching turns; with `whole`, all turns in the projects and time
        range of the query.
        """

    def thread(self, workspace_id: UUID, thread_key: str, query: RunQuery) -> ThreadRow | None:
        """Return one thread, with metrics of its matching turns."""
