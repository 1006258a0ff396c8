"""Create, redeploy and interrupt revisions."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Max

from apps.audit.actions import Action
from apps.deployments import dispatch, errors
from apps.deployments.models import Deployment, Revision, StatusChange
from apps.deployments.services import audit, environment, progress, quotas
from apps.deployments.statuses import RevisionStatus
from apps.organizations.models import User


@transaction.atomic
def create_revision(*, deployment: Deployment, created_by: User | None = None) -> Revision:
    """Create a revision from the deployment's current configuration and queue its build.

    Raises `QuotaReached` beyond the quotas of the organization.
    """
    # The lock keeps two revisions from getting the same number.
    deployments = Deployment.objects.for_workspace(deployment.workspace_id)
    deployment = deployments.present().select_for_update(no_key=True).get(pk=deployment.pk)
    quotas.check_revision_quota(deployment)
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
        environment=environment.encrypt_variables(deployment),
        created_by=created_by,
    )
    StatusChange.unscoped.create(
        workspace_id=revision.workspace_id, revision=revision, status=revision.status
    )
    audit.record_revision(Action.REVISION_CREATED, deployment, revision)
    progress.advance(revision.pk, to=RevisionStatus.QUEUED)
    progress.promote_next(deployment.pk)
    revision.refresh_from_db()
    return revision


@transaction.atomic
def redeploy(*, revision: Revision) -> Revision:
    """Deploy an old revision again, from its existing build.

    Raises `RevisionNotBuilt` without a build and `OtherRevisionInProgress` while another revision
    is unfinished. No effect if the revision itself is in progress.
    """
    deployments = Deployment.objects.for_workspace(revision.workspace_id)
    deployment = deployments.present().select_for_update(no_key=True).get(pk=revision.deployment_id)
    revisions = Revision.objects.for_workspace(revision.workspace_id)
    revision = revisions.select_for_update(no_key=True).get(pk=revision.pk)
    if not revision.is_built:
        raise errors.RevisionNotBuilt
    if not revision.is_final:
        return revision
    # Of two revisions in progress, the slower one would serve in the end.
    others = revisions.filter(deployment=deployment).unfinished()
    if (other := others.newest_first().first()) is not None:
        raise errors.OtherRevisionInProgress(other.number)
    audit.record_revision(Action.DEPLOYMENT_ROLLED_BACK, deployment, revision)
    revision = progress.advance(
        revision.pk,
        to=RevisionStatus.AWAITING_DEPLOY,
        detail="Redeployed.",
        started_at=None,
        finished_at=None,
        failure="",
        crash_count=0,
    )
    dispatch.build_revision(revision.pk)
    return revision


@transaction.atomic
def interrupt_revision(*, revision: Revision) -> Revision:
    """Stop an unfinished revision; its builder notices within seconds.

    Raises `RevisionFinished` for a finished one. The active revision keeps serving.
    """
    deployments = Deployment.objects.for_workspace(revision.workspace_id)
    deployment = deployments.select_for_update(no_key=True).get(pk=revision.deployment_id)
    revisions = Revision.objects.for_workspace(revision.workspace_id)
    revision = revisions.select_for_update(no_key=True).get(pk=revision.pk)
    if revision.is_final:
        raise errors.RevisionFinished
    audit.record_revision(Action.REVISION_INTERRUPTED, deployment, revision)
    revision = progress.advance(
        revision.pk, to=RevisionStatus.INTERRUPTED, detail="Stopped by a user."
    )
    progress.promote_next(revision.deployment_id)
    return revision
