"""Creating, changing and deleting examples; each call makes at most one version per dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction
from django.utils import timezone

from apps.core import errors as core_errors
from apps.core.ids import uuid7
from apps.datasets import errors
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services import attachments as files
from apps.datasets.services.attachments import ExampleFile
from apps.datasets.services.content import check_example
from apps.datasets.services.source_runs import SourceRun, fetch_source_runs
from apps.datasets.services.transformations import needs_run_extra
from apps.datasets.services.versions import RevisionContent, write_version
from apps.datasets.wire import (
    WireExample,
    WireExampleUpdate,
    has_value,
    merge_splits,
    parse_metadata,
    parse_splits,
    parse_time_field,
)


@dataclass(slots=True)
class NewExample:
    """An example of a request, with the files that came with it."""

    wire: WireExample
    files: list[ExampleFile] = field(default_factory=list)


@dataclass(slots=True)
class ExampleChange:
    """A change of a request, with the files that came with it."""

    wire: WireExampleUpdate
    files: list[ExampleFile] = field(default_factory=list)

    @property
    def example_id(self) -> UUID:
        if self.wire.id is None:
            raise core_errors.Invalid("Each change needs the `id` of an example.")
        return self.wire.id


@dataclass(frozen=True, slots=True)
class WrittenExamples:
    """The result of a write: the ids in the order of the request, and the version."""

    example_ids: list[UUID]
    as_of: datetime


def create_examples(*, dataset: Dataset, examples: Sequence[NewExample]) -> WrittenExamples:
    """Add the examples in one version: all or none.

    Raises `ExampleRefused` for content that does not fit the dataset, `ExampleNotFound` for an
    unknown source run, and `ExampleIdTaken`. Attachments are stored before the rows: a failure
    leaves objects, never a row without its object.
    """
    runs = fetch_source_runs(
        dataset.workspace_id,
        [example.wire for example in examples],
        with_extra=needs_run_extra(dataset),
    )
    contents = build_contents(dataset, examples, runs)
    with write_version(dataset.workspace_id, dataset.pk) as version:
        if contents:
            _check_ids(dataset, [content.example_id for content in contents])
            version.add(contents)
    return WrittenExamples([content.example_id for content in contents], version.written_at)


def check_examples(*, dataset: Dataset, examples: Sequence[NewExample]) -> list[RevisionContent]:
    """Return the contents that `create_examples` would write, without attachments.

    Nothing is written. Raises what `create_examples` raises.
    """
    runs = fetch_source_runs(
        dataset.workspace_id,
        [example.wire for example in examples],
        with_extra=needs_run_extra(dataset),
    )
    contents = _check_contents(dataset, examples, runs, first_row=0)
    for example in examples:
        wire = example.wire
        run = None if wire.source_run_id is None else runs.get(wire.source_run_id)
        files.taken_from_run(wire, run)
    _check_ids(dataset, [content.example_id for content in contents])
    return contents


def build_contents(
    dataset: Dataset,
    examples: Sequence[NewExample],
    runs: Mapping[UUID, SourceRun],
    *,
    first_row: int = 0,
) -> list[RevisionContent]:
    """Return the contents of new examples, with their attachments stored.

    Raises `ExampleRefused`, whose rows are counted from `first_row`.
    """
    contents = _check_contents(dataset, examples, runs, first_row=first_row)
    for content, example in zip(contents, examples, strict=True):
        run = None if content.source_run_id is None else runs.get(content.source_run_id)
        content.attachments = files.store(dataset, content.example_id, example.files) + (
            files.copy_from_run(dataset, content.example_id, example.wire, run)
        )
    return contents


def _check_contents(
    dataset: Dataset,
    examples: Sequence[NewExample],
    runs: Mapping[UUID, SourceRun],
    *,
    first_row: int,
) -> list[RevisionContent]:
    """Return the contents without attachments; raises `ExampleRefused`."""
    contents: list[RevisionContent] = []
    problems: list[dict[str, Any]] = []
    now = timezone.now()
    for row, example in enumerate(examples, first_row):
        wire = example.wire
        run = None if wire.source_run_id is None else runs.get(wire.source_run_id)
        inputs, outputs = wire.inputs, wire.outputs
        if wire.use_source_run_io:
            if run is None:
                raise core_errors.Invalid("`use_source_run_io` needs a `source_run_id`.")
            inputs, outputs = run.inputs, run.outputs
        checked = check_example(dataset, inputs, outputs, run)
        problems += ({"row": row, **problem} for problem in checked.problems)
        metadata, splits = merge_splits(parse_metadata(wire.metadata), wire.split)
        example_id = wire.id or uuid7()
        contents.append(
            RevisionContent(
                example_id=example_id,
                created_at=parse_time_field(wire.created_at, "created_at") or now,
                inputs=checked.inputs,
                outputs=checked.outputs,
                metadata=metadata,
                splits=splits,
                source_run_id=wire.source_run_id,
                source_session_id=None if run is None else run.project_id,
                source_trace_id=None if run is None else run.trace_id,
                source_run_start_time=None if run is None else run.start_time,
            )
        )
    if problems:
        raise errors.refuse_examples(problems)
    return contents


def upsert_examples(*, dataset: Dataset, examples: Sequence[NewExample]) -> WrittenExamples:
    """Create the examples that the dataset does not have and change the others, in one version."""
    ids = [example.wire.id for example in examples if example.wire.id is not None]
    runs = fetch_source_runs(
        dataset.workspace_id,
        [example.wire for example in examples],
        with_extra=needs_run_extra(dataset),
    )
    with write_version(dataset.workspace_id, dataset.pk) as version:
        existing = {revision.example_id: revision for revision in version.current(ids)}
        new = [example for example in examples if example.wire.id not in existing]
        changes = [_as_change(e) for e in examples if e.wire.id in existing]
        contents = build_contents(version.dataset, new, runs)
        changed = _build_changes(version.dataset, changes, existing)
        if contents:
            _check_ids(dataset, [content.example_id for content in contents])
            version.add(contents)
        if changed:
            version.replace(changed)
    return WrittenExamples(ids, version.written_at)


def _as_change(example: NewExample) -> ExampleChange:
    wire = example.wire
    if wire.source_run_id or wire.use_source_run_io or wire.use_source_run_attachments:
        raise core_errors.Invalid(
            f"Example {wire.id} exists: `source_run_id` is set when an example is created."
        )
    change = WireExampleUpdate(
        id=wire.id,
        inputs=wire.inputs,
        outputs=wire.outputs,
        metadata=wire.metadata,
        split=wire.split,
    )
    return ExampleChange(change, example.files)


def _check_ids(dataset: Dataset, example_ids: list[UUID]) -> None:
    """Refuse ids that are twice in the request, in use, or of another dataset."""
    if len(set(example_ids)) < len(example_ids):
        raise core_errors.Invalid("Two examples of the request have the same `id`.")
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    known = rows.filter(example_id__in=example_ids)
    taken = known.exclude(dataset=dataset, valid_to__isnull=False)
    example_id = taken.values_list("example_id", flat=True).first()
    if example_id is not None:
        raise errors.ExampleIdTaken(f"An example with the id {example_id} already exists.")


def update_examples(*, dataset: Dataset, changes: Sequence[ExampleChange]) -> WrittenExamples:
    """Change examples of the dataset in one version: all or none.

    Raises `ExampleNotFound` for an example that the dataset does not have in its latest version,
    and `ExampleOfAnotherDataset` if another dataset of the workspace has it.
    """
    ids = [change.example_id for change in changes]
    if len(set(ids)) < len(ids):
        raise core_errors.Invalid("Two changes have the same `id`.")
    with write_version(dataset.workspace_id, dataset.pk) as version:
        revisions = {revision.example_id: revision for revision in version.current(ids)}
        missing = [example_id for example_id in ids if example_id not in revisions]
        if missing:
            _check_datasets(dataset.workspace_id, missing)
            raise errors.ExampleNotFound(
                f"The dataset has no example {missing[0]}.",
                [{"example_id": str(example_id)} for example_id in missing[:100]],
            )
        contents = _build_changes(version.dataset, changes, revisions)
        if contents:
            version.replace(contents)
    return WrittenExamples(ids, version.written_at)


def _check_datasets(workspace_id: UUID, example_ids: Sequence[UUID]) -> None:
    """Raise `ExampleOfAnotherDataset` if a dataset of the workspace has one of the examples."""
    rows = ExampleRevision.objects.for_workspace(workspace_id).current()
    rows = rows.filter(example_id__in=example_ids, dataset__deleted_at=None)
    example_id = rows.values_list("example_id", flat=True).first()
    if example_id is not None:
        raise errors.ExampleOfAnotherDataset(
            f"Example {example_id} belongs to another dataset.", [{"example_id": str(example_id)}]
        )


def _build_changes(
    dataset: Dataset, changes: Sequence[ExampleChange], revisions: Mapping[UUID, ExampleRevision]
) -> list[RevisionContent]:
    """Return the changed contents, with their attachments stored; raises `ExampleRefused`."""
    problems: list[dict[str, Any]] = []
    contents = []
    for row, change in enumerate(changes):
        revision = revisions[change.example_id]
        content, violations = _change_content(dataset, revision, change.wire)
        problems += ({"row": row, **problem} for problem in violations)
        contents.append(content)
    if problems:
        raise errors.refuse_examples(problems)
    for content, change in zip(contents, changes, strict=True):
        content.attachments = files.update(
            dataset, content, change.files, change.wire.attachments_operations
        )
    return contents


@transaction.atomic
def update_in_datasets(workspace_id: UUID, changes: Mapping[UUID, Sequence[ExampleChange]]) -> None:
    """Change examples of several datasets, by the dataset's id; all or none."""
    datasets = Dataset.objects.for_workspace(workspace_id).present()
    for dataset in datasets.filter(pk__in=changes).order_by("pk"):
        update_examples(dataset=dataset, changes=changes[dataset.pk])


