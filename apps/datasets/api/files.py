"""Endpoints that import and export files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path
from django.utils.http import content_disposition_header
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors as core_errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.json import dumps, loads
from apps.datasets import errors
from apps.datasets.api.dataset_bodies import dataset_fields
from apps.datasets.api.platform import MULTIPART
from apps.datasets.api.queries import query_params
from apps.datasets.api.rendering import datasets_json
from apps.datasets.api.versions import AsOfSerializer
from apps.datasets.models import Dataset
from apps.datasets.services.datasets import create_dataset, get_dataset
from apps.datasets.services.downloads import FORMATS
from apps.datasets.services.imports import (
    ColumnMapping,
    ImportedFile,
    import_file,
    preview_file,
)
from apps.datasets.services.versions import resolve_as_of
from apps.ingest.multipart import parse_boundary, parse_part, split_parts
from apps.ingest.request_body import read_body
from apps.organizations.permissions import Permission

_FILE_NAME = re.compile(rb'[;\s]filename="((?:[^"\\\r\n]|\\.)*)"', re.IGNORECASE)
_KINDS = ("input", "output", "metadata")
_KEY_LISTS = tuple(f"{kind}_keys" for kind in _KINDS)
_KEY_MAPPINGS = tuple(f"{kind}_key_mappings" for kind in _KINDS)
_DATASET_FIELDS = ("name", "description", "data_type", "id")
_JSON_FIELDS = ("inputs_schema_definition", "outputs_schema_definition", "transformations")


@dataclass(slots=True)
class UploadForm:
    """The parts of an upload."""

    file_name: str = ""
    content: bytes | None = None
    texts: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)

    def imported_file(self) -> ImportedFile:
        if self.content is None:
            raise core_errors.Invalid("Part `file` is missing.")
        inputs, outputs, metadata = (self._mapping(kind) for kind in _KINDS)
        mapping = ColumnMapping(inputs, outputs, metadata)
        return ImportedFile(self.file_name, self.content, mapping)

    def _mapping(self, kind: str) -> dict[str, str]:
        """Return the keys by column: columns keep their name unless a mapping renames them."""
        mapping = {name: name for name in self.lists.get(f"{kind}_keys", ())}
        text = self.texts.get(f"{kind}_key_mappings")
        if text:
            renamed = _parse_json(text, f"{kind}_key_mappings")
            pairs = renamed.items() if isinstance(renamed, dict) else None
            if pairs is None or not all(isinstance(v, str) and v for _, v in pairs):
                raise core_errors.Invalid(
                    f"`{kind}_key_mappings` must be a JSON object of keys by column."
                )
            mapping |= renamed
        if len(set(mapping.values())) < len(mapping):
            raise core_errors.Invalid(f"Two {kind} columns have the same key.")
        return mapping

    def dataset_fields(self) -> dict[str, Any]:
        """Return the arguments of `create_dataset`; the name is the file's by default."""
        body: dict[str, Any] = {
            name: self.texts[name] for name in _DATASET_FIELDS if self.texts.get(name)
        }
        body.setdefault("name", PurePath(self.file_name).name)
        for name in _JSON_FIELDS:
            if self.texts.get(name):
                body[name] = _parse_json(self.texts[name], name)
        return dataset_fields(dumps(body))


def read_form(request: HttpRequest, allowed: tuple[str, ...]) -> UploadForm:
    """Read the multipart form; raises `Invalid` for an unknown field."""
    form = UploadForm()
    boundary = parse_boundary(request.headers.get("Content-Type", ""))
    for raw_part in split_parts(read_body(request), boundary):
        part = parse_part(raw_part)
        if part.name == "file":
            form.content = part.content
            head = raw_part[: len(raw_part) - len(part.content)]
            match = _FILE_NAME.search(head)
            form.file_name = match[1].decode("utf-8", "replace") if match else ""
            continue
        if part.name not in allowed:
            raise core_errors.Invalid(f"There is no field `{part.name:.60}`.")
        try:
            text = part.content.decode()
        except UnicodeDecodeError:
            raise core_errors.Invalid(f"`{part.name:.60}` is not UTF-8.") from None
        if part.name in _KEY_LISTS:
            form.lists.setdefault(part.name, []).append(text)
        else:
            form.texts[part.name] = text
    return form


