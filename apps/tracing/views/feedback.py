"""Feedback given and taken back from the page of a run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from apps.core import errors as core_errors
from apps.core.tenancy import get_or_404
from apps.feedback.models import Feedback
from apps.feedback.services import feedback as services
from apps.feedback.wire import WireFeedback
from apps.organizations.permissions import Permission
from apps.trace_store.store import RunRow, runs
from apps.tracing.models import Project
from apps.tracing.pages import annotating as offered
from apps.tracing.pages import projects, run_views
from apps.tracing.pages.annotating import AnnotateForm
from apps.web_ui.pages import PageRequest, workspace_page


@require_POST
@workspace_page(Permission.FEEDBACK_WRITE)
def run_feedback(request: PageRequest, project_id: UUID, run_id: UUID) -> HttpResponse:
    """One press gives a key's score; the form gives whatever it says."""
    project, row = _run(request, project_id, run_id)
    pressed = offered.of_press(request.POST.get("give", ""))
    form = None if pressed else AnnotateForm(request.POST)
    said: dict[str, Any] | None = None
    if pressed:
        said = {"key": pressed[0], "score": pressed[1]}
    elif form is not None and form.is_valid():
        said = {name: value for name, value in form.cleaned_data.items() if value not in (None, "")}
    if said is not None:
        try:
            _give(request, project, row, said)
        except core_errors.AppError as error:
            form = form or AnnotateForm(said)
            form.add_error(None, error.detail)
        else:
            form = None
    return _answer(request, project, row, form)


@require_POST
@workspace_page(Permission.FEEDBACK_WRITE)
def feedback_delete(
    request: PageRequest, project_id: UUID, run_id: UUID, feedback_id: UUID
) -> HttpResponse:
    project, row = _run(request, project_id, run_id)
    own = Feedback.objects.for_workspace(project.workspace_id).filter(run_id=run_id)
    services.delete_feedback(get_or_404(own, pk=feedback_id))
    return _answer(request, project, row, None)


def _run(request: PageRequest, project_id: UUID, run_id: UUID) -> tuple[Project, RunRow]:
    project = projects.project(request.caller.workspace_id, project_id)
    found = runs.get(project.workspace_id, run_id, project_id=project.pk, payloads=())
    if found is None:
        raise core_errors.NotFound
    return project, found.row


def _give(request: PageRequest, project: Project, row: RunRow, said: dict[str, Any]) -> None:
    one = WireFeedback(
        run_id=row.id,
        trace_id=row.trace_id,
        session_id=project.pk,
        feedback_source={"type": "app", "metadata": {}},
        **said,
    )
    services.create_feedback(project.workspace_id, one, user_id=request.user.pk)


def _answer(
    request: PageRequest, project: Project, row: RunRow, form: AnnotateForm | None
) -> HttpResponse:
    """The list of feedback; without script, the run's page."""
    is_refused = form is not None and bool(form.errors)
    if not request.htmx:
        if form is not None and is_refused:
            messages.error(request, " ".join(str(e) for es in form.errors.values() for e in es))
        return redirect("trace-detail", project.workspace_id, project.pk, row.id)
    context = {
        "project": project,
        "run": {"row": row, "feedback": run_views.feedback_of(project, row.id)},
        **annotating(request, form),
    }
    return render(request, "tracing/feedback.html#list", context, status=422 if is_refused else 200)


def annotating(request: PageRequest, form: AnnotateForm | None = None) -> dict[str, Any]:
    """What the feedback's form needs, if the person may fill it."""
    if not request.caller.may(Permission.FEEDBACK_WRITE):
        return {"may_annotate": False}
    return {
        "may_annotate": True,
        "feedback_configs": offered.offers(request.caller.workspace_id),
        "annotate_form": form or AnnotateForm(),
    }