def _change_content(
    dataset: Dataset, revision: ExampleRevision, wire: WireExampleUpdate
) -> tuple[RevisionContent, list[dict[str, Any]]]:
    """Return the changed content, and the violations of the dataset's schemas."""
    content = RevisionContent.from_revision(revision)
    problems: list[dict[str, Any]] = []
    if has_value(wire.inputs) or has_value(wire.outputs):
        checked = check_example(
            dataset,
            wire.inputs if has_value(wire.inputs) else msgspec.Raw(content.inputs),
            wire.outputs if has_value(wire.outputs) else msgspec.Raw(content.outputs or ""),
        )
        content.inputs, content.outputs = checked.inputs, checked.outputs
        problems = list(checked.problems)
    metadata = parse_metadata(wire.metadata)
    if metadata is not None or wire.split is not None:
        content.metadata, content.splits = merge_splits(
            content.metadata if metadata is None else metadata, wire.split, content.splits
        )
    return content, problems


def get_example(
    workspace_id: UUID,
    example_id: UUID,
    *,
    dataset_id: UUID | None = None,
    resolve: Callable[[Dataset], datetime | None] | None = None,
) -> ExampleRevision:
    """Return the revision of the example, with its dataset; raises `ExampleNotFound`.

    `resolve` returns the time of the version to read from the example's dataset.
    """
    rows = ExampleRevision.objects.for_workspace(workspace_id).filter(example_id=example_id)
    rows = rows.filter(dataset__deleted_at=None).select_related("dataset")
    if dataset_id is not None:
        rows = rows.filter(dataset_id=dataset_id)
    newest = rows.order_by("-valid_from").first()
    if newest is None:
        raise errors.ExampleNotFound
    version_at = None if resolve is None else resolve(newest.dataset)
    revision = rows.as_of(version_at).first()
    if revision is None:
        raise errors.ExampleNotFound
    return revision


