"""Copies examples of a version of one dataset into another dataset."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import msgspec

from apps.core import object_storage
from apps.core.json import dumps
from apps.datasets import errors
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services import attachments
from apps.datasets.services.attachments import ExampleFile
from apps.datasets.services.downloads import iterate_revisions
from apps.datasets.services.examples import NewExample, build_contents
from apps.datasets.services.versions import RevisionContent, write_version
from apps.datasets.wire import ABSENT, WireExample

_BATCH_SIZE = 1000


def clone_examples(
    *,
    source: Dataset,
    target: Dataset,
    version_at: datetime | None,
    example_ids: Collection[UUID] | None = None,
    splits: Collection[str] | None = None,
) -> datetime:
    """Copy the examples with new ids, in one version of the target; return its time.

    `example_ids` and `splits` select among the examples of the source's version. The target's
    schemas apply. Raises `ExampleNotFound` for an id that the version does not have.
    """
    rows = iterate_revisions(source, version_at, example_ids=example_ids, splits=splits)
    count = 0
    with write_version(target.workspace_id, target.pk) as version:
        while batch := list(itertools.islice(rows, _BATCH_SIZE)):
            examples = [_copy_of(revision) for revision in batch]
            contents = build_contents(version.dataset, examples, {}, first_row=count)
            for revision, content in zip(batch, contents, strict=True):
                _copy_rest(target, revision, content)
            version.add(contents)
            count += len(batch)
        if example_ids is not None and splits is None and count < len(set(example_ids)):
            raise errors.ExampleNotFound("The version lacks one of the `examples`.")
    return version.written_at


def _copy_of(revision: ExampleRevision) -> NewExample:
    outputs = ABSENT if revision.outputs is None else msgspec.Raw(dumps(revision.outputs))
    return NewExample(
        WireExample(
            inputs=msgspec.Raw(dumps(revision.inputs)),
            outputs=outputs,
            metadata=msgspec.Raw(dumps(revision.metadata)),
        )
    )


def _copy_rest(target: Dataset, revision: ExampleRevision, content: RevisionContent) -> None:
    """Copy the link to the source run, and the attachments as objects of the target."""
    content.source_run_id = revision.source_run_id
    content.source_session_id = revision.source_session_id
    content.source_trace_id = revision.source_trace_id
    content.source_run_start_time = revision.source_run_start_time
    files = [
        ExampleFile(entry["name"], entry["mime_type"], object_storage.get(entry["path"]))
        for entry in revision.attachments or ()
    ]
    content.attachments = attachments.store(target, content.example_id, files)
