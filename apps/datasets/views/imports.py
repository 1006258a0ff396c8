"""The import of a file: mapping of its columns with a preview, then the import with progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRedirect

from apps.core import errors as core_errors
from apps.datasets.import_forms import (
    ROLES,
    ColumnChoice,
    ImportForm,
    build_mapping,
    is_exported,
    read_choices,
)
from apps.datasets.models import Dataset
from apps.datasets.pages.base import dataset_context
from apps.datasets.pages.json_text import one_line
from apps.datasets.services.datasets import create_dataset, get_dataset
from apps.datasets.services.import_progress import ImportProgress
from apps.datasets.services.imports import (
    ColumnMapping,
    ImportedFile,
    ImportPreview,
    import_file,
    preview_file,
)
from apps.organizations.permissions import Permission
from apps.web_ui.pages import PageRequest, workspace_page


@dataclass
class MappingPage:
    """The second step: the columns, the first examples, and the problems."""

    choices: Sequence[ColumnChoice] = ()
    is_exported: bool = False
    preview: ImportPreview | None = None
    problems: Sequence[Mapping[str, Any]] = field(default_factory=list)
    error: str = ""

    @property
    def rows(self) -> list[dict[str, str]]:
        """Return the first examples, each part on one line."""
        if self.preview is None:
            return []
        return [
            {name: one_line(example[name]) for name in ("inputs", "outputs", "metadata")}
            for example in self.preview.examples
        ]


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_WRITE)
def dataset_import(request: PageRequest, dataset_id: UUID | None = None) -> HttpResponse:
    """Show the steps; `step=import` imports the file, into a new dataset if none is named."""
    workspace_id = request.caller.workspace_id
    dataset = None if dataset_id is None else get_dataset(workspace_id, dataset_id)
    form = ImportForm(request.POST or None, request.FILES or None, needs_name=dataset is None)
    page = MappingPage()
    if form.is_bound and form.is_valid():
        target = dataset or Dataset(workspace_id=workspace_id, name=form.dataset_name)
        page, mapping = _read_mapping(request, form, target)
        if request.POST.get("step") == "import" and mapping is not None:
            imported = _import(request, form, mapping, dataset, page)
            if imported is not None:
                return _finish(request, imported)
    elif form.is_bound:
        page.error = str(next(iter(form.errors.values()))[0])
    return _render(request, form, page, dataset)


def _read_mapping(
    request: PageRequest, form: ImportForm, target: Dataset
) -> tuple[MappingPage, ColumnMapping | None]:
    """Return the page with the preview, and the mapping unless it is refused."""
    page = MappingPage()
    try:
        file = form.imported_file()
        columns = file.columns()
        page.is_exported = is_exported(file, columns)
        mapping = ColumnMapping()
        if not page.is_exported:
            page.choices = read_choices(columns, request.POST)
            mapping = build_mapping(page.choices, parses_json=form.cleaned_data["parses_json"])
        if request.POST.get("step") == "import":
            return page, mapping
        page.preview = preview_file(
            dataset=target,
            file=ImportedFile(file.name, file.content, mapping),
            is_beginning="is_beginning" in request.POST,
        )
        page.problems = page.preview.problems
    except core_errors.AppError as error:
        page.error = error.detail
        return page, None
    return page, mapping


def _import(
    request: PageRequest,
    form: ImportForm,
    mapping: ColumnMapping,
    dataset: Dataset | None,
    page: MappingPage,
) -> tuple[Dataset, int] | None:
    """Import the file, into a new dataset if there is none; None if it is refused."""
    workspace_id = request.caller.workspace_id
    progress = ImportProgress(workspace_id, _import_id(request))
    progress.start()
    try:
        with transaction.atomic():
            target = dataset or create_dataset(workspace_id=workspace_id, name=form.dataset_name)
            file = form.imported_file(mapping)
            count = import_file(dataset=target, file=file, on_progress=progress.advance)
    except core_errors.AppError as error:
        if error.status >= 500:
            raise
        page.error = error.detail
        page.problems = [item for item in error.errors if "message" in item]
        return None
    finally:
        progress.finish()
    return target, count


def _import_id(request: PageRequest) -> UUID:
    try:
        return UUID(request.POST.get("import_id", ""))
    except ValueError:
        return uuid4()


def _finish(request: PageRequest, imported: tuple[Dataset, int]) -> HttpResponse:
    dataset, count = imported
    messages.success(request, f"{count} example{'' if count == 1 else 's'} imported.")
    url = reverse("dataset-examples", args=[dataset.workspace_id, dataset.pk])
    return HttpResponseClientRedirect(url) if request.htmx else redirect(url)


def _render(
    request: PageRequest, form: ImportForm, page: MappingPage, dataset: Dataset | None
) -> HttpResponse:
    context: dict[str, Any] = {
        "form": form,
        "mapping": page,
        "roles": ROLES,
        "max_mebibytes": settings.MAX_BODY_BYTES // 2**20,
        "import_id": uuid4(),
    }
    if dataset is not None:
        context |= dataset_context(request, dataset, "examples")
    template = "dataset_import_new" if dataset is None else "dataset_import"
    if request.htmx:
        template = "import_mapping"
    status = 422 if page.error else 200
    return render(request, f"datasets/{template}.html", context, status=status)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DATASETS_WRITE)
def import_progress(request: PageRequest, import_id: UUID) -> JsonResponse:
    """Return the number of imported rows of a running import; POST cancels it."""
    progress = ImportProgress(request.caller.workspace_id, import_id)
    if request.method == "POST" and not progress.cancel():
        raise core_errors.NotFound
    count = progress.count
    if count is None:
        raise core_errors.NotFound
    return JsonResponse({"count": count})
