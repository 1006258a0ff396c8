"""Versions: every write of examples happens inside one, and reads name one by time or tag."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.core.connections import raw_cursor
from apps.core.ids import uuid7
from apps.core.json import dumps_text
from apps.core.timestamps import parse_timestamp
from apps.datasets import errors
from apps.datasets.models import (
    Dataset,
    DatasetTag,
    DatasetVersion,
    ExampleRevision,
)
from apps.usage import storage
from apps.usage.models import StorageKind

LATEST = "latest"
"""The tag of the newest version, which moves with every write."""
_TICK = timedelta(microseconds=1)
_COPY = """
COPY datasets_examplerevision (
  id, workspace_id, dataset_id, example_id, created_at, valid_from, position, inputs, outputs,
  metadata, splits, attachments, attachment_bytes, source_run_id, source_session_id,
  source_trace_id, source_run_start_time
) FROM STDIN
"""


@dataclass(slots=True, kw_only=True)
class RevisionContent:
    """The content of a revision that is about to be written."""

    example_id: UUID
    created_at: datetime
    inputs: str
    """A JSON object, stored as it is."""
    outputs: str | None
    metadata: dict[str, Any]
    splits: list[str]
    attachments: list[dict[str, Any]] | None = None
    earlier_paths: frozenset[str] = frozenset()
    """The attachments of the revision that this one replaces."""
    source_run_id: UUID | None = None
    source_session_id: UUID | None = None
    source_trace_id: UUID | None = None
    source_run_start_time: datetime | None = None

    @classmethod
    def from_revision(cls, revision: ExampleRevision) -> RevisionContent:
        """Return the content of a stored revision, to write a changed copy."""
        return cls(
            example_id=revision.example_id,
            created_at=revision.created_at,
            inputs=dumps_text(revision.inputs),
            outputs=None if revision.outputs is None else dumps_text(revision.outputs),
            metadata=revision.metadata,
            splits=revision.splits,
            attachments=revision.attachments,
            earlier_paths=frozenset(entry["path"] for entry in revision.attachments or ()),
            source_run_id=revision.source_run_id,
            source_session_id=revision.source_session_id,
            source_trace_id=revision.source_trace_id,
            source_run_start_time=revision.source_run_start_time,
        )

    @property
    def attachment_bytes(self) -> int:
        """The size of the attachments that this revision adds."""
        added = {entry["path"]: entry["size"] for entry in self.attachments or ()}
        return sum(size for path, size in added.items() if path not in self.earlier_paths)


@dataclass(slots=True)
class VersionWriter:
    """Writes the changes of one version; the dataset's row is locked."""

    dataset: Dataset
    as_of: datetime
    added: int = field(default=0)
    next_position: int = field(default=0)
    has_changes: bool = field(default=False)

    def current(self, example_ids: Collection[UUID]) -> list[ExampleRevision]:
        """Return the current revisions of those examples that the dataset has."""
        rows = ExampleRevision.objects.for_workspace(self.dataset.workspace_id).current()
        return list(rows.filter(dataset=self.dataset, example_id__in=example_ids))

    def add(self, contents: Sequence[RevisionContent]) -> None:
        """Add new examples. Raises `ExampleIdTaken` and `StorageFull`."""
        self._insert(contents)
        self.added += len(contents)

    def replace(self, contents: Sequence[RevisionContent]) -> None:
        """End the current revisions of the examples, and add the changed ones.

        Raises `StorageFull`.
        """
        self._end([content.example_id for content in contents])
        self._insert(contents)

    def remove(self, example_ids: Collection[UUID]) -> None:
        """Remove examples of the dataset; earlier versions still have them."""
        self.added -= self._end(example_ids)

    def _end(self, example_ids: Collection[UUID]) -> int:
        self.has_changes = True
        rows = ExampleRevision.objects.for_workspace(self.dataset.workspace_id).current()
        rows = rows.filter(dataset=self.dataset, example_id__in=example_ids)
        return rows.update(valid_to=self.as_of)

    def _insert(self, contents: Sequence[RevisionContent]) -> None:
        self.has_changes = True
        dataset = self.dataset
        storage.check(dataset.workspace_id, StorageKind.DATASETS)
        try:
            with transaction.atomic(), raw_cursor() as cursor, cursor.copy(_COPY) as copy:
                for position, content in enumerate(contents, self.next_position):
                    copy.write_row(
                        (
                            uuid7(),
                            dataset.workspace_id,
                            dataset.pk,
                            content.example_id,
                            content.created_at,
                            self.as_of,
                            position,
                            content.inputs,
                            content.outputs,
                            dumps_text(content.metadata),
                            content.splits,
                            dumps_text(content.attachments) if content.attachments else None,
                            content.attachment_bytes,
                            content.source_run_id,
                            content.source_session_id,
                            content.source_trace_id,
                            content.source_run_start_time,
                        )
                    )
        except IntegrityError:
            raise errors.ExampleIdTaken from None
        self.next_position += len(contents)

    @property
    def written_at(self) -> datetime:
        """The version after the block: a block without changes leaves the latest."""
        return self.dataset.latest_version_at

    def save(self) -> None:
        """Store the version, and the dataset's counters."""
        dataset = self.dataset
        dataset.example_count += self.added
        dataset.latest_version_at = self.as_of
        DatasetVersion(
            workspace_id=dataset.workspace_id,
            dataset=dataset,
            as_of=self.as_of,
            added_count=self.next_position,
        ).save(force_insert=True)
        dataset.save(update_fields=["example_count", "latest_version_at", "updated_at"])


