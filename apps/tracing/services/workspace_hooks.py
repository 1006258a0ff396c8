"""What happens to traces when a workspace is made or deleted, or links are shut."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from apps.organizations.models import Organization, Workspace
from apps.tracing import tasks
from apps.tracing.models import Project, Share
from apps.tracing.services.projects import ensure_default_project


def furnish(workspace: Workspace) -> None:
    """A workspace always has a project: clients learn its id from the first one."""
    ensure_default_project(workspace.pk)


def clear(workspace: Workspace) -> None:
    """Every project goes, with its runs, files, feedback and links soon after."""
    projects = Project.objects.for_workspace(workspace).present()
    projects.update(deleted_at=timezone.now())
    # A sweeper finds them too, should the message be lost.
    transaction.on_commit(tasks.remove_deleted_projects.delay, robust=True)


def close_shares(organization: Organization) -> None:
    """No link that was given out opens anything any more, in any workspace."""
    for workspace_id in organization.workspaces.values_list("pk", flat=True):
        Share.objects.for_workspace(workspace_id).delete()
