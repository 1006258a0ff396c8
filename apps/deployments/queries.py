"""Reads across deployments and revisions."""

from __future__ import annotations

from django.db.models import OuterRef, Subquery

from apps.deployments.models import Revision
from apps.deployments.querysets import DeploymentQuerySet

_OF_THE_LATEST = {
    "latest_revision_id": "pk",
    "latest_status": "status",
    "latest_source": "source",
    "latest_ref": "ref",
    "latest_config_path": "config_path",
    "latest_commit_sha": "commit_sha",
}


def with_latest(deployments: DeploymentQuerySet) -> DeploymentQuerySet:
    """Each deployment with what its newest revision is, as `latest_...`; None without any."""
    newest = Revision.unscoped.filter(deployment=OuterRef("pk")).newest_first()
    columns = {name: Subquery(newest.values(column)[:1]) for name, column in _OF_THE_LATEST.items()}
    return deployments.annotate(**columns)
