"""Create and delete feedback on the page of a run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST
from django_htmx.http import trigger_client_event

from apps.core import errors as core_errors
from apps.core.tenancy import get_or_404
from apps.feedback.models import Feedback
from apps.feedback.services import feedback as services
from apps.feedback.wire import WireFeedback
from apps.organizations.permissions import Permission
from apps.trace_store import RunRow, run_store
from apps.tracing.models import Project
from apps.tracing.pages import run_feedback
from apps.tracing.pages.feedback_form import FeedbackForm, list_key_choices
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, workspace_page


@require_POST
@workspace_page(Permission.FEEDBACK_WRITE)
def feedback_create(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """Create feedback from the score of one key or from the form with all fields."""
    project, row = _load_run(request, project_id, run_id)
    form: FeedbackForm | None = FeedbackForm(request.POST)
    if form is not None and form.is_valid():
        cleaned = form.cleaned_data.items()
        fields = {name: value for name, value in cleaned if value not in (None, "")}
        try:
            _create_feedback(request, project, row, fields)
        except core_errors.AppError as error:
            form.add_error(None, error.detail)
        else:
            form = None
    return _render_feedback(request, project, row, form)


@require_POST
@workspace_page(Permission.FEEDBACK_WRITE)
def feedback_delete(
    request: PageRequest, project_id: UUID, run_id: UUID, feedback_id: UUID
) -> HttpResponse:
    project, row = _load_run(request, project_id, run_id)
    feedback_rows = Feedback.objects.for_workspace(project.workspace_id).filter(run_id=run_id)
    services.delete_feedback(get_or_404(feedback_rows, pk=feedback_id))
    return _render_feedback(request, project, row, None)


def _load_run(request: PageRequest, project_id: UUID, run_id: UUID) -> tuple[Project, RunRow]:
    project = get_project(request.caller.workspace_id, project_id)
    run = run_store.get(project.workspace_id, run_id, project_id=project.pk, payloads=())
    if run is None:
        raise core_errors.NotFound
    return project, run.row


def _create_feedback(
    request: PageRequest, project: Project, row: RunRow, fields: dict[str, Any]
) -> None:
    feedback = WireFeedback(
        run_id=row.id,
        trace_id=row.trace_id,
        session_id=project.pk,
        feedback_source={"type": "app", "metadata": {}},
        **fields,
    )
    services.create_feedback(project.workspace_id, feedback, user_id=request.user.pk)


def _render_feedback(
    request: PageRequest, project: Project, row: RunRow, form: FeedbackForm | None
) -> HttpResponse:
    """Render the feedback list for htmx; otherwise redirect to the page of the run."""
    is_invalid = form is not None and bool(form.errors)
    if not request.htmx:
        if form is not None and is_invalid:
            messages.error(request, " ".join(str(e) for es in form.errors.values() for e in es))
        return redirect("trace-detail", project.workspace_id, project.pk, row.id)
    context = {
        "project": project,
        "run": {"row": row, "feedback": run_feedback.load_feedback(project, row.id)},
        **feedback_context(request, project.pk, form),
    }
    status = 422 if is_invalid else 200
    response = render(request, "tracing/feedback.html#swap", context, status=status)
    chips = {"run": str(row.id), "feedback": run_feedback.list_chips(project, row.id)}
    return trigger_client_event(response, "feedback-changed", chips)


def feedback_context(
    request: PageRequest, project_id: UUID, form: FeedbackForm | None = None
) -> dict[str, Any]:
    """Return the template context of the feedback form, if the user may write feedback."""
    if not request.caller.may(Permission.FEEDBACK_WRITE):
        return {"may_annotate": False}
    return {
        "may_annotate": True,
        "feedback_configs": list_key_choices(request.caller.workspace_id, project_id),
        "annotate_form": form or FeedbackForm(),
    }