@transaction.atomic
def delete_examples(*, workspace_id: UUID, example_ids: Collection[UUID]) -> None:
    """Remove the examples from the latest versions of their datasets; earlier ones have them.

    Raises `ExampleNotFound`, if one does not exist; then none is deleted.
    """
    ids_by_dataset: dict[UUID, list[UUID]] = defaultdict(list)
    rows = ExampleRevision.objects.for_workspace(workspace_id).current()
    rows = rows.filter(example_id__in=example_ids, dataset__deleted_at=None)
    for dataset_id, example_id in rows.values_list("dataset_id", "example_id"):
        ids_by_dataset[dataset_id].append(example_id)
    existing = {example_id for ids in ids_by_dataset.values() for example_id in ids}
    missing = set(example_ids) - existing
    if missing:
        raise errors.ExampleNotFound(
            f"There is no example {min(missing)}.",
            [{"example_id": str(example_id)} for example_id in sorted(missing)[:100]],
        )
    for dataset_id in sorted(ids_by_dataset):
        with write_version(workspace_id, dataset_id) as version:
            version.remove(ids_by_dataset[dataset_id])


def delete_from_dataset(*, dataset: Dataset, example_ids: Collection[UUID]) -> datetime:
    """Remove examples of the dataset in one version, and return its time: all or none.

    Raises `ExampleNotFound`.
    """
    with write_version(dataset.workspace_id, dataset.pk) as version:
        existing = {revision.example_id for revision in version.current(example_ids)}
        missing = set(example_ids) - existing
        if missing:
            raise errors.ExampleNotFound(f"The dataset has no example {min(missing)}.")
        version.remove(example_ids)
    return version.written_at