def _parse_json(text: str, name: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise core_errors.Invalid(f"`{name}` is not valid JSON: {error}") from None


_MAPPING_FIELDS = (*_KEY_LISTS, *_KEY_MAPPINGS)
_UPLOAD_FIELDS = (*_MAPPING_FIELDS, *_DATASET_FIELDS, *_JSON_FIELDS)


class UploadView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=MULTIPART, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Create a dataset from a CSV or JSONL file: one example per row, all or none."""
        form = read_form(request._request, _UPLOAD_FIELDS)
        file = form.imported_file()
        with transaction.atomic():
            dataset = create_dataset(workspace_id=self.workspace_id, **form.dataset_fields())
            import_file(dataset=dataset, file=file)
        dataset = get_dataset(self.workspace_id, dataset.pk)
        return Response(datasets_json(self.workspace_id, [dataset])[0])


class PreviewView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=MULTIPART, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Return what an upload would do: columns, first examples, problems. Nothing is stored."""
        form = read_form(request._request, (*_UPLOAD_FIELDS, "dataset_id"))
        file = form.imported_file()
        dataset_id = form.texts.get("dataset_id")
        if dataset_id:
            dataset = get_dataset(self.workspace_id, _parse_id(dataset_id))
        else:
            fields = {k: v for k, v in form.dataset_fields().items() if k != "tag_value_ids"}
            dataset = Dataset(workspace_id=self.workspace_id, **fields)
        preview = preview_file(dataset=dataset, file=file)
        return Response(
            {
                "format": "jsonl" if file.is_jsonl else "csv",
                "columns": preview.columns,
                "row_count": preview.row_count,
                "examples": preview.examples,
                "problems": preview.problems,
            }
        )


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.DatasetNotFound from None


class ExampleUploadView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_WRITE

    @extend_schema(request=MULTIPART, responses=dict)
    def post(self, request: ApiRequest, dataset_id: UUID) -> Response:
        """Add the rows of a CSV or JSONL file to the dataset in one version: all or none."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        form = read_form(request._request, _MAPPING_FIELDS)
        count = import_file(dataset=dataset, file=form.imported_file())
        return Response({"count": count})


class DownloadView(WorkspaceAPIView):
    required_permission = Permission.DATASETS_READ

    @extend_schema(parameters=[AsOfSerializer], responses={(200, "*/*"): bytes})
    def get(
        self, request: ApiRequest, dataset_id: UUID, export_format: str
    ) -> StreamingHttpResponse:
        """Stream a version of the dataset as a file."""
        dataset = get_dataset(self.workspace_id, dataset_id)
        params = query_params(AsOfSerializer, request)
        return stream_export(dataset, params.get("as_of"), export_format)


def stream_export(dataset: Dataset, as_of: str | None, export_format: str) -> StreamingHttpResponse:
    """Return the version as a file of one of `FORMATS`; raises `VersionNotFound`."""
    version_at = resolve_as_of(dataset, as_of)
    export, media_type, suffix = FORMATS[export_format]
    lines: Iterator[bytes] = export(dataset, version_at)
    disposition = content_disposition_header(
        as_attachment=True, filename=f"{dataset.name[:100]}.{suffix}"
    )
    return StreamingHttpResponse(
        lines, content_type=media_type, headers={"Content-Disposition": disposition}
    )


routes = [
    path("datasets/upload", UploadView.as_view(), name="dataset-upload"),
    path("datasets/upload/preview", PreviewView.as_view(), name="dataset-upload-preview"),
    path("examples/upload/<uuid:dataset_id>", ExampleUploadView.as_view(), name="example-upload"),
    *(
        path(
            f"datasets/<uuid:dataset_id>/{name}",
            DownloadView.as_view(),
            {"export_format": name},
            name=f"dataset-{name.replace('_', '-')}",
        )
        for name in FORMATS
    ),
]
