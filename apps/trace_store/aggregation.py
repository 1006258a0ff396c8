"""Queries for metrics of runs and for threads, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from apps.trace_store.metrics import ALL_MEASURES, Measure, RunMetrics, merge_metrics
from apps.trace_store.types import RunQuery


class GroupAttribute(StrEnum):
    """Attributes to group runs by."""

    NAME = "name"
    RUN_TYPE = "run_type"
    STATUS = "status"
    MODEL = "model"
    PROJECT = "project"
    TAG = "tag"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class GroupBy:
    attribute: GroupAttribute
    path: str = ""
    """The metadata key."""
    max_groups: int = 5
    """Only the groups with the most runs are returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsQuery:
    """Which metrics of the runs of a query to compute."""

    query: RunQuery
    edges: Sequence[datetime] | None = None
    """Edges of time buckets; each bucket includes its lower edge and excludes its upper edge."""
    group_by: GroupBy | None = None
    depth: int | None = None
    """Only runs at this depth: 0 for roots, 1 for their children."""
    measures: Sequence[Measure] = ALL_MEASURES
    quantiles: Sequence[float] | None = (0.5, 0.99)
    """Quantiles that are exact if all runs are read. With None, metrics of buckets can be merged:
    they have histograms."""
    details: bool = False


@dataclass(slots=True)
class MetricsResult:
    """Metrics by bucket and group; buckets and groups without runs are absent."""

    by_bucket: Mapping[tuple[int, str | None], RunMetrics]
    counted_since: datetime | None = None
    """Set if there were too many runs: only those after this partition time are counted."""
    group_count: int = 0
    """The number of groups before `max_groups` limits them; 0 without groups."""
    by_group: dict[str | None, RunMetrics] = field(init=False)

    def __post_init__(self) -> None:
        self.by_group = {}
        for (_, group), metrics in self.by_bucket.items():
            if group in self.by_group:
                self.by_group[group].add(metrics)
            else:
                self.by_group[group] = merge_metrics([metrics])

    @property
    def overall(self) -> RunMetrics:
        return self.by_group.get(None) or RunMetrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSummary:
    """A thread; its turns are root runs."""

    project_id: UUID
    thread_key: str
    metrics: RunMetrics = field(default_factory=RunMetrics)
    """Metrics of its turns, with the tokens and costs of their traces."""
    first_start: datetime
    last_start: datetime
    last_end: datetime | None
    first_trace_id: UUID
    last_trace_id: UUID
    first_inputs: str | None
    """A preview, like the following fields."""
    last_outputs: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class ThreadPage:
    threads: Sequence[ThreadSummary]
    total: int
