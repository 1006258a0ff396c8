"""Data of one example with its whole content, its history and its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, TextField
from django.db.models.functions import Cast

from apps.core.json import Fragment, dumps_text, loads, loads_exact
from apps.datasets import errors
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.pages.json_text import indent_json
from apps.datasets.wire import SPLIT_KEY
from apps.tracing.api.downloads import signed_file_url
from apps.tracing.pages.payload_views import RENDERED_BYTES, PayloadView, build_value_view

MAX_HISTORY = 20


@dataclass(frozen=True)
class ExampleView:
    revision: ExampleRevision
    inputs: PayloadView
    outputs: PayloadView
    metadata: Sequence[tuple[str, str]]
    is_current: bool

    @property
    def id(self) -> UUID:
        return self.revision.example_id

    @property
    def files(self) -> Sequence[dict[str, Any]]:
        return self.revision.attachments or ()

    @property
    def editable_inputs(self) -> str:
        return _editable(self.inputs)

    @property
    def editable_outputs(self) -> str:
        return _editable(self.outputs)

    @property
    def editable_metadata(self) -> str:
        """Return the metadata without the splits as indented JSON; empty without keys."""
        metadata = {k: v for k, v in self.revision.metadata.items() if k != SPLIT_KEY}
        return indent_json(metadata) if metadata else ""


def load_example(
    dataset: Dataset, example_id: UUID, version_at: datetime | None = None
) -> ExampleView:
    """Load the example in a version, None is the latest; raises `ExampleNotFound`."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).as_of(version_at)
    selected: Any = rows.filter(dataset=dataset, example_id=example_id).defer("inputs", "outputs")
    revision = selected.annotate(
        inputs_text=Cast(F("inputs"), TextField()), outputs_text=Cast(F("outputs"), TextField())
    ).first()
    if revision is None:
        raise errors.ExampleNotFound
    return ExampleView(
        revision=revision,
        inputs=_view("inputs", revision.inputs_text),
        outputs=_view("outputs", revision.outputs_text),
        metadata=[
            (name, value if isinstance(value, str) else dumps_text(value))
            for name, value in sorted(revision.metadata.items())
            if name != SPLIT_KEY
        ],
        is_current=revision.valid_to is None,
    )


def _editable(view: PayloadView) -> str:
    """Return the JSON indented; large JSON as it is."""
    if view.body is None:
        return ""
    text = view.body.decode()
    return indent_json(loads_exact(text)) if view.is_inline else text


def _view(name: str, text: str | None) -> PayloadView:
    if text is None:
        return PayloadView(name, None, [], None)
    body = Fragment(text.encode())
    return build_value_view(name, body, loads(text) if len(body) <= RENDERED_BYTES else None)


def load_history(dataset: Dataset, example_id: UUID) -> list[datetime]:
    """Return the times of the versions that wrote the example, newest first."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    rows = rows.filter(dataset=dataset, example_id=example_id).order_by("-valid_from")
    return list(rows.values_list("valid_from", flat=True)[:MAX_HISTORY])


def signed_files(example: ExampleView) -> list[dict[str, Any]]:
    """Return the files with download URLs that need no session."""
    return [
        {
            "name": entry["name"],
            "mime_type": entry["mime_type"],
            "size": entry["size"],
            "url": signed_file_url(entry["path"], entry["mime_type"], entry["name"]),
        }
        for entry in example.files
    ]
