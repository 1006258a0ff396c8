"""How long traces live: docs/adr/0020-retention.md.

A trace has its project's tier at the moment it came: lowering a tier concerns what comes from then
on, raising it all that is there. A trace that somebody gave feedback on is long-lived anyway.
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
from apps.tracing.models import KeptTrace, Project, Retention, TraceTier


@dataclass(frozen=True, slots=True)
class Lives:
    """What holds in a workspace; `None` seconds are without end."""

    default_tier: str
    long_seconds: int | None
    short_seconds: int | None

    def seconds(self, tier: str) -> int | None:
        return self.short_seconds if tier == TraceTier.SHORT else self.long_seconds

    def cutoff(self, tier: str, now: datetime) -> datetime | None:
        """What came before then has lived long enough."""
        seconds = self.seconds(tier)
        return None if seconds is None else now - timedelta(seconds=seconds)


def lives_of(workspace: Workspace) -> Lives:
    """The workspace's own word, else its organization's, else the installation's."""
    said = list(Retention.objects.reaching(workspace))
    return _lives(said)


def lives_of_organization(organization: Organization) -> Lives:
    return _lives(Retention.objects.filter(organization=organization, workspace=None))


def _lives(said: Iterable[Retention]) -> Lives:
    rows = list(said)
    tiers = [row.default_trace_tier for row in rows if row.default_trace_tier]
    long = [row.longlived_ttl_seconds for row in rows if row.longlived_ttl_seconds is not None]
    short = [row.shortlived_ttl_seconds for row in rows if row.shortlived_ttl_seconds is not None]
    return Lives(
        default_tier=tiers[0] if tiers else TraceTier.LONG,
        long_seconds=long[0] if long else _days(settings.TRACE_RETENTION_DAYS),
        short_seconds=short[0] if short else _days(settings.TRACE_RETENTION_SHORT_DAYS),
    )


def _days(days: int) -> int | None:
    return days * 86_400 or None


@transaction.atomic
def set_lives(
    *,
    organization_id: UUID,
    workspace_id: UUID | None,
    changes: Mapping[str, Any],
    all_projects: bool = False,
) -> None:
    """Say how long traces live in the workspace, or by default in its organization.

    With `all_projects`, those that are there take the default tier too.
    """
    # None is the organization's own row, which the stubs do not take for a value.
    place: dict[str, Any] = {"organization_id": organization_id, "workspace_id": workspace_id}
    said = Retention.objects.filter(**place)
    before = said.values(*changes).first() if changes else None
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
    of = [workspace_id] if workspace_id else _workspaces_of(organization_id)
    for one in of:
        for project in Project.objects.for_workspace(one).present().exclude(trace_tier=tier):
            set_tier(project, tier)
            project.save(update_fields=["trace_tier", "short_since", "updated_at"])


def _workspaces_of(organization_id: UUID) -> list[UUID]:
    found = Workspace.objects.filter(organization_id=organization_id)
    return list(found.values_list("pk", flat=True))


def set_tier(project: Project, tier: str) -> None:
    """Give a project, which the caller saves, its tier from now on."""
    project.trace_tier = tier
    if tier == TraceTier.LONG:
        project.short_since = None
    elif project.short_since is None:
        project.short_since = timezone.now()


def upgrade_traces(workspace_id: UUID, trace_ids: Collection[UUID]) -> None:
    """Make the traces long-lived, in the caller's transaction. Safe to repeat and to race.

    Costs a look at an index where the workspace has no short-lived project.
    """
    if not trace_ids:
        return
    # Many name the same traces at once; in one order, none waits in a circle.
    with raw_cursor() as cursor:
        cursor.execute(
            "INSERT INTO tracing_kepttrace (id, created_at, workspace_id, trace_id)"
            " SELECT gen_random_uuid(), now(), %s, said.id"
            " FROM unnest(%s::uuid[]) AS said(id)"
            " WHERE EXISTS (SELECT 1 FROM tracing_project"
            " WHERE workspace_id = %s AND short_since IS NOT NULL AND deleted_at IS NULL)"
            " ON CONFLICT DO NOTHING",
            [workspace_id, sorted(set(trace_ids)), workspace_id],
        )


def tiers_of(workspace_id: UUID, rows: Collection[RunRow]) -> dict[UUID, tuple[str, bool]]:
    """By the id of each run's trace: its tier, and whether that is an upgrade."""
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
            KeptTrace.objects.for_workspace(workspace_id)
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
