"""Status transitions of revisions: validated, recorded and published, with leases for builders."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.deployments import dispatch, errors
from apps.deployments.models import Deployment, Revision, StatusChange
from apps.deployments.services import webhooks
from apps.deployments.statuses import FINAL, PENDING, TRANSITIONS, DeploymentStatus, RevisionStatus

LEASE_DURATION = timedelta(seconds=30)
MAX_CRASHES = 3
_RESEND_AFTER = timedelta(seconds=20)

_S = RevisionStatus


@transaction.atomic
def advance(
    revision_id: UUID,
    *,
    to: RevisionStatus,
    detail: str = "",
    attempt: int | None = None,
    **changes: Any,
) -> Revision:
    """Change the status, and other fields with it, and return the updated revision.

    Raises `InvalidTransition` for a change that `TRANSITIONS` does not allow and `LeaseLost` if
    `attempt` is not the revision's current one.
    """
    revision = _lock(revision_id)
    if attempt is not None and revision.attempt != attempt:
        raise errors.LeaseLost
    if to not in TRANSITIONS[RevisionStatus(revision.status)]:
        raise errors.InvalidTransition(revision.status, to)
    changes["status"] = to
    if to in FINAL:
        changes |= {"finished_at": timezone.now(), "lease_owner": "", "lease_expires_at": None}
    return _apply(revision, detail, changes)


def fail(revision: Revision, *, reason: str, attempt: int | None = None) -> Revision:
    """Mark the revision as failed; the active revision keeps serving."""
    is_building = revision.status in PENDING or revision.status == _S.BUILDING
    to = _S.BUILD_FAILED if is_building else _S.DEPLOY_FAILED
    return advance(revision.pk, to=to, detail=reason, attempt=attempt, failure=reason)


@transaction.atomic
def claim(revision_id: UUID, *, owner: str) -> Revision | None:
    """Claim the revision for building or deploying; None if it cannot be claimed.

    The returned revision is `BUILDING` or `DEPLOYING` and has a new attempt number and a lease.
    """
    revisions = Revision.objects.across_workspaces(reason="the task has only the revision id")
    revision = revisions.select_for_update(no_key=True).filter(pk=revision_id).first()
    if revision is None or revision.lease_expires_at is not None:
        return None
    next_status = {_S.AWAITING_BUILD: _S.BUILDING, _S.AWAITING_DEPLOY: _S.DEPLOYING}
    to = next_status.get(RevisionStatus(revision.status))
    if to is None:
        return None
    lease = {
        "attempt": revision.attempt + 1,
        "lease_owner": owner,
        "lease_expires_at": timezone.now() + LEASE_DURATION,
        # Another attempt after a crash keeps the time of the first.
        "started_at": revision.started_at or timezone.now(),
    }
    return _apply(revision, "", {"status": to, **lease})


def renew_lease(revision: Revision) -> None:
    """Extend the lease, or raise `LeaseLost` if another builder has it or a user stopped it."""
    rows = Revision.objects.for_workspace(revision.workspace_id)
    leased = rows.filter(pk=revision.pk, attempt=revision.attempt).exclude(lease_expires_at=None)
    if not leased.update(lease_expires_at=timezone.now() + LEASE_DURATION):
        raise errors.LeaseLost


@transaction.atomic
def recover(revision_id: UUID) -> None:
    """Requeue a revision whose lease expired; fail it after `MAX_CRASHES` lost builders."""
    revision = _lock(revision_id)
    expires = revision.lease_expires_at
    if revision.is_final or expires is None or expires > timezone.now():
        return
    count = revision.crash_count + 1
    crash = {"crash_count": count, "lease_owner": "", "lease_expires_at": None}
    if count >= MAX_CRASHES:
        _apply(revision, "", crash)
        fail(revision, reason=f"The builder process died {MAX_CRASHES} times during this revision.")
        return
    requeued_status = _S.AWAITING_BUILD if revision.built_attempt is None else _S.AWAITING_DEPLOY
    if revision.status == _S.AWAITING_DEPLOY:
        _apply(revision, "", crash)
    else:
        _apply(
            revision,
            "The builder process died; the revision was requeued.",
            {"status": requeued_status, **crash},
        )
    dispatch.build_revision(revision.pk)


@transaction.atomic
def promote_next(deployment_id: UUID) -> None:
    """Start the newest pending revision, unless another revision of the deployment is in progress.

    Older pending revisions are skipped. Safe to repeat.
    """
    # The lock keeps two concurrent calls from both starting a revision.
    deployments = Deployment.objects.across_workspaces(reason="the sweeper has only the id")
    deployment = deployments.select_for_update(no_key=True).filter(pk=deployment_id).first()
    if deployment is None:
        return
    revisions = Revision.objects.for_workspace(deployment.workspace_id)
    pending = list(revisions.filter(deployment=deployment).pending().newest_first())
    for superseded in pending[1:]:
        advance(superseded.pk, to=_S.SKIPPED, detail=f"Superseded by revision {pending[0].number}.")
    if not pending or revisions.filter(deployment=deployment).in_progress().exists():
        return
    if pending[0].status != _S.AWAITING_BUILD:
        advance(pending[0].pk, to=_S.AWAITING_BUILD)
        dispatch.build_revision(pending[0].pk)


@transaction.atomic
def activate(revision: Revision) -> None:
    """Make the revision serve from this commit on. Raises `LeaseLost` if it may not."""
    deployments = Deployment.objects.for_workspace(revision.workspace_id)
    deployment = deployments.select_for_update(no_key=True).get(pk=revision.deployment_id)
    if deployment.deleted_at is not None:
        raise errors.LeaseLost
    advance(revision.pk, to=_S.DEPLOYED, attempt=revision.attempt)
    deployment.active_revision_id = revision.pk
    if not deployment.is_stopped:  # a stopped deployment serves the revision once it is started
        deployment.status = DeploymentStatus.READY
    deployment.save(update_fields=["active_revision", "status", "updated_at"])


def _lock(revision_id: UUID) -> Revision:
    revisions = Revision.objects.across_workspaces(reason="the caller has resolved the revision")
    return revisions.select_for_update(no_key=True).get(pk=revision_id)


def _apply(revision: Revision, detail: str, changes: dict[str, Any]) -> Revision:
    for name, value in changes.items():
        setattr(revision, name, value)
    revision.save(update_fields=[*changes, "updated_at"])
    if "status" in changes:
        StatusChange.unscoped.create(
            workspace_id=revision.workspace_id,
            revision=revision,
            status=revision.status,
            detail=detail,
        )
        webhooks.enqueue(revision)
        dispatch.notify_revision_changed(revision.pk)
    return revision


def sweep() -> None:
    """Recover abandoned revisions and enqueue tasks again whose message was lost."""
    revisions = Revision.objects.across_workspaces(reason="the sweeper covers every workspace")
    for pk in revisions.abandoned().values_list("pk", flat=True):
        recover(pk)
    before = timezone.now() - _RESEND_AFTER
    for pk in revisions.unclaimed().filter(updated_at__lt=before).values_list("pk", flat=True):
        dispatch.build_revision(pk)
    pending = revisions.pending().filter(updated_at__lt=before)
    for deployment_id in pending.values_list("deployment", flat=True).distinct():
        promote_next(deployment_id)
    deployments = Deployment.objects.across_workspaces(reason="the sweeper covers every workspace")
    for pk in deployments.filter(deleted_at__lt=before).values_list("pk", flat=True):
        dispatch.purge_deployment(pk)
