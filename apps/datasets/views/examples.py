"""Pages of examples: the table, one example, its editor, and actions on a selection."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db import transaction
from django.http import FileResponse, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core import errors as core_errors
from apps.core.timestamps import parse_timestamp
from apps.datasets import errors
from apps.datasets.example_forms import ExampleForm
from apps.datasets.models import Dataset
from apps.datasets.pages import example_list, example_view
from apps.datasets.pages.base import dataset_context
from apps.datasets.services import examples as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.restoration import restore_examples
from apps.datasets.services.tags import change_split, list_splits, move_to_split
from apps.datasets.services.versions import find_version, lock_dataset, resolve_as_of
from apps.datasets.views.sharing import EXPORT_FORMATS
from apps.organizations.permissions import Permission
from apps.trace_store.errors import QueryTooSlow
from apps.tracing.api.downloads import file_response
from apps.web_ui.pages import PageRequest, form_page, workspace_page

MAX_SELECTED = 1000


@require_GET
@workspace_page(Permission.DATASETS_READ)
def dataset_examples(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """List the examples of the latest version, or of the one that `?as_of=` names."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    filters = example_list.ExampleFilter.read(dataset, request.GET)
    page, is_slow = example_list.ExamplePage(), False
    if not filters.problem:
        try:
            page = example_list.load_page(dataset, filters, request.GET.get("after", ""))
        except QueryTooSlow:
            is_slow = True
    is_latest = filters.version_at is None
    context = dataset_context(request, dataset, "examples")
    context |= {
        "filters": filters,
        "is_slow": is_slow,
        "page": page,
        "version": None if is_latest else find_version(dataset, as_of=filters.version_at),
        "may_edit": context["may_write"] and is_latest,
        "export_formats": EXPORT_FORMATS,
        "removed_at": request.GET.get("removed", "")[:40] if is_latest else "",
    }
    status = 422 if filters.problem or is_slow else 200
    return render(request, "datasets/dataset_examples.html", context, status=status)


