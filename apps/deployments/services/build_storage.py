"""The disk space of an organization's finished builds, and the removal of old ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db.models import Exists

from apps.deployments import build_dirs
from apps.deployments.models import Deployment, Revision
from apps.deployments.statuses import FINAL
from apps.organizations.models import Workspace

_REASON = "the quota counts all workspaces of the organization"


@dataclass(frozen=True, slots=True)
class StoredBuild:
    """A finished build on disk."""

    revision_id: UUID
    attempt: int
    size: int
    is_kept: bool
    """It serves, or it is the newest other one of its deployment, to which a rollback leads."""


def kept_bytes(organization_id: UUID) -> int:
    """Return the size of the builds that `remove_old_builds` would not remove."""
    return sum(build.size for build in _stored_builds(organization_id) if build.is_kept)


def remove_old_builds(workspace_id: UUID) -> int:
    """Remove the organization's oldest builds beyond the quota; return how many.

    Their revisions stay as rows that cannot be deployed again.
    """
    organization_id: UUID = Workspace.objects.get(pk=workspace_id).organization_id
    builds = list(_stored_builds(organization_id))
    excess = sum(build.size for build in builds) - settings.MAX_BUILD_STORAGE_BYTES
    removed = 0
    for build in builds:
        if excess <= 0:
            break
        if build.is_kept or not _forget(build):
            continue
        build_dirs.remove_revision(build.revision_id)
        excess -= build.size
        removed += 1
    return removed


def _stored_builds(organization_id: UUID) -> Iterator[StoredBuild]:
    """Yield the finished builds, oldest first."""
    rows = list(
        Revision.objects.across_workspaces(reason=_REASON)
        .filter(
            workspace__organization_id=organization_id,
            deployment__deleted_at=None,
            built_attempt__isnull=False,
        )
        .order_by("created_at", "number")
        .values_list(
            "pk",
            "deployment_id",
            "deployment__active_revision_id",
            "built_attempt",
            "facts__disk_bytes",
        )
    )
    newest_other = {deployment: pk for pk, deployment, active, *_ in rows if pk != active}
    for pk, deployment, active, attempt, size in rows:
        is_kept = pk in (active, newest_other.get(deployment))
        yield StoredBuild(pk, attempt or 0, int(size or 0), is_kept)


def _forget(build: StoredBuild) -> bool:
    """Mark the revision as not built, unless it was deployed again meanwhile."""
    serving = Deployment.objects.across_workspaces(reason=_REASON).filter(
        active_revision_id=build.revision_id
    )
    unchanged = Revision.objects.across_workspaces(reason=_REASON).filter(
        pk=build.revision_id, built_attempt=build.attempt, status__in=sorted(FINAL)
    )
    return bool(unchanged.exclude(Exists(serving)).update(built_attempt=None))
