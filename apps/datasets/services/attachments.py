"""Attachments of examples in object storage.

A path is `datasets/<workspace>/<dataset>/<example>/<hash>`, so that an example or a dataset is
removed by its folder, and a repeated request writes nothing twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.core import errors as core_errors
from apps.core import object_storage
from apps.datasets.models import Dataset
from apps.datasets.services.source_runs import SourceRun
from apps.datasets.services.versions import RevisionContent
from apps.datasets.wire import AttachmentsOperations, WireExample
from apps.trace_store import Attachment
from apps.usage import storage
from apps.usage.models import StorageKind

MAX_NAME_LENGTH = 255
MAX_MIME_TYPE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class ExampleFile:
    """A file of a request."""

    name: str
    mime_type: str
    content: bytes

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.mime_type) > MAX_MIME_TYPE_LENGTH or not self.mime_type.isprintable():
            raise core_errors.Invalid(f"The type of attachment `{self.name}` is not a MIME type.")


def check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME_LENGTH or "\x00" in name:
        raise core_errors.Invalid(
            f"The name of an attachment must have 1 to {MAX_NAME_LENGTH} characters."
        )


def folder(workspace_id: UUID, dataset_id: UUID, example_id: UUID | None = None) -> str:
    """Return the folder of the dataset's attachments, or of one example's."""
    path = f"datasets/{workspace_id}/{dataset_id}"
    return path if example_id is None else f"{path}/{example_id}"


def store(dataset: Dataset, example_id: UUID, files: Sequence[ExampleFile]) -> list[dict[str, Any]]:
    """Put the files in object storage; return their entries, of which a later name replaces.

    Raises `StorageFull`.
    """
    entries = {}
    if files:
        storage.check(dataset.workspace_id, StorageKind.DATASETS)
    for file in files:
        digest = hashlib.sha256(file.content).hexdigest()
        path = f"{folder(dataset.workspace_id, dataset.pk, example_id)}/{digest}"
        object_storage.put(path, file.content)
        entries[file.name] = {
            "name": file.name,
            "path": path,
            "mime_type": file.mime_type,
            "size": len(file.content),
        }
    return list(entries.values())


def copy_from_run(
    dataset: Dataset, example_id: UUID, wire: WireExample, run: SourceRun | None
) -> list[dict[str, Any]]:
    """Copy the attachments that the example takes from its source run.

    They are copied, because the run may expire before the example.
    """
    files = [
        ExampleFile(taken.name, taken.mime_type, object_storage.get(taken.path))
        for taken in taken_from_run(wire, run)
    ]
    return store(dataset, example_id, files)


def taken_from_run(wire: WireExample, run: SourceRun | None) -> list[Attachment]:
    """Return the run's attachments that the example takes; `use_source_run_io` takes all.

    Its content has the large media of the run's JSON, which are attachments of the run only.
    Raises `Invalid` for one that the run does not have.
    """
    names = wire.use_source_run_attachments or []
    if run is None:
        if names:
            raise core_errors.Invalid("`use_source_run_attachments` needs a `source_run_id`.")
        return []
    available = {attachment.name: attachment for attachment in run.attachments}
    if wire.use_source_run_io:
        return [attachment for attachment in run.attachments if not attachment.is_medium]
    missing = [name for name in names if name not in available]
    if missing:
        raise core_errors.Invalid(f"The source run has no attachment `{missing[0]:.100}`.")
    return [available[name] for name in names]


def update(
    dataset: Dataset,
    content: RevisionContent,
    files: Sequence[ExampleFile],
    operations: AttachmentsOperations | None,
) -> list[dict[str, Any]] | None:
    """Return the attachments of a changed example.

    Without files and operations they stay. Files alone replace all. With operations, those that
    are retained or renamed stay, files are added and precede, and all others are dropped.
    """
    if operations is None:
        if not files:
            return content.attachments
        return store(dataset, content.example_id, files)
    kept = _apply(operations, content.attachments or [])
    added = store(dataset, content.example_id, files)
    names = {entry["name"] for entry in added}
    return [entry for entry in kept if entry["name"] not in names] + added


def _apply(
    operations: AttachmentsOperations, entries: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    by_name = {entry["name"]: entry for entry in entries}
    for name in [*operations.rename, *operations.retain]:
        if name not in by_name:
            raise core_errors.Invalid(f"The example has no attachment `{name:.100}`.")
    for new_name in operations.rename.values():
        check_name(new_name)
    both = set(operations.rename) & set(operations.retain)
    if both:
        raise core_errors.Invalid(f"`{min(both):.100}` cannot be both renamed and retained.")
    names = [*operations.rename.values(), *operations.retain]
    if len(set(names)) < len(names):
        raise core_errors.Invalid("Two attachments would have the same name.")
    kept = [by_name[name] for name in operations.retain]
    kept += (by_name[old] | {"name": new} for old, new in operations.rename.items())
    return kept
