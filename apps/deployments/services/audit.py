"""Audit entries of deployments. They have names of variables, never values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from apps.audit.actions import Action
from apps.audit.services import Target
from apps.audit.services import record as record_action
from apps.deployments.models import Deployment, Revision


def snapshot(deployment: Deployment, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of the deployment for the audit log, and the variable names, if given."""
    fields = {
        "name": deployment.name,
        "slug": deployment.slug,
        "source": deployment.source,
        "repo_url": deployment.repo_url,
        "repo_ref": deployment.branch,
        "config_path": deployment.config_path,
        "deployment_type": deployment.deployment_type,
        "build_on_push": deployment.build_on_push,
    }
    return fields | ({"names": sorted(names)} if names else {})


def record(
    action: Action,
    deployment: Deployment,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    record_action(
        action,
        Target("deployment", deployment.pk, deployment.name),
        before=before,
        after=after,
        workspace_id=deployment.workspace_id,
    )


def record_revision(action: Action, deployment: Deployment, revision: Revision) -> None:
    """Record an action on a revision, labelled with the deployment's name and its number."""
    record_action(
        action,
        Target("revision", revision.pk, f"{deployment.name} #{revision.number}"),
        after={
            "number": revision.number,
            "source": revision.source,
            "repo_ref": revision.ref,
            "commit_sha": revision.commit_sha,
        },
        workspace_id=revision.workspace_id,
    )