def delete_example(*, dataset: Dataset, example_id: UUID) -> None:
    """Remove one example of the dataset. No effect if its latest revision is a deletion.

    Raises `ExampleNotFound` if the dataset never had the example.
    """
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    if not rows.filter(dataset=dataset, example_id=example_id).exists():
        raise errors.ExampleNotFound
    with write_version(dataset.workspace_id, dataset.pk) as version:
        if version.current([example_id]):
            version.remove([example_id])


@dataclass(frozen=True, slots=True)
class MetadataOperation:
    """A change of one top-level key of the metadata."""

    key: str
    kind: str
    """`SET`, `ARRAY_ADD` or `ARRAY_REMOVE`."""
    value: Any = None
    values: Sequence[str] = ()

    def apply(self, metadata: dict[str, Any], splits: list[str]) -> None:
        if self.kind == "SET":
            metadata[self.key] = self.value
            return
        previous = metadata.get(self.key)
        if self.key == "dataset_split":
            items: list[Any] = list(splits)
        else:
            items = list(previous) if isinstance(previous, list) else []
        if self.kind == "ARRAY_ADD":
            items += [value for value in self.values if value not in items]
        else:
            items = [item for item in items if item not in self.values]
        metadata[self.key] = items


def update_metadata(
    *, dataset: Dataset, example_ids: Sequence[UUID], operations: Sequence[MetadataOperation]
) -> set[UUID]:
    """Apply the operations to the examples in one version; return the ids that were changed.

    Ids of examples that the latest version does not have are skipped.
    """
    with write_version(dataset.workspace_id, dataset.pk) as version:
        contents = []
        for revision in _in_order(version.current(example_ids), example_ids):
            content = RevisionContent.from_revision(revision)
            metadata = dict(content.metadata)
            for operation in operations:
                operation.apply(metadata, parse_splits(metadata.get("dataset_split", [])))
            content.metadata, content.splits = merge_splits(metadata, None)
            contents.append(content)
        if contents:
            version.replace(contents)
    return {content.example_id for content in contents}


def _in_order(
    revisions: Collection[ExampleRevision], example_ids: Sequence[UUID]
) -> list[ExampleRevision]:
    by_id = {revision.example_id: revision for revision in revisions}
    return [by_id[example_id] for example_id in dict.fromkeys(example_ids) if example_id in by_id]
