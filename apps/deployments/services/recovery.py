"""What a lost message or a dead builder left lying: found again by its row."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from apps.deployments import tasks
from apps.deployments.models import Deployment, Revision
from apps.deployments.services import progress

_UNHEARD = timedelta(seconds=20)


def sweep() -> None:
    """Return abandoned revisions to those that wait and send again what nobody took up."""
    revisions = Revision.objects.across_workspaces(reason="the sweeper looks after all")
    for pk in revisions.abandoned().values_list("pk", flat=True):
        progress.recover(pk)
    before = timezone.now() - _UNHEARD
    for pk in revisions.unclaimed().filter(updated_at__lt=before).values_list("pk", flat=True):
        tasks.build_revision.delay(str(pk))
    waiting = revisions.waiting().filter(updated_at__lt=before)
    for deployment_id in waiting.values_list("deployment", flat=True).distinct():
        progress.promote(deployment_id)
    deployments = Deployment.objects.across_workspaces(reason="the sweeper looks after all")
    for pk in deployments.filter(deleted_at__lt=before).values_list("pk", flat=True):
        tasks.erase_deployment.delay(str(pk))
