"""What the audit log is told of deployments: names of variables, never a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from apps.audit.actions import Action
from apps.audit.services import Target
from apps.audit.services import record as record_deed
from apps.deployments.models import Deployment, Revision


def seen(deployment: Deployment, names: Iterable[str] = ()) -> dict[str, Any]:
    """What of the deployment may be read in the log; with the names of variables, if given."""
    shown = {
        "name": deployment.name,
        "slug": deployment.slug,
        "source": deployment.source,
        "repo_url": deployment.repo_url,
        "repo_ref": deployment.branch,
        "config_path": deployment.config_path,
        "deployment_type": deployment.deployment_type,
        "build_on_push": deployment.build_on_push,
    }
    return shown | ({"names": sorted(names)} if names else {})


def record(
    action: Action,
    deployment: Deployment,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    record_deed(
        action,
        Target("deployment", deployment.pk, deployment.name),
        before=before,
        after=after,
        workspace_id=deployment.workspace_id,
    )


def record_revision(action: Action, deployment: Deployment, revision: Revision) -> None:
    """A revision is called as in its page: the deployment's name and its number."""
    record_deed(
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
