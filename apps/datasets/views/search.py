"""The page of few-shot search: its index, and the examples with the most similar inputs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from apps.core import errors as core_errors
from apps.datasets import errors
from apps.datasets.models import TAG_LENGTH, Dataset, ExampleIndex
from apps.datasets.pages.base import dataset_context
from apps.datasets.pages.similar_examples import load_similar
from apps.datasets.services import search as services
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.tags import list_tags
from apps.datasets.services.versions import LATEST, find_version
from apps.organizations.permissions import Permission
from apps.web_ui.pages import PageRequest, workspace_page

MAX_TEXT_LENGTH = 5000


@require_GET
@workspace_page(Permission.DATASETS_READ)
def dataset_similar(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Show the index, and the matches of `?q=`."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    index = _find_index(dataset)
    text = request.GET.get("q", "").replace("\0", "")[:MAX_TEXT_LENGTH].strip()
    context: dict[str, Any] = dataset_context(request, dataset, "examples") | {
        "index": index,
        "text": text,
        "is_stale": index is not None and _is_stale(index),
        "matches": load_similar(dataset, text) if index is not None and text else [],
        "tag_names": [LATEST, *(tag.name for tag in list_tags(dataset))],
    }
    return render(request, "datasets/dataset_similar.html", context)


def _find_index(dataset: Dataset) -> ExampleIndex | None:
    try:
        return services.get_index(dataset)
    except errors.DatasetNotIndexed:
        return None


def _is_stale(index: ExampleIndex) -> bool:
    """Return whether the tag has moved since the index was written."""
    try:
        return find_version(index.dataset, tag=index.tag).as_of != index.indexed_version_at
    except errors.VersionNotFound:
        return False


@require_POST
@workspace_page(Permission.DATASETS_WRITE)
def change_index(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Create the index for a tag, bring it to its version, or remove it with `delete`."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    try:
        if "delete" in request.POST:
            services.delete_index(dataset=dataset)
            messages.success(request, "The index was removed.")
        else:
            tag = request.POST.get("tag", "")[:TAG_LENGTH] or LATEST
            services.create_index(dataset=dataset, tag=tag)
            messages.success(request, f"The examples of {tag} are indexed.")
    except core_errors.AppError as error:
        messages.error(request, error.detail)
    return redirect("dataset-similar", dataset.workspace_id, dataset.pk)