@require_GET
@workspace_page(Permission.DATASETS_READ)
def split_names(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Return the options of the split filter; reading them takes longer than the page."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    version_at = resolve_as_of(dataset, request.GET.get("as_of"))
    context = {"names": list_splits(dataset, version_at)}
    return render(request, "datasets/split_options.html", context)


@require_POST
@workspace_page(Permission.DATASETS_WRITE)
def bulk_action(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Delete the selected examples, or change their split."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    ids = _selected_ids(request)
    action, split = request.POST.get("action"), request.POST.get("split", "").strip()
    query = request.POST.get("back", "")
    try:
        if not ids:
            raise core_errors.Invalid("No examples are selected.")
        if action == "delete":
            return _delete(dataset, ids)
        if action not in {"move", "add", "remove"}:
            raise core_errors.Invalid("There is no such action.")
        if action == "move":
            move_to_split(dataset=dataset, name=split, example_ids=ids)
        else:
            change_split(dataset=dataset, name=split, example_ids=ids, remove=action == "remove")
        examples = f"{len(ids)} example{'' if len(ids) == 1 else 's'}"
        place = "removed from" if action == "remove" else "now in"
        messages.success(request, f"{examples} {place} the split {split}.")
    except core_errors.AppError as error:
        messages.error(request, error.detail)
    url = reverse("dataset-examples", args=[dataset.workspace_id, dataset.pk])
    return redirect(f"{url}?{query}" if query else url)


def _selected_ids(request: PageRequest) -> list[UUID]:
    try:
        return list(
            dict.fromkeys(UUID(text) for text in request.POST.getlist("example")[:MAX_SELECTED])
        )
    except ValueError:
        raise core_errors.BadRequest("`example` must be the id of an example.") from None


def _delete(dataset: Dataset, example_ids: list[UUID]) -> HttpResponse:
    """Delete the examples and return to the list, which offers to restore them."""
    removed_at = services.delete_from_dataset(dataset=dataset, example_ids=example_ids)
    url = reverse("dataset-examples", args=[dataset.workspace_id, dataset.pk])
    return redirect(f"{url}?{urlencode({'removed': removed_at.isoformat()})}")


@require_POST
@workspace_page(Permission.DATASETS_WRITE)
def restore(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Restore the examples that the version `removed_at` removed."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    try:
        removed_at = parse_timestamp(request.POST.get("removed_at", ""), "removed_at")
    except ValueError as error:
        raise core_errors.BadRequest(str(error)) from None
    count = restore_examples(dataset=dataset, removed_at=removed_at)
    messages.success(request, f"{count} example{'' if count == 1 else 's'} restored.")
    return redirect("dataset-examples", dataset.workspace_id, dataset.pk)


@require_GET
@workspace_page(Permission.DATASETS_READ)
def example_detail(request: PageRequest, dataset_id: UUID, example_id: UUID) -> HttpResponse:
    """Show an example; `?part=preview` is the panel next to the list."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    context = _example_context(request, dataset, example_id)
    is_part = bool(request.htmx or request.headers.get("HX-Request"))
    part = "#example" if is_part and request.GET.get("part") == "preview" else ""
    return render(request, f"datasets/example_detail.html{part}", context)


def _example_context(request: PageRequest, dataset: Dataset, example_id: UUID) -> dict[str, Any]:
    as_of = request.GET.get("as_of", "")[:100]
    version_at = resolve_as_of(dataset, as_of)
    example = example_view.load_example(dataset, example_id, version_at)
    context = dataset_context(request, dataset, "examples")
    return context | {
        "example": example,
        "as_of": as_of,
        "history": example_view.load_history(dataset, example_id),
        "may_edit": context["may_write"] and example.is_current,
    }


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_WRITE)
def example_new(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Add an example that is written as JSON."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    form = ExampleForm(request.POST or None, request.FILES or None, initial={"inputs": "{}"})
    if form.is_bound and form.is_valid():
        try:
            services.create_examples(dataset=dataset, examples=[form.new_example()])
        except core_errors.AppError as error:
            form.add_problems(error)
        else:
            messages.success(request, "The example was added.")
            if "another" in request.POST:
                return redirect("example-new", dataset.workspace_id, dataset.pk)
            return redirect("dataset-examples", dataset.workspace_id, dataset.pk)
    context = dataset_context(request, dataset, "examples") | {"form": form}
    return form_page(request, "datasets/example_new.html", context, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_WRITE)
def example_edit(request: PageRequest, dataset_id: UUID, example_id: UUID) -> HttpResponse:
    """Edit the example; htmx replaces the view with the editor and back."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    example = example_view.load_example(dataset, example_id)
    form = ExampleForm.for_example(example, request.POST or None, request.FILES or None)
    if form.is_bound and form.is_valid():
        try:
            _save_example(dataset, example_id, form)
        except core_errors.AppError as error:
            form.add_problems(error)
        else:
            return _changed(request, dataset, example_id)
    context = dataset_context(request, dataset, "examples")
    context |= {"form": form, "example": example}
    part = "#editor" if request.htmx else ""
    return form_page(request, f"datasets/example_edit.html{part}", context, form)


def _save_example(dataset: Dataset, example_id: UUID, form: ExampleForm) -> None:
    """Change the example unless it has changed since the editor was opened."""
    with transaction.atomic():
        lock_dataset(dataset.workspace_id, dataset.pk)
        current = services.get_example(dataset.workspace_id, example_id, dataset_id=dataset.pk)
        if current.valid_from.isoformat() != form.cleaned_data["modified_at"]:
            raise errors.StaleExample
        services.update_examples(dataset=dataset, changes=[form.change(example_id)])


def _changed(request: PageRequest, dataset: Dataset, example_id: UUID) -> HttpResponse:
    if not request.htmx:
        messages.success(request, "The example was saved.")
        return redirect("example-detail", dataset.workspace_id, dataset.pk, example_id)
    dataset.refresh_from_db()
    context = _example_context(request, dataset, example_id)
    context["row"] = example_list.load_rows(dataset, [example_id])[0]
    return render(request, "datasets/example_saved.html", context)


@require_POST
@workspace_page(Permission.DATASETS_WRITE)
def example_delete(request: PageRequest, dataset_id: UUID, example_id: UUID) -> HttpResponse:
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    return _delete(dataset, [example_id])


@require_GET
@workspace_page(Permission.DATASETS_READ)
def example_payload(
    request: PageRequest, dataset_id: UUID, example_id: UUID, payload: str
) -> HttpResponse:
    """Return inputs or outputs as stored; the JSON view fetches large ones."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    version_at = resolve_as_of(dataset, request.GET.get("as_of"))
    example = example_view.load_example(dataset, example_id, version_at)
    view = {"inputs": example.inputs, "outputs": example.outputs}.get(payload)
    if view is None or view.body is None:
        raise core_errors.NotFound
    return HttpResponse(bytes(view.body), content_type="application/json")


@require_GET
@workspace_page(Permission.DATASETS_READ)
def example_file(
    request: PageRequest, dataset_id: UUID, example_id: UUID, number: int
) -> HttpResponse | FileResponse:
    """Serve an attachment by its number."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    version_at: datetime | None = resolve_as_of(dataset, request.GET.get("as_of"))
    files = example_view.load_example(dataset, example_id, version_at).files
    if number >= len(files):
        raise core_errors.NotFound
    entry = files[number]
    return file_response(request, entry["path"], entry["mime_type"], entry["name"])
