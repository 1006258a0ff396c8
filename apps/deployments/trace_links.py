"""Links from traces and their projects to the deployments that executed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.urls import reverse

from apps.deployments.models import Deployment, Revision
from apps.tracing.hooks import DeploymentLink, DeploymentSource

REVISION_KEY = "LANGSMITH_HOST_REVISION_ID"
"""The metadata key of the revision's id: the SDK adds this variable of a graph host to runs."""


def find_of_run(workspace_id: UUID, metadata: Mapping[str, Any]) -> DeploymentLink | None:
    """Return the deployment and revision of a run; None if they are deleted or it has none."""
    try:
        revision_id = UUID(str(metadata[REVISION_KEY]))
    except (KeyError, ValueError):
        return None
    revisions = Revision.objects.for_workspace(workspace_id).select_related("deployment")
    revision = revisions.filter(pk=revision_id, deployment__deleted_at=None).first()
    if revision is None:
        return None
    deployment_ids = [workspace_id, revision.deployment_id]
    return DeploymentLink(
        revision.deployment.name,
        reverse("deployment-detail", args=deployment_ids),
        f"revision {revision.number}",
        reverse("revision-detail", args=[*deployment_ids, revision.pk]),
    )


def find_of_project(workspace_id: UUID, name: str) -> DeploymentLink | None:
    """Return the deployment that traces to the project of its name."""
    rows = Deployment.objects.for_workspace(workspace_id).present()
    deployment = rows.filter(name=name, tracing=True).first()
    if deployment is None:
        return None
    url = reverse("deployment-detail", args=[workspace_id, deployment.pk])
    return DeploymentLink(deployment.name, url)


SOURCE = DeploymentSource(find_of_run, find_of_project)
