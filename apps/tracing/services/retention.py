"""Retention policies; see docs/adr/0020-retention.md.

A trace has the tier that its project had when it was received: lowering the tier affects new
traces, raising it all traces. Feedback makes a trace long-lived.
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
from apps.core.raw_sql import raw_cursor
from apps.organizations.models import Organization, Workspace
from apps.trace_store import RunRow
from apps.tracing.models import Project, RetainedTrace, Retention, TraceTier


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
    """Return the policy of the workspace, inherited from organization and installation."""
    data = list(Retention.objects.reaching(workspace))
    return _resolve_policy(data)


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
    place: dict[str, Any] = {"organization_id": organization_id, "workspace_id": workspace_id}
    data = Retention.objects.filter(**place)
    before = data.values(*changes).first() if changes else None
    record(
        Action.RETENTION_CHANGED,
        Target("retention", workspace_id or organization_id),
        before=before or dict.fromkeys(changes),
        after={**changes, "apply_to_all_projects": all_projects or None},
        **place,
    )
    Retention.objects.update_or_create(**place, defaults=changes)
    tier = changes.get("default_trace_tier")
    if not all_projects or tier is None:
        return
    of = [workspace_id] if workspace_id else _workspace_ids(organization_id)
    for item in of:
        for project in Project.objects.for_workspace(item).present().exclude(trace_tier=tier):
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
    # Sorted, so that concurrent transactions with the same traces cannot deadlock.
    with raw_cursor() as cursor:
        cursor.execute(
            "INSERT INTO tracing_retainedtrace (id, created_at, workspace_id, trace_id)"
            " SELECT gen_random_uuid(), now(), %s, incoming.id"
            " FROM unnest(%s::uuid[]) AS incoming(id)"
            " WHERE EXISTS (SELECT 1 FROM tracing_project"
            " WHERE workspace_id = %s AND short_since IS NOT NULL AND deleted_at IS NULL)"
            " ON CONFLICT DO NOTHING",
            [workspace_id, sorted(set(trace_ids)), workspace_id],
        )


def tiers_for_runs(workspace_id: UUID, rows: Collection[RunRow]) -> dict[UUID, tuple[str, bool]]:
    """Return by trace id the tier, and whether feedback upgraded it."""
    projects = {row.project_id for row in rows}
    short = {
        project.pk: project.short_since
        for project in Project.objects.for_workspace(workspace_id).filter(
            pk__in=projects, short_since__isnull=False
        )
        if project.short_since is not None
    }
    doubtful = {
        row.trace_id
        for row in rows
        if row.project_id in short and row.received_at >= short[row.project_id]
    }
    kept: set[UUID] = set()
    if doubtful:
        kept = set(
            RetainedTrace.objects.for_workspace(workspace_id)
            .filter(trace_id__in=doubtful)
            .values_list("trace_id", flat=True)
        )
    return {
        row.trace_id: (
            TraceTier.SHORT if row.trace_id in doubtful - kept else TraceTier.LONG,
            row.trace_id in kept,
        )
        for row in rows
    }
