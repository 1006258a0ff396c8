"""Reactions to the creation and deletion of workspaces and to revoked public links."""

from __future__ import annotations

from django.utils import timezone

from apps.organizations.models import Organization, Workspace
from apps.tracing import dispatch
from apps.tracing.models import Project, Share
from apps.tracing.services.projects import ensure_default_project


def provision(workspace: Workspace) -> None:
    """Create the default project: clients read the workspace id from the first project."""
    ensure_default_project(workspace.pk)


def deprovision(workspace: Workspace) -> None:
    """Delete all projects; a task removes their runs, files, feedback and links."""
    projects = Project.objects.for_workspace(workspace).present()
    projects.update(deleted_at=timezone.now())
    # The periodic task also finds them if this message is lost.
    dispatch.remove_deleted_projects()


def revoke_public_links(organization: Organization) -> None:
    """Revoke all public links of the organization's workspaces."""
    for workspace_id in organization.workspaces.values_list("pk", flat=True):
        Share.objects.for_workspace(workspace_id).delete()
