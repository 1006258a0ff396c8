"""Pages of the list of datasets, and of a dataset's creation, settings and deletion."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core.tenancy import get_or_404
from apps.datasets import errors
from apps.datasets.forms import DatasetSettingsForm, NewDatasetForm
from apps.datasets.models import Dataset, DataType
from apps.datasets.pages import dataset_list as pages
from apps.datasets.pages.base import dataset_context
from apps.datasets.services import datasets as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.removal import removal_time, restore_dataset
from apps.organizations.permissions import Permission
from apps.web_ui.pages import PageRequest, form_page, read_offset, save_form, workspace_page


@require_GET
@workspace_page(Permission.DATASETS_READ)
def dataset_list(request: PageRequest) -> HttpResponse:
    """List datasets; `?deleted=` offers to restore the dataset that was just deleted."""
    workspace_id = request.caller.workspace_id
    text = request.GET.get("q", "").replace("\0", "")[:500].strip()
    kind = request.GET.get("type", "")
    kind = kind if kind in DataType.values else ""
    deleted = _find_deleted(workspace_id, request.GET.get("deleted", ""))
    context = {
        "list": pages.load_list(
            workspace_id,
            text=text,
            data_type=kind,
            sort=request.GET.get("sort", pages.DEFAULT_SORT),
            cursor=request.GET.get("after") or None,
        ),
        "text": text,
        "kind": kind,
        "kinds": DataType.choices,
        "deleted": deleted,
        "deleted_until": None if deleted is None else removal_time(deleted),
        "has_deleted": Dataset.objects.for_workspace(workspace_id).deleted().exists(),
        "may_write": request.caller.may(Permission.DATASETS_WRITE),
        "may_delete": request.caller.may(Permission.DATASETS_DELETE),
    }
    return render(request, "datasets/dataset_list.html", context)


def _find_deleted(workspace_id: UUID, text: str) -> Dataset | None:
    try:
        dataset_id = UUID(text)
    except ValueError:
        return None
    return Dataset.objects.for_workspace(workspace_id).deleted().filter(pk=dataset_id).first()


@require_GET
@workspace_page(Permission.DATASETS_READ)
def dataset_trash(request: PageRequest) -> HttpResponse:
    """List the deleted datasets that can be restored."""
    offset = read_offset(request)
    rows = pages.load_deleted(request.caller.workspace_id, offset)
    context = {
        "rows": rows[: pages.PAGE_SIZE],
        "next_offset": offset + pages.PAGE_SIZE if len(rows) > pages.PAGE_SIZE else None,
        "may_delete": request.caller.may(Permission.DATASETS_DELETE),
    }
    return render(request, "datasets/dataset_trash.html", context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_WRITE)
def dataset_new(request: PageRequest) -> HttpResponse:
    form = NewDatasetForm(request.POST or None)
    workspace_id = request.caller.workspace_id
    created: list[Dataset] = []

    def create() -> None:
        created.append(services.create_dataset(workspace_id=workspace_id, **form.cleaned_data))

    if save_form(form, create):
        return redirect("dataset-examples", workspace_id, created[0].pk)
    return form_page(request, "datasets/dataset_new.html", {"form": form}, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_WRITE)
def dataset_settings(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Change the name, the description and the schemas."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    form = DatasetSettingsForm.for_dataset(dataset, request.POST or None)

    def update() -> None:
        services.update_dataset(dataset=dataset, changes=form.cleaned_data)

    if save_form(form, update):
        messages.success(request, "The settings were saved.")
        return redirect("dataset-settings", dataset.workspace_id, dataset.pk)
    if form.is_bound:
        dataset.refresh_from_db()
    context = dataset_context(request, dataset, "settings") | {
        "form": form,
        "schema_fields": [form["inputs_schema"], form["outputs_schema"]],
        "restore_days": settings.DATASET_RESTORE_DAYS,
    }
    return form_page(request, "datasets/dataset_settings.html", context, form)


@require_POST
@workspace_page(Permission.DATASETS_DELETE)
def dataset_delete(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Delete the dataset if its name was typed; the list offers to undo it."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    if request.POST.get("name", "") != dataset.name:
        messages.error(request, "The name does not match. The dataset was not deleted.")
        return redirect("dataset-settings", dataset.workspace_id, dataset.pk)
    services.delete_dataset(dataset=dataset)
    url = reverse("dataset-list", args=[dataset.workspace_id])
    return redirect(f"{url}?{urlencode({'deleted': str(dataset.pk)})}")


@require_POST
@workspace_page(Permission.DATASETS_DELETE)
def dataset_undelete(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Restore a deleted dataset."""
    rows = Dataset.objects.for_workspace(request.caller.workspace_id).deleted()
    try:
        dataset = restore_dataset(dataset=get_or_404(rows, pk=dataset_id))
    except errors.DatasetNameTaken as error:
        messages.error(request, f"{error.detail} Rename it, then restore this one.")
        return redirect("dataset-trash", request.caller.workspace_id)
    messages.success(request, f"{dataset.name} was restored.")
    return redirect("dataset-examples", dataset.workspace_id, dataset.pk)
