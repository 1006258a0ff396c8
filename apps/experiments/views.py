"""Pages of experiments: list, comparison, one compared example, and pairwise comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core import errors as core_errors
from apps.datasets.models import Dataset
from apps.datasets.pages.base import dataset_context
from apps.datasets.services.datasets import get_dataset, update_dataset
from apps.datasets.services.sharing import resolve_experiments_link
from apps.experiments.forms import ExperimentForm
from apps.experiments.pages import (
    comparison,
    comparison_summary,
    example_detail,
    experiment_list,
    pairwise,
    score_charts,
)
from apps.experiments.pages.comparison_state import MAX_COMPARED, SORTS, ComparisonState
from apps.experiments.pages.experiment_list import ExperimentListState
from apps.experiments.services import comparisons
from apps.experiments.services.results import get_experiments
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.services import delete_project, update_project
from apps.web_ui.pages import PageRequest, form_page, keep_private, save_form, workspace_page


def _dataset(request: PageRequest, dataset_id: UUID) -> Dataset:
    return get_dataset(request.caller.workspace_id, dataset_id)


def _experiment(dataset: Dataset, project_id: UUID) -> Project:
    [project] = get_experiments(dataset, [project_id])
    return project


RUN_PERMISSIONS = (
    Permission.EXPERIMENTS_WRITE,
    Permission.DATASETS_READ,
    Permission.PROJECTS_WRITE,
    Permission.AGENTS_RUN,
)
"""Required to run an experiment on a deployment."""


def _context(request: PageRequest, dataset: Dataset) -> dict[str, Any]:
    caller = request.caller
    return dataset_context(request, dataset, "experiments") | {
        "may_edit_experiments": caller.may(Permission.PROJECTS_WRITE),
        "may_delete_experiments": caller.may(Permission.PROJECTS_DELETE),
        "may_delete_comparisons": caller.may(Permission.EXPERIMENTS_DELETE),
        "may_run_experiments": all(map(caller.may, RUN_PERMISSIONS)),
        "max_compared": MAX_COMPARED,
        "api_url": f"{settings.API_BASE_URL}/api/v1",
    }


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def experiments(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """List the dataset's experiments with their scores."""
    dataset, state = _dataset(request, dataset_id), ExperimentListState.read(request.GET)
    page = experiment_list.load_list(dataset, state)
    next_offset = state.offset + experiment_list.PAGE_SIZE if page.has_next else None
    context = _context(request, dataset) | {
        "state": state,
        "list": page,
        "next_offset": next_offset,
        "max_sorted": experiment_list.MAX_SORTED,
    }
    return render(request, "experiments/experiment_list.html", context)


