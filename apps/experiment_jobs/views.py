"""Pages of experiments that the platform runs on a deployed agent."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.datasets.services.datasets import get_dataset
from apps.experiment_jobs import errors
from apps.experiment_jobs.forms import ExperimentJobForm
from apps.experiment_jobs.services import jobs
from apps.experiment_jobs.services.jobs import START_PERMISSIONS
from apps.organizations.permissions import Permission
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page

SHOWN_JOBS = 5


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.EXPERIMENTS_WRITE)
def job_new(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Show the form, and start an experiment."""
    for permission in START_PERMISSIONS:
        request.caller.require(permission)
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    form = ExperimentJobForm(dataset, request.POST or None)

    def create() -> None:
        jobs.create_job(plan=form.to_plan(), user_id=request.user.pk)

    if save_form(form, create):
        return redirect("dataset-experiments", dataset.workspace_id, dataset.pk)
    context = {"form": form, "dataset": dataset}
    return form_page(request, "experiment_jobs/job_new.html", context, form)


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def job_list(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Show the progress of the newest jobs of the dataset; a part of its list of experiments."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    rows = jobs.list_jobs(dataset.workspace_id).filter(dataset=dataset)
    shown = list(rows.newest_first()[:SHOWN_JOBS])
    context = {
        "jobs": shown,
        "dataset": dataset,
        "is_in_progress": any(job.is_open for job in shown),
        "may_cancel": request.caller.may(Permission.EXPERIMENTS_WRITE),
    }
    return render(request, "experiment_jobs/job_list.html", context)


@require_POST
@workspace_page(Permission.EXPERIMENTS_WRITE)
def job_cancel(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Cancel the job; an htmx request gets the progress of the dataset's jobs."""
    job = jobs.get_job(request.caller.workspace_id, job_id)
    try:
        jobs.cancel_job(job=job)
        messages.success(request, "The experiment stops after its open runs.")
    except errors.JobFinished as error:
        messages.error(request, error.detail)
    return redirect("dataset-experiments", job.workspace_id, job.dataset_id)
