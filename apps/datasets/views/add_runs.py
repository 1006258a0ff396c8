"""Adding runs to a dataset: from a run, a trace, a selection in the run list, or a thread."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.core import errors as core_errors
from apps.datasets.forms import AddRunsForm
from apps.datasets.models import Dataset
from apps.datasets.pages import run_selection as pages
from apps.datasets.services.datasets import create_dataset, get_dataset
from apps.datasets.services.run_examples import add_runs
from apps.organizations.permissions import Permission
from apps.trace_store import RunRow
from apps.web_ui.pages import PageRequest, save_form, workspace_page


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_WRITE)
def dataset_add_runs(request: PageRequest) -> HttpResponse:
    """Choose a dataset for the runs of `run`, or of `thread` in `project`, then add them.

    `?part=choices` returns the datasets that match `q`.
    """
    workspace_id = request.caller.workspace_id
    request.caller.require(Permission.RUNS_READ)
    query = request.POST if request.method == "POST" else request.GET
    text = query.get("q", "").replace("\0", "")[:500].strip()
    context: dict[str, Any] = {
        "datasets": pages.list_datasets(workspace_id, text),
        "text": text,
    }
    if request.GET.get("part") == "choices":
        return render(request, "datasets/add_runs.html#choices", context)
    thread_key = query.get("thread", "")
    if thread_key:
        runs = pages.load_turns(workspace_id, query.get("project", ""), thread_key)
    else:
        runs = pages.load_runs(workspace_id, query.getlist("run"))
    form = AddRunsForm(request.POST if "add" in request.POST else None)
    added: list[Dataset] = []
    if save_form(form, lambda: added.append(_add(request, form, runs))):
        return _finish(request, added[0], len(runs))
    context |= {"form": form, "runs": runs, "has_more": len(runs) == pages.MAX_RUNS}
    part = "#dialog" if request.htmx else ""
    status = 422 if form.is_bound else 200
    return render(request, f"datasets/add_runs.html{part}", context, status=status)


@transaction.atomic
def _add(request: PageRequest, form: AddRunsForm, runs: list[RunRow]) -> Dataset:
    """Add the runs to the chosen dataset, which is created if it is new."""
    fields, workspace_id = form.cleaned_data, request.caller.workspace_id
    if not runs:
        raise core_errors.Invalid("No runs are selected.")
    if fields["dataset"] is None:
        dataset = create_dataset(workspace_id=workspace_id, name=fields["name"])
    else:
        dataset = get_dataset(workspace_id, fields["dataset"])
    add_runs(
        dataset=dataset,
        run_ids=[run.id for run in runs],
        splits=[fields["split"]] if fields["split"] else (),
        with_outputs=fields["with_outputs"],
    )
    return dataset


def _finish(request: PageRequest, dataset: Dataset, count: int) -> HttpResponse:
    if request.htmx:
        context = {"dataset": dataset, "count": count}
        return render(request, "datasets/add_runs.html#added", context)
    messages.success(request, f"{count} example{'' if count == 1 else 's'} added.")
    return redirect("dataset-examples", dataset.workspace_id, dataset.pk)