@require_GET
def public_experiments(request: HttpRequest, token: UUID) -> HttpResponse:
    """List the experiments of a shared dataset; 404 unless its link shows them.

    Metadata, which may name authors and machines, is neither shown nor searched.
    """
    dataset = resolve_experiments_link(token)
    state = replace(ExperimentListState.read(request.GET), text="", metadata="")
    page = experiment_list.load_list(dataset, state)
    next_offset = state.offset + experiment_list.PAGE_SIZE if page.has_next else None
    context = {
        "dataset": dataset,
        "token": token,
        "has_experiments": True,
        "state": state,
        "list": page,
        "next_offset": next_offset,
        "max_sorted": experiment_list.MAX_SORTED,
    }
    return keep_private(render(request, "experiments/public_experiments.html", context))


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def charts(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Chart the scores of the newest experiments: a part of the list, or a page of its own."""
    dataset = _dataset(request, dataset_id)
    context = {"charts": score_charts.load_charts(dataset)}
    if request.htmx:
        return render(request, "experiments/charts.html#charts", context)
    return render(request, "experiments/charts.html", _context(request, dataset) | context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROJECTS_WRITE)
def experiment_edit(request: PageRequest, dataset_id: UUID, project_id: UUID) -> HttpResponse:
    """Rename and describe an experiment."""
    dataset = _dataset(request, dataset_id)
    project = _experiment(dataset, project_id)
    name = project.name
    form = ExperimentForm.for_experiment(project, request.POST or None)
    if save_form(form, lambda: update_project(project=project, changes=form.changes)):
        messages.success(request, "The experiment was saved.")
        return redirect("dataset-experiments", dataset.workspace_id, dataset.pk)
    context = _context(request, dataset) | {"project": project, "name": name, "form": form}
    return form_page(request, "experiments/experiment_edit.html", context, form)


@require_POST
@workspace_page(Permission.PROJECTS_DELETE)
def experiment_delete(request: PageRequest, dataset_id: UUID, project_id: UUID) -> HttpResponse:
    """Delete the experiment with its runs if its name was typed."""
    dataset = _dataset(request, dataset_id)
    project = _experiment(dataset, project_id)
    if request.POST.get("name") != project.name:
        messages.error(request, "The name does not match. The experiment was not deleted.")
        return redirect("dataset-experiment-edit", dataset.workspace_id, dataset.pk, project.pk)
    delete_project(project=project)
    messages.success(
        request, f"{project.name} was deleted. Its runs are deleted in the background."
    )
    return redirect("dataset-experiments", dataset.workspace_id, dataset.pk)


@require_POST
@workspace_page(Permission.DATASETS_WRITE)
def baseline(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Make an experiment the dataset's baseline; without one, the dataset has none."""
    dataset = _dataset(request, dataset_id)
    text = request.POST.get("experiment", "")
    project_id = None
    if text:
        try:
            project_id = UUID(text)
        except ValueError:
            raise core_errors.NotFound from None
    update_dataset(dataset=dataset, changes={"baseline_experiment_id": project_id})
    messages.success(request, "The baseline was changed.")
    return redirect("dataset-experiments", dataset.workspace_id, dataset.pk)


def _comparison_state(request: PageRequest, dataset: Dataset) -> ComparisonState:
    baseline_id = None
    if "baseline" not in request.GET and dataset.baseline_experiment_id is not None:
        # The baseline may be deleted.
        rows = experiment_list.experiments_of(dataset).filter(pk=dataset.baseline_experiment_id)
        baseline_id = rows.values_list("pk", flat=True).first()
    return ComparisonState.read(request.GET, baseline_id)


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def compare(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Compare up to ten experiments, example by example."""
    dataset = _dataset(request, dataset_id)
    state = _comparison_state(request, dataset)
    if not state.experiment_ids:
        messages.error(request, "Select the experiments to compare.")
        return redirect("dataset-experiments", dataset.workspace_id, dataset.pk)
    query = comparison.build_query(dataset, state)
    page = comparison.load_comparison(state, query)
    page_state = replace(state, key=page.key)
    next_offset = state.offset + len(page.rows) if page.has_next else None
    context = _context(request, dataset) | {
        "state": page_state,
        "page": page,
        "experiments": [
            (
                item,
                page_state.url_without(item.id) if len(page.experiments) > 1 else "",
                page_state.url_with_baseline(item.id),
            )
            for item in page.experiments
        ],
        "choices": [
            (project, page_state.url_with(project.pk))
            for project in comparison.list_choices(dataset, state)
        ]
        if len(page.experiments) < MAX_COMPARED
        else [],
        "sorts": _sort_options(page_state, page.experiments),
        "first_number": state.offset + 1,
        "last_number": state.offset + len(page.rows),
        "first_url": page_state.url() if state.offset else "",
        "next_url": page_state.url(offset=next_offset) if next_offset else "",
        "summary_rows": range(comparison_summary.count_rows(page.keys)),
        "summary_url": _url("dataset-experiments-summary", dataset) + page_state.query_string,
        "page_url": f"{settings.BASE_URL}{request.path}{page_state.query_string}",
    }
    return render(request, "experiments/compare.html", context)


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def client_link(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Redirect the address that the public clients print to the comparison page."""
    dataset = _dataset(request, dataset_id)
    selected = request.GET.get("selectedSessions", "").split(",")
    pairs = [("e", item) for item in selected if item]
    if pairwise_id := request.GET.get("comparativeExperiment"):
        pairs.append(("pairwise", pairwise_id))
    return redirect(f"{_url('dataset-experiments-compare', dataset)}?{urlencode(pairs)}")


def _url(name: str, dataset: Dataset) -> str:
    return reverse(name, args=[dataset.workspace_id, dataset.pk])


def _sort_options(
    state: ComparisonState, experiments: Sequence[comparison.ComparedExperiment]
) -> list[tuple[str, str, bool]]:
    """Return value, label and whether it is selected for each order by score."""
    return [
        (
            f"{sort}.{item.id}",
            f"{label} {item.letter}",
            (sort, item.id) == (state.sort, state.sort_of),
        )
        for sort, label in SORTS.items()
        for item in experiments
        if not (item.is_baseline and sort in {"worst", "best"})
    ]


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def compare_summary(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Compare the statistics over all examples: a part of the comparison, or its own page."""
    dataset = _dataset(request, dataset_id)
    state = _comparison_state(request, dataset)
    if not state.experiment_ids:
        raise core_errors.NotFound
    query = comparison.build_query(dataset, state)
    context = {
        "dataset": dataset,
        "state": state,
        "summary": comparison_summary.load_summary(state, query),
        "compare_url": _url("dataset-experiments-compare", dataset),
    }
    if request.htmx:
        return render(request, "experiments/compare_summary.html#summary", context)
    return render(request, "experiments/compare_summary.html", _context(request, dataset) | context)


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def compare_example(request: PageRequest, dataset_id: UUID, example_id: UUID) -> HttpResponse:
    """Show one example with two of the compared experiments; for htmx, without the page."""
    dataset = _dataset(request, dataset_id)
    state = _comparison_state(request, dataset)
    if not state.experiment_ids:
        raise core_errors.NotFound
    detail = example_detail.load_example(
        comparison.build_query(dataset, state),
        example_id,
        with_id=_optional_id(request.GET.get("with", "")),
        numbers=(_number(request, "a"), _number(request, "b")),
        against_reference=request.GET.get("diff") == "reference",
    )
    context = {
        "dataset": dataset,
        "state": state,
        "detail": detail,
        "may_read_runs": request.caller.may(Permission.RUNS_READ),
        "compare_url": _url("dataset-experiments-compare", dataset),
    }
    if request.htmx:
        return render(request, "experiments/compare_example.html#example", context)
    return render(request, "experiments/compare_example.html", _context(request, dataset) | context)


def _optional_id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise core_errors.NotFound from None


def _number(request: PageRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 6 else 0


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def pairwise_list(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """List the pairwise comparisons of the dataset's experiments."""
    dataset = _dataset(request, dataset_id)
    offset = _number(request, "from")
    rows, has_next = pairwise.load_pairwise(dataset, offset)
    context = _context(request, dataset) | {
        "rows": rows,
        "next_offset": offset + pairwise.PAGE_SIZE if has_next else None,
    }
    return render(request, "experiments/pairwise_list.html", context)


@require_POST
@workspace_page(Permission.EXPERIMENTS_DELETE)
def pairwise_delete(request: PageRequest, dataset_id: UUID, comparison_id: UUID) -> HttpResponse:
    dataset = _dataset(request, dataset_id)
    row = comparisons.get_comparison(dataset.workspace_id, comparison_id, dataset=dataset)
    comparisons.delete_comparison(comparison=row)
    messages.success(request, "The comparison was deleted. Its experiments stay.")
    return redirect("dataset-pairwise", dataset.workspace_id, dataset.pk)