@contextmanager
def write_version(workspace_id: UUID, dataset_id: UUID) -> Iterator[VersionWriter]:
    """Lock the dataset and store the changes of the block as its next version.

    The version's time is the current time, or just after the latest version if a clock went back.
    A block without changes makes no version. Raises `DatasetNotFound`.
    """
    with transaction.atomic():
        dataset = lock_dataset(workspace_id, dataset_id)
        writer = VersionWriter(dataset, max(timezone.now(), dataset.latest_version_at + _TICK))
        yield writer
        if writer.has_changes:
            writer.save()


def lock_dataset(workspace_id: UUID, dataset_id: UUID) -> Dataset:
    """Return the dataset, locked until the end of the transaction; raises `DatasetNotFound`."""
    rows = Dataset.objects.for_workspace(workspace_id).present()
    dataset = rows.select_for_update(no_key=True).filter(pk=dataset_id).first()
    if dataset is None:
        raise errors.DatasetNotFound
    return dataset


def resolve_as_of(dataset: Dataset, as_of: str | None) -> datetime | None:
    """Return the time that `as_of` names, a timestamp or a tag; None is the latest version.

    Raises `VersionNotFound` for an unknown tag.
    """
    if not as_of or as_of == LATEST:
        return None
    try:
        return parse_timestamp(as_of, "as_of")
    except ValueError:
        return find_tag(dataset, as_of).as_of


def find_tag(dataset: Dataset, name: str) -> DatasetTag:
    tags = DatasetTag.objects.for_workspace(dataset.workspace_id)
    tag = tags.filter(dataset=dataset, name=name).first()
    if tag is None:
        raise errors.VersionNotFound(f"`as_of` is neither a time nor a tag: {name:.60}.")
    return tag


def versions_of(dataset: Dataset) -> Any:
    """Return the versions of the dataset, newest first."""
    versions = DatasetVersion.objects.for_workspace(dataset.workspace_id)
    return versions.filter(dataset=dataset).newest_first()


def find_version(
    dataset: Dataset, *, as_of: datetime | None = None, tag: str | None = None
) -> DatasetVersion:
    """Return the newest version at the time, or the one with the tag; raises `VersionNotFound`."""
    versions = versions_of(dataset)
    if tag is not None and tag != LATEST:
        versions = versions.filter(as_of=find_tag(dataset, tag).as_of)
    elif as_of is not None:
        versions = versions.filter(as_of__lte=as_of)
    version: DatasetVersion | None = versions.first()
    if version is None:
        raise errors.VersionNotFound
    return version
