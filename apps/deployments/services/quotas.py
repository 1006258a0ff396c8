"""Limits on the deployments, revisions and builds of an organization."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from apps.deployments.errors import QuotaReached
from apps.deployments.models import Deployment, Revision
from apps.deployments.services import build_storage
from apps.organizations.models import Workspace

_REASON = "the quota counts all workspaces of the organization"


def check_deployment_quota(workspace: Workspace) -> None:
    """Raise `QuotaReached` if the organization has the maximum of deployments.

    Call it in the transaction that creates the deployment: a lock keeps
    simultaneous requests from exceeding the quota.
    """
    organization_id = _lock_organization(workspace.pk)
    deployments = Deployment.objects.across_workspaces(reason=_REASON).present()
    count = deployments.filter(workspace__organization_id=organization_id).count()
    if count >= settings.MAX_DEPLOYMENTS:
        raise QuotaReached(
            f"The organization has {count} deployments, the maximum. Delete one that is not needed."
        )


def check_revision_quota(deployment: Deployment) -> None:
    """Raise `QuotaReached` if the organization has too many unfinished or new revisions.

    Call it in the transaction that creates the revision, after the lock of the deployment.
    """
    organization_id = _lock_organization(deployment.workspace_id)
    revisions = Revision.objects.across_workspaces(reason=_REASON).filter(
        workspace__organization_id=organization_id
    )
    # A new revision replaces one of its deployment that waits.
    unfinished = revisions.unfinished().exclude(deployment=deployment).count()
    if unfinished >= settings.MAX_QUEUED_BUILDS:
        raise QuotaReached(
            f"Other deployments have {unfinished} unfinished revisions, the organization's maximum."
            " Wait until one has finished or stop it."
        )
    since = timezone.now() - timedelta(days=1)
    recent = revisions.filter(created_at__gte=since).count()
    if recent >= settings.MAX_REVISIONS_PER_DAY:
        raise QuotaReached(
            f"The organization has created {recent} revisions in 24 hours, the maximum."
        )
    size = build_storage.kept_bytes(organization_id)
    if size >= settings.MAX_BUILD_STORAGE_BYTES:
        raise QuotaReached(
            f"The builds that the organization's deployments use have {size // 1_048_576} MiB, the"
            " maximum. Delete a deployment that is not needed."
        )


def _lock_organization(workspace_id: UUID) -> UUID:
    """Serialize the checks of the organization until the end of the transaction."""
    organization_id: UUID = Workspace.objects.get(pk=workspace_id).organization_id
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"deployment quotas of {organization_id}"],
        )
    return organization_id
