"""Retention policies, and the removal of expired traces; see docs/adr/0020-retention.md.

Lowering the tier of a project affects only traces that are received later; raising it affects all
of its traces. Feedback makes a trace long-lived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.organizations.models import Organization, Workspace
from apps.trace_store import RunRow, run_store
from apps.trace_store.models import RetainedTrace
from apps.trace_store.types import RetentionCutoffs
from apps.tracing.models import Project, Retention, TraceTier

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The policy in effect; None means unlimited retention."""

    default_tier: str
    long_seconds: int | None
    short_seconds: int | None

    def seconds(self, tier: str) -> int | None:
        return self.short_seconds if tier == TraceTier.SHORT else self.long_seconds

    def cutoff(self, tier: str, now: datetime) -> datetime | None:
        """Return the time before which traces of the tier have expired; None if unlimited."""
        seconds = self.seconds(tier)
        return None if seconds is None else now - timedelta(seconds=seconds)


def policy_for_workspace(workspace: Workspace) -> RetentionPolicy:
    """Return the policy of the workspace; unset fields come from organization or installation."""
    return _resolve_policy(Retention.objects.reaching(workspace))


def policy_for_organization(organization: Organization) -> RetentionPolicy:
    return _resolve_policy(Retention.objects.filter(organization=organization, workspace=None))


def _resolve_policy(settings_rows: Iterable[Retention]) -> RetentionPolicy:
    rows = list(settings_rows)
    tiers = [row.default_trace_tier for row in rows if row.default_trace_tier]
    long = [row.longlived_ttl_seconds for row in rows if row.longlived_ttl_seconds is not None]
    short = [row.shortlived_ttl_seconds for row in rows if row.shortlived_ttl_seconds is not None]
    return RetentionPolicy(
        default_tier=tiers[0] if tiers else TraceTier.LONG,
        long_seconds=long[0] if long else _days_to_seconds(settings.TRACE_RETENTION_DAYS),
        short_seconds=short[0] if short else _days_to_seconds(settings.TRACE_RETENTION_SHORT_DAYS),
    )


def _days_to_seconds(days: int) -> int | None:
    return days * 86_400 or None


@transaction.atomic
def set_policy(
    *,
    organization_id: UUID,
    workspace_id: UUID | None,
    changes: Mapping[str, Any],
    all_projects: bool = False,
) -> None:
    """Set the policy of the workspace, or the default of the organization.

    With `all_projects`, existing projects get the default tier as well.
    """
    # workspace_id None is the organization's row; the stubs do not accept None here.
    owner: dict[str, Any] = {"organization_id": organization_id, "workspace_id": workspace_id}
    rows = Retention.objects.filter(**owner)
    before = rows.values(*changes).first() if changes else None
    record(
        Action.RETENTION_CHANGED,
        Target("retention", workspace_id or organization_id),
        before=before or dict.fromkeys(changes),
        after={**changes, "apply_to_all_projects": all_projects or None},
        **owner,
    )
    Retention.objects.update_or_create(**owner, defaults=changes)
    tier = changes.get("default_trace_tier")
    if not all_projects or tier is None:
        return
    workspace_ids = [workspace_id] if workspace_id else _workspace_ids(organization_id)
    for affected_id in workspace_ids:
        for project in (
            Project.objects.for_workspace(affected_id).present().exclude(trace_tier=tier)
        ):
            set_tier(project, tier)
            project.save(update_fields=["trace_tier", "short_since", "updated_at"])


def _workspace_ids(organization_id: UUID) -> list[UUID]:
    rows = Workspace.objects.filter(organization_id=organization_id)
    return list(rows.values_list("pk", flat=True))


def set_tier(project: Project, tier: str) -> None:
    """Set the tier of new traces on the project, which the caller saves."""
    project.trace_tier = tier
    if tier == TraceTier.LONG:
        project.short_since = None
    elif project.short_since is None:
        project.short_since = timezone.now()


def upgrade_traces(workspace_id: UUID, trace_ids: Collection[UUID]) -> None:
    """Make the traces long-lived, in the caller's transaction. Idempotent and race-safe.

    Costs one index lookup if the workspace has no short-lived project.
    """
    if not trace_ids:
        return
    projects = Project.objects.for_workspace(workspace_id).present()
    if projects.filter(short_since__isnull=False).exists():
        run_store.retain_traces(workspace_id, trace_ids)


def tiers_for_runs(workspace_id: UUID, rows: Collection[RunRow]) -> dict[UUID, tuple[str, bool]]:
    """Return the tier of each trace by id, and whether feedback upgraded it."""
    projects = {row.project_id for row in rows}
    short_since = {
        project.pk: project.short_since
        for project in Project.objects.for_workspace(workspace_id).filter(
            pk__in=projects, short_since__isnull=False
        )
        if project.short_since is not None
    }
    short_or_upgraded = {
        row.trace_id
        for row in rows
        if row.project_id in short_since and row.received_at >= short_since[row.project_id]
    }
    upgraded: set[UUID] = set()
    if short_or_upgraded:
        upgraded = set(
            RetainedTrace.objects.for_workspace(workspace_id)
            .filter(trace_id__in=short_or_upgraded)
            .values_list("trace_id", flat=True)
        )
    return {
        row.trace_id: (
            TraceTier.SHORT if row.trace_id in short_or_upgraded - upgraded else TraceTier.LONG,
            row.trace_id in upgraded,
        )
        for row in rows
    }


def expire_traces(now: datetime | None = None) -> None:
    """Remove expired traces. Idempotent, safe to run concurrently and to interrupt."""
    now = now or timezone.now()
    cutoffs = {workspace.pk: _cutoffs(workspace, now) for workspace in Workspace.objects.all()}
    run_store.expire(cutoffs)


def _cutoffs(workspace: Workspace, now: datetime) -> list[RetentionCutoffs]:
    """The cutoffs of the workspace's projects."""
    policy = policy_for_workspace(workspace)
    long, short = policy.cutoff(TraceTier.LONG, now), policy.cutoff(TraceTier.SHORT, now)
    projects = Project.objects.for_workspace(workspace).present()
    return [
        RetentionCutoffs(project_id, long if days is None else now - days * _DAY, short, since)
        for project_id, days, since in projects.values_list("pk", "long_days", "short_since")
    ]
