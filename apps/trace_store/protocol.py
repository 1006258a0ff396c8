"""The one door to stored runs. PostgreSQL implements it; another store may."""

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
    """Reads runs of one workspace; a foreign id is an unknown id."""

    def existing(self, workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
        """Those of the ids that are runs of the workspace."""

    def get(
        self,
        workspace_id: UUID,
        run_id: UUID,
        *,
        project_id: UUID | None = None,
        payloads: Collection[Payload] = ALL_PAYLOADS,
    ) -> RunDetail | None:
        """The run; the newest one when several projects have that id and none is named."""

    def trace(
        self, workspace_id: UUID, trace_id: UUID, *, project_id: UUID | None = None
    ) -> Sequence[RunRow]:
        """All runs of the trace, depth first, parents before children."""

    def query(
        self,
        workspace_id: UUID,
        query: RunQuery,
        *,
        limit: int,
        cursor: str | None = None,
        payloads: Collection[Payload] = NO_PAYLOADS,
    ) -> RunPage:
        """A page of runs, newest first unless asked otherwise.

        Stable while runs arrive: a cursor names the last run seen, not a number of rows. Raises
        `InvalidCursor` for one that this store did not make, and `QueryTooSlow` when the time that
        a query may take went by without a match; with some, the page is not full and leads on.
        """

    def project_stats(
        self, workspace_id: UUID, project_ids: Collection[UUID], *, since: datetime | None = None
    ) -> Mapping[UUID, ProjectStats]:
        """Counts of each project, without a look at its runs; all of them are in the answer."""

    def aggregate(self, workspace_id: UUID, question: MetricsQuery) -> MetricsResult:
        """Counts, sums and quantiles of the query's runs, by buckets of time and by groups.

        From rollups where they can tell. Where runs must be looked at and there are too many, only
        the newest are, and the answer says since when.
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
        """A page of conversations with a turn that the query means, the newest turn first.

        What is told is about those turns; with `whole`, about all that the conversation has in the
        query's projects and time.
        """

    def thread(self, workspace_id: UUID, thread_key: str, query: RunQuery) -> ThreadRow | None:
        """One conversation; what is told is about those of its turns that the query means."""
