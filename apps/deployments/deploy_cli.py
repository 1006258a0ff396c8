"""What the management commands share: finding whose deployment it is, and waiting for its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from django.core.management.base import CommandError

from apps.deployments.addresses import agent_url
from apps.deployments.models import Deployment, LogKind, LogLine, Revision
from apps.organizations.models import Organization, Workspace

_POLL_SECONDS = 0.25


def workspace_named(organization: str, workspace: str | None) -> Workspace:
    """The workspace of that name, or the organization's first."""
    found = Organization.objects.filter(name=organization).first()
    if found is None:
        raise CommandError(f"There is no organization named {organization!r}.")
    workspaces = found.workspaces.present().order_by("created_at")
    chosen = (workspaces.filter(name=workspace) if workspace else workspaces).first()
    if chosen is None:
        raise CommandError(f"{organization} has no workspace named {workspace!r}.")
    return chosen


def wait(revision: Revision, *, each_line: Callable[[LogLine], None]) -> Revision:
    """Follow the build log and return the revision at its end."""
    revisions = Revision.objects.for_workspace(revision.workspace_id)
    lines = LogLine.objects.for_workspace(revision.workspace_id)
    lines = lines.filter(revision=revision, kind=LogKind.BUILD)
    seen = 0
    while True:
        # The state is read before the lines, so that the last lines are not missed.
        revision = revisions.get(pk=revision.pk)
        for line in lines.after(seen):
            seen = line.pk
            each_line(line)
        if revision.is_final:
            return revision
        time.sleep(_POLL_SECONDS)


def summary(deployment: Deployment, revision_id: UUID, status: str) -> dict[str, str]:
    """What `manage.py deploy --json` prints."""
    return {
        "deployment_id": str(deployment.pk),
        "revision_id": str(revision_id),
        "status": status,
        "agent_url": agent_url(deployment.slug),
    }
