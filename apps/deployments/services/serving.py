"""Stop, start and restart a deployment, without a build.

Each change raises `host_generation`. Workers compare it with that of their graph hosts and replace
the older ones: runs stop after their current step, return to the queue and continue from their last
checkpoint, at once or when the deployment is started.
"""

from __future__ import annotations

from django.db import transaction

from apps.audit.actions import Action
from apps.deployments import dispatch, errors
from apps.deployments.models import Deployment
from apps.deployments.services import audit
from apps.deployments.statuses import DeploymentStatus


@transaction.atomic
def stop_deployment(*, deployment: Deployment) -> Deployment:
    """Stop serving and executing runs; no effect on a stopped deployment.

    Raises `NotDeployed` without a deployed revision. New revisions are still built and deployed,
    but serve only after a start.
    """
    row = _lock(deployment)
    if row.is_stopped:
        return row
    if row.active_revision_id is None:
        raise errors.NotDeployed
    return _replace_hosts(row, DeploymentStatus.STOPPED, Action.DEPLOYMENT_STOPPED)


@transaction.atomic
def start_deployment(*, deployment: Deployment) -> Deployment:
    """Serve again and resume the waiting runs; no effect on a deployment that is not stopped."""
    row = _lock(deployment)
    if not row.is_stopped:
        return row
    dispatch.resume_runs(row.pk)
    return _replace_hosts(row, DeploymentStatus.READY, Action.DEPLOYMENT_STARTED)


@transaction.atomic
def restart_deployment(*, deployment: Deployment) -> Deployment:
    """Replace the processes of the agent. Raises `NotDeployed` or `DeploymentStopped`."""
    row = _lock(deployment)
    if row.is_stopped:
        raise errors.DeploymentStopped
    if row.active_revision_id is None:
        raise errors.NotDeployed
    return _replace_hosts(row, DeploymentStatus(row.status), Action.DEPLOYMENT_RESTARTED)


def _lock(deployment: Deployment) -> Deployment:
    deployments = Deployment.objects.for_workspace(deployment.workspace_id).present()
    return deployments.select_for_update(no_key=True).get(pk=deployment.pk)


def _replace_hosts(row: Deployment, status: DeploymentStatus, action: Action) -> Deployment:
    row.status = status
    row.host_generation += 1
    row.save(update_fields=["status", "host_generation", "updated_at"])
    audit.record(action, row)
    return row
