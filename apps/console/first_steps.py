"""The steps after the first run: what a new workspace has not used yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from apps.alerts.models import AlertRule
from apps.console.sample_data import is_sample
from apps.core.callers import Caller
from apps.datasets.models import ExampleRevision
from apps.feedback.models import Feedback
from apps.organizations.models import Invitation, Workspace, WorkspaceMembership
from apps.organizations.permissions import Permission
from apps.tracing.models import Project

COOKIE = "slipway_steps"
"""The choice of this browser: `closed`, or `read` after a transcript was opened from the list."""
SCORE = "score"
"""The step that opens the feedback of the newest run instead of its transcript."""
SHOWN_FOR = timedelta(days=14)
"""The age of a workspace up to which the list is shown."""


@dataclass(frozen=True)
class FirstStep:
    title: str
    url: str
    is_done: bool


def load_steps(request: HttpRequest, caller: Caller, project: Project) -> list[FirstStep]:
    """Return the steps; empty when all are done, for an older workspace, or once it is closed."""
    choice = request.COOKIES.get(COOKIE, "")
    if choice == "closed" or not caller.may(Permission.PROJECTS_WRITE) or is_sample(project):
        return []
    workspace = Workspace.objects.get(pk=caller.workspace_id)
    if timezone.now() - workspace.created_at > SHOWN_FOR:
        return []
    workspace_id = workspace.pk
    newest = reverse("start-steps", args=[workspace_id])
    steps = [
        FirstStep("See the transcript", newest, choice != ""),
        FirstStep("Score a run", f"{newest}?step={SCORE}", _exists(Feedback, workspace_id)),
        FirstStep("Save it as an example", newest, _exists(ExampleRevision, workspace_id)),
        FirstStep(
            "Set an alert",
            reverse("project-alerts", args=[workspace_id, project.pk]),
            _exists(AlertRule, workspace_id),
        ),
        FirstStep(
            "Invite a colleague",
            reverse("settings-members", args=[workspace_id]),
            _has_colleague(workspace),
        ),
    ]
    return [] if all(step.is_done for step in steps) else steps


def _exists(model: type[Feedback | ExampleRevision | AlertRule], workspace_id: UUID) -> bool:
    return model.objects.for_workspace(workspace_id).exists()


def _has_colleague(workspace: Workspace) -> bool:
    members = WorkspaceMembership.objects.filter(workspace=workspace)
    invitations = Invitation.objects.filter(organization_id=workspace.organization_id)
    return members.count() > 1 or invitations.exists()
