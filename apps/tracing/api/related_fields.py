"""Fields of runs that are stored in other tables, loaded for a page of runs together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.feedback.services import score_stats
from apps.organizations.models import Workspace
from apps.trace_store import RunRow, run_store
from apps.trace_store.types import TraceTimes
from apps.tracing.hooks import find_source_runs
from apps.tracing.models import Project, Share, TraceTier
from apps.tracing.services import retention
from apps.tracing.services.retention import RetentionPolicy

TRACE_TIME_FIELDS = frozenset({"trace_min_max_start_time", "trace_first_received_at"})


@dataclass(frozen=True, slots=True)
class RelatedFields:
    """Values by run, trace or project id; missing entries have no value."""

    feedback: Mapping[UUID, dict[str, Any]] = field(default_factory=dict)
    shares: Mapping[tuple[UUID, UUID], Share] = field(default_factory=dict)
    tiers: Mapping[UUID, tuple[str, bool]] = field(default_factory=dict)
    datasets: Mapping[UUID, UUID] = field(default_factory=dict)
    in_dataset: Collection[UUID] = ()
    """Runs that an example was made from."""
    times: Mapping[UUID, TraceTimes] = field(default_factory=dict)
    policy: RetentionPolicy | None = None
    long_days: Mapping[UUID, int] = field(default_factory=dict)
    """Retention days of projects that override the workspace's long-lived retention."""

    def share_token(self, row: RunRow) -> UUID | None:
        share = self.shares.get((row.project_id, row.trace_id))
        return share.token if share and (row.is_root or share.run_id == row.id) else None

    def tier(self, row: RunRow) -> tuple[str, bool]:
        """Return the trace's tier, and whether feedback upgraded it."""
        return self.tiers.get(row.trace_id, (TraceTier.LONG, False))

    def seconds(self, row: RunRow) -> int | None:
        """Return the trace's retention in seconds; None if unlimited."""
        tier, _ = self.tier(row)
        if tier == TraceTier.LONG and row.project_id in self.long_days:
            return self.long_days[row.project_id] * 86_400
        return None if self.policy is None else self.policy.seconds(tier)


def load_related_fields(
    workspace_id: UUID,
    rows: Collection[RunRow],
    selected: Collection[str] = (),
    *,
    with_source_runs: bool = False,
) -> RelatedFields:
    """Load the related fields of the rows with a constant number of queries."""
    if not rows:
        return RelatedFields()
    shares = Share.objects.for_workspace(workspace_id).filter(
        trace_id__in={row.trace_id for row in rows}
    )
    experiments = Project.objects.for_workspace(workspace_id).filter(
        pk__in={row.project_id for row in rows if row.reference_example_id is not None},
        reference_dataset_id__isnull=False,
    )
    return RelatedFields(
        feedback=score_stats.by_run(workspace_id, [row.id for row in rows]),
        shares={(share.project_id, share.trace_id): share for share in shares if share.trace_id},
        tiers=retention.tiers_for_runs(workspace_id, rows),
        datasets={
            project_id: dataset_id
            for project_id, dataset_id in experiments.values_list("pk", "reference_dataset_id")
            if dataset_id is not None
        },
        in_dataset=(
            find_source_runs(workspace_id, [row.id for row in rows]) if with_source_runs else ()
        ),
        times=(
            run_store.fetch_trace_times(workspace_id, {row.trace_id for row in rows})
            if TRACE_TIME_FIELDS & set(selected)
            else {}
        ),
        policy=(
            retention.policy_for_workspace(Workspace.objects.get(pk=workspace_id))
            if "ttl_seconds" in selected
            else None
        ),
        long_days=_project_retention_days(workspace_id, rows) if "ttl_seconds" in selected else {},
    )


def _project_retention_days(workspace_id: UUID, rows: Collection[RunRow]) -> dict[UUID, int]:
    projects = Project.objects.for_workspace(workspace_id).filter(
        pk__in={row.project_id for row in rows}, long_days__isnull=False
    )
    result = projects.values_list("pk", "long_days")
    return {project_id: days for project_id, days in result if days is not None}
