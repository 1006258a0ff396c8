"""Export of files, the public link of a dataset, and the pages that it opens."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from apps.core import errors as core_errors
from apps.datasets.api.files import stream_export
from apps.datasets.models import Dataset, DatasetShare
from apps.datasets.pages import example_list, example_view
from apps.datasets.services import sharing as services
from apps.datasets.services.datasets import get_dataset
from apps.organizations.permissions import Permission
from apps.tracing.errors import ShareNotFound
from apps.web_ui.pages import PageRequest, keep_private, workspace_page

EXPORT_FORMATS = (
    ("csv", "CSV"),
    ("jsonl", "JSON lines"),
    ("openai_ft", "OpenAI fine-tuning"),
    ("openai", "OpenAI evals"),
)


@require_GET
@workspace_page(Permission.DATASETS_READ)
def dataset_export(
    request: PageRequest, dataset_id: UUID, export_format: str
) -> StreamingHttpResponse:
    """Stream the latest version, or that of `?as_of=`, as a file."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    if export_format not in dict(EXPORT_FORMATS):
        raise core_errors.NotFound
    return stream_export(dataset, request.GET.get("as_of"), export_format)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_SHARE)
def dataset_link(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Create, show or revoke the public link, and choose whether it shows the experiments."""
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    problem = ""
    if request.method == "POST":
        try:
            if request.POST.get("action") == "revoke":
                services.unshare_dataset(dataset=dataset)
            else:
                choice = request.POST.get("experiments", "")
                with_experiments = {"on": True, "off": False}.get(choice)
                if with_experiments:
                    request.caller.require(Permission.EXPERIMENTS_READ)
                services.share_dataset(dataset=dataset, with_experiments=with_experiments)
        except core_errors.Forbidden as error:
            problem = error.detail
        if not request.htmx and not problem:
            messages.success(request, "The public link was changed.")
            return redirect("dataset-link", dataset.workspace_id, dataset.pk)
    share = _find_share(dataset)
    url = ""
    if share is not None:
        path = reverse("public-dataset-page", args=[share.token])
        url = f"{settings.BASE_URL}{path}"
    context = {
        "dataset": dataset,
        "share": share,
        "url": url,
        "problem": problem,
        "may_show_experiments": request.caller.may(Permission.EXPERIMENTS_READ),
    }
    part = "#dialog" if request.htmx else ""
    status = 422 if problem else 200
    return render(request, f"datasets/dataset_link.html{part}", context, status=status)


def _find_share(dataset: Dataset) -> DatasetShare | None:
    try:
        return services.find_share(dataset)
    except ShareNotFound:
        return None


@require_GET
def public_dataset(request: HttpRequest, token: UUID) -> HttpResponse:
    """Render the latest examples of a shared dataset; 404 if the link was revoked."""
    share = services.find_shared(token)
    dataset = share.dataset
    filters = example_list.ExampleFilter.read(dataset, QueryDict())
    context = {
        "dataset": dataset,
        "token": token,
        "page": example_list.load_page(dataset, filters, request.GET.get("after", "")),
        "has_experiments": share.with_experiments,
    }
    return keep_private(render(request, "datasets/public_dataset.html", context))


@require_GET
def public_example(request: HttpRequest, token: UUID, example_id: UUID) -> HttpResponse:
    """Render one example of a shared dataset, without its source run."""
    dataset = services.resolve_link(token)
    example = example_view.load_example(dataset, example_id)
    context = {
        "dataset": dataset,
        "token": token,
        "example": example,
        "files": example_view.signed_files(example),
    }
    return keep_private(render(request, "datasets/public_example.html", context))
