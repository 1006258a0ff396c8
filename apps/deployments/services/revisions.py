"""Making revisions, deploying old ones again, stopping those in the making."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Max

from apps.audit.actions import Action
from apps.deployments import errors, tasks
from apps.deployments.models import Deployment, Revision, StatusChange
from apps.deployments.services import audit, environment, progress
from apps.deployments.statuses import RevisionStatus
from apps.organizations.models import User


@transaction.atomic
def create_revision(*, deployment: Deployment, created_by: User | None = None) -> Revision:
    """A new revision of the deployment as it is configured now, to be built as soon as it can."""
    # Locked so that two revisions cannot get one number.
    deployments = Deployment.objects.for_workspace(deployment.workspace_id)
    deployment = deployments.present().select_for_update(no_key=True).get(pk=deployment.pk)
    revisions = Revision.objects.for_workspace(deployment.workspace_id)
    newest = revisions.filter(deployment=deployment).aggregate(Max("number"))["number__max"]
    revision = Revision.unscoped.create(
        workspace_id=deployment.workspace_id,
        deployment=deployment,
        number=(newest or 0) + 1,
        source=deployment.source,
        repo_url=deployment.repo_url,
        ref=deployment.branch,
        config_path=deployment.config_path,
        environment=environment.sealed(deployment),
        created_by=created_by,
    )
    StatusChange.unscoped.create(
        workspace_id=revision.workspace_id, revision=revision, status=revision.status
    )
    audit.record_revision(Action.REVISION_CREATED, deployment, revision)
    progress.advance(revision.pk, to=RevisionStatus.QUEUED)
    progress.promote(deployment.pk)
    revision.refresh_from_db()
    return revision


@transaction.atomic
def redeploy(*, revision: Revision) -> Revision:
    """Let an old revision serve again, from what was built then.

    Refuses one that was never built; does nothing to one that is on its way already.
    """
    deployments = Deployment.objects.for_workspace(revision.workspace_id)
    deployment = deployments.present().select_for_update(no_key=True).get(pk=revision.deployment_id)
    revisions = Revision.objects.for_workspace(revision.workspace_id)
    revision = revisions.select_for_update(no_key=True).get(pk=revision.pk)
    if not revision.is_built:
        raise errors.NotBuilt
    if not revision.is_final:
        return revision
    audit.record_revision(Action.DEPLOYMENT_ROLLED_BACK, deployment, revision)
    revision = progress.advance(
        revision.pk,
        to=RevisionStatus.AWAITING_DEPLOY,
        detail="Deployed again.",
        finished_at=None,
        failure="",
        losses=0,
    )
    tasks.send(tasks.build_revision, revision.pk)
    return revision


@transaction.atomic
def interrupt_revision(*, revision: Revision) -> Revision:
    """Stop a revision in the making; its builder notices within seconds.

    Refuses one that is over. What was built before it goes on serving.
    """
    deployments = Deployment.objects.for_workspace(revision.workspace_id)
    deployment = deployments.select_for_update(no_key=True).get(pk=revision.deployment_id)
    revisions = Revision.objects.for_workspace(revision.workspace_id)
    revision = revisions.select_for_update(no_key=True).get(pk=revision.pk)
    if revision.is_final:
        raise errors.AlreadyOver
    audit.record_revision(Action.REVISION_INTERRUPTED, deployment, revision)
    revision = progress.advance(
        revision.pk, to=RevisionStatus.INTERRUPTED, detail="Stopped by a person."
    )
    progress.promote(revision.deployment_id)
    return revision
