"""Functions of the deploy commands: find the workspace, follow the build, print the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from django.core.management.base import CommandError

from apps.deployments.addresses import agent_url
from apps.deployments.models import Deployment, LogKind, LogLine, Revision
from apps.organizations.models import Organization, Workspace

_POLL_SECONDS = 0.25


def get_workspace(organization: str, workspace: str | None) -> Workspace:
    """Return the named workspace, or the organization's oldest one."""
    organization_row = Organization.objects.filter(name=organization).first()
    if organization_row is None:
        raise CommandError(f"There is no organization named {organization!r}.")
    workspaces = organization_row.workspaces.present().order_by("created_at")
    chosen = (workspaces.filter(name=workspace) if workspace else workspaces).first()
    if chosen is None:
        raise CommandError(f"{organization} has no workspace named {workspace!r}.")
    return chosen


def wait_until_finished(revision: Revision, *, on_line: Callable[[LogLine], None]) -> Revision:
    """Pass each build log line to `on_line` and return the finished revision."""
    revisions = Revision.objects.for_workspace(revision.workspace_id)
    lines = LogLine.objects.for_workspace(revision.workspace_id)
    lines = lines.filter(revision=revision, kind=LogKind.BUILD)
    last_id = 0
    while True:
        # Read the status before the lines: all lines of a finished build are then already written.
        revision = revisions.get(pk=revision.pk)
        for line in lines.after(last_id):
            last_id = line.pk
            on_line(line)
        if revision.is_final:
            return revision
        time.sleep(_POLL_SECONDS)


def summary(deployment: Deployment, revision_id: UUID, status: str) -> dict[str, str]:
    """Return the object that `manage.py deploy --json` prints."""
    return {
        "deployment_id": str(deployment.pk),
        "revision_id": str(revision_id),
        "status": status,
        "agent_url": agent_url(deployment.slug),
    }
