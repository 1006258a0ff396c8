"""A revision's way through its states: each step guarded, recorded and announced."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.deployments import errors, tasks
from apps.deployments.models import Deployment, Revision, StatusChange
from apps.deployments.services import notifications
from apps.deployments.statuses import FINAL, FOLLOWS, WAITING, DeploymentStatus, RevisionStatus

LEASE = timedelta(seconds=30)
MOST_LOSSES = 3

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
    """Take one step, with changes of other fields, and return the revision as it is then.

    Raises `StepRefused` for a step that `FOLLOWS` does not know and `LeaseLost` when `attempt` is
    not the revision's newest: who holds an old attempt changes nothing.
    """
    revision = _locked(revision_id)
    if attempt is not None and revision.attempt != attempt:
        raise errors.LeaseLost
    if to not in FOLLOWS[RevisionStatus(revision.status)]:
        raise errors.StepRefused(revision.status, to)
    changes["status"] = to
    if to in FINAL:
        changes |= {"finished_at": timezone.now(), "lease_owner": "", "lease_expires_at": None}
    return _changed(revision, detail, changes)


def fail(revision: Revision, *, reason: str, attempt: int | None = None) -> Revision:
    """End the revision with a reason in its author's words; the one that serves goes on serving."""
    building = revision.status in WAITING or revision.status == _S.BUILDING
    to = _S.BUILD_FAILED if building else _S.DEPLOY_FAILED
    return advance(revision.pk, to=to, detail=reason, attempt=attempt, failure=reason)


@transaction.atomic
def claim(revision_id: UUID, *, owner: str) -> Revision | None:
    """Take the revision up for building or deploying; None when there is nothing to take up.

    The revision comes back with a new attempt number and a lease, `BUILDING` or `DEPLOYING`.
    """
    revision = Revision.objects.across_workspaces(reason="a message names a revision by its id")
    found = revision.select_for_update(no_key=True).filter(pk=revision_id).first()
    if found is None or found.lease_expires_at is not None:
        return None
    step = {_S.AWAITING_BUILD: _S.BUILDING, _S.AWAITING_DEPLOY: _S.DEPLOYING}
    to = step.get(RevisionStatus(found.status))
    if to is None:
        return None
    lease = {
        "attempt": found.attempt + 1,
        "lease_owner": owner,
        "lease_expires_at": timezone.now() + LEASE,
    }
    return _changed(found, "", {"status": to, **lease})


def renew(revision: Revision) -> None:
    """Say that its builder lives. `LeaseLost` when somebody else has it or a person stopped it."""
    rows = Revision.objects.for_workspace(revision.workspace_id)
    held = rows.filter(pk=revision.pk, attempt=revision.attempt).exclude(lease_expires_at=None)
    if not held.update(lease_expires_at=timezone.now() + LEASE):
        raise errors.LeaseLost


@transaction.atomic
def recover(revision_id: UUID) -> None:
    """Return a revision whose builder died to those that wait; at its third loss it fails."""
    revision = _locked(revision_id)
    expires = revision.lease_expires_at
    if revision.is_final or expires is None or expires > timezone.now():
        return
    count = revision.losses + 1
    losses = {"losses": count, "lease_owner": "", "lease_expires_at": None}
    if count >= MOST_LOSSES:
        _changed(revision, "", losses)
        fail(revision, reason=f"The process that built it ended {MOST_LOSSES} times on the way.")
        return
    back = _S.AWAITING_BUILD if revision.artefact is None else _S.AWAITING_DEPLOY
    if revision.status == _S.AWAITING_DEPLOY:
        _changed(revision, "", losses)
    else:
        _changed(revision, "Its builder ended; it begins again.", {"status": back, **losses})
    tasks.send(tasks.build_revision, revision.pk)


@transaction.atomic
def promote(deployment_id: UUID) -> None:
    """Give the next waiting revision to a builder, unless one of the deployment is in the works.

    The newest goes next; those that it overtook are skipped. Safe to repeat.
    """
    # Locked so that two promotions cannot both find the works empty.
    deployments = Deployment.objects.across_workspaces(reason="a promotion knows only the id")
    deployment = deployments.select_for_update(no_key=True).filter(pk=deployment_id).first()
    if deployment is None:
        return
    revisions = Revision.objects.for_workspace(deployment.workspace_id)
    waiting = list(revisions.filter(deployment=deployment).waiting().newest_first())
    for overtaken in waiting[1:]:
        advance(overtaken.pk, to=_S.SKIPPED, detail=f"Revision {waiting[0].number} overtook it.")
    if not waiting or revisions.filter(deployment=deployment).working().exists():
        return
    if waiting[0].status != _S.AWAITING_BUILD:
        advance(waiting[0].pk, to=_S.AWAITING_BUILD)
        tasks.send(tasks.build_revision, waiting[0].pk)


@transaction.atomic
def activate(revision: Revision) -> None:
    """Switch the route: from this commit on the revision serves. `LeaseLost` when it may not."""
    deployments = Deployment.objects.for_workspace(revision.workspace_id)
    deployment = deployments.select_for_update(no_key=True).get(pk=revision.deployment_id)
    if deployment.deleted_at is not None:
        raise errors.LeaseLost
    advance(revision.pk, to=_S.DEPLOYED, attempt=revision.attempt)
    deployment.active_revision_id = revision.pk
    deployment.status = DeploymentStatus.READY
    deployment.save(update_fields=["active_revision", "status", "updated_at"])


def _locked(revision_id: UUID) -> Revision:
    revisions = Revision.objects.across_workspaces(reason="who calls has found the revision")
    return revisions.select_for_update(no_key=True).get(pk=revision_id)


def _changed(revision: Revision, detail: str, changes: dict[str, Any]) -> Revision:
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
        notifications.revision_changed(revision.pk)
    return revision
