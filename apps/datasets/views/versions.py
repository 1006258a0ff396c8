"""Pages of versions: history, tags, and differences."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from apps.core import errors as core_errors
from apps.core.timestamps import parse_timestamp
from apps.datasets.forms import VersionTagForm
from apps.datasets.models import Dataset
from apps.datasets.pages import version_history as pages
from apps.datasets.pages.base import dataset_context
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.tags import list_tags, move_tag, remove_tag
from apps.datasets.services.versions import find_version, resolve_as_of, versions_of
from apps.organizations.permissions import Permission
from apps.web_ui.pages import PageRequest, read_offset, save_form, workspace_page


@require_GET
@workspace_page(Permission.DATASETS_READ)
def dataset_history(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """List versions with the number of their changes, and the tags."""
    dataset, offset = get_dataset(request.caller.workspace_id, dataset_id), read_offset(request)
    history = pages.load_history(dataset, offset)
    context = dataset_context(request, dataset, "versions") | {
        "history": history,
        "next_offset": offset + pages.PAGE_SIZE if history.has_more else None,
        "tags": list_tags(dataset),
    }
    return render(request, "datasets/dataset_versions.html", context)


@require_GET
@workspace_page(Permission.DATASETS_READ)
def dataset_changes(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Compare the versions of `?older=` and `?newer=`, each a time or a tag."""
    dataset, offset = get_dataset(request.caller.workspace_id, dataset_id), read_offset(request)
    newer = _version_time(dataset, request.GET.get("newer", ""))
    older_name = request.GET.get("older", "")
    older = _version_time(dataset, older_name) if older_name else _previous(dataset, newer)
    changes = pages.load_changes(dataset, older, newer, offset)
    context = dataset_context(request, dataset, "versions") | {
        "older": older,
        "newer": newer,
        "changes": changes,
        "choices": pages.list_choices(dataset, [older, newer]),
        "next_offset": offset + pages.CHANGES_PER_PAGE if changes.has_more else None,
    }
    return render(request, "datasets/dataset_changes.html", context)


def _version_time(dataset: Dataset, name: str) -> datetime:
    """Return the time of the version at a time or with a tag; raises `VersionNotFound`."""
    version_at = resolve_as_of(dataset, name[:200])
    return find_version(dataset, as_of=version_at).as_of


def _previous(dataset: Dataset, version_at: datetime) -> datetime:
    """Return the time of the version before; the first version is compared with itself."""
    earlier = versions_of(dataset).filter(as_of__lt=version_at).first()
    return version_at if earlier is None else earlier.as_of


@require_POST
@workspace_page(Permission.DATASETS_WRITE)
def version_tag(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Move the tag to the version `as_of` or create it there; `delete` removes it."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    form = VersionTagForm(request.POST)

    def change() -> None:
        name = form.cleaned_data["tag"]
        if "delete" in request.POST:
            remove_tag(dataset=dataset, name=name)
            messages.success(request, f"The tag {name} was removed.")
            return
        try:
            as_of = parse_timestamp(form.cleaned_data["as_of"], "as_of")
        except ValueError as error:
            raise core_errors.Invalid(str(error)) from None
        move_tag(dataset=dataset, name=name, as_of=as_of)
        messages.success(request, f"{name} is now the version of {as_of:%Y-%m-%d %H:%M:%S} UTC.")

    if not save_form(form, change):
        for problems in form.errors.values():
            messages.error(request, str(problems[0]))
    return redirect("dataset-history", dataset.workspace_id, dataset.pk)
