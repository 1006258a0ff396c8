"""The index of a dataset for few-shot selection: the examples most similar to given inputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q

from apps.datasets import errors
from apps.datasets.models import (
    Dataset,
    ExampleIndex,
    ExampleRevision,
    IndexedExample,
)
from apps.datasets.services.diff import diff_versions
from apps.datasets.services.downloads import iterate_revisions
from apps.datasets.services.text_vectors import embed, text_of, vector_literal
from apps.datasets.services.versions import LATEST, find_version

MAX_INDEXED = 100_000
"""A search compares all vectors of the dataset: 0.1 s for as many."""
_BATCH_SIZE = 1000
_UPSERT = """
INSERT INTO datasets_indexedexample
  (id, workspace_id, dataset_id, example_id, created_at, embedding)
SELECT gen_random_uuid(), %s, %s, example_id, now(), embedding::vector
FROM unnest(%s::uuid[], %s::text[]) AS given (example_id, embedding)
ON CONFLICT (workspace_id, dataset_id, example_id) DO UPDATE SET embedding = excluded.embedding
"""
_NEAREST = """
SELECT example_id, 1 - (embedding <=> %s::vector) FROM datasets_indexedexample
WHERE workspace_id = %s AND dataset_id = %s {condition}
ORDER BY embedding <=> %s::vector, example_id LIMIT %s
"""


def create_index(*, dataset: Dataset, tag: str = LATEST) -> ExampleIndex:
    """Index the version that the tag names, now and whenever it changes.

    A repeated call changes the tag. Raises `VersionNotFound` and `TooLargeToIndex`.
    """
    find_version(dataset, tag=tag)
    indexes = ExampleIndex.objects.for_workspace(dataset.workspace_id)
    indexes.bulk_create(
        [ExampleIndex(workspace_id=dataset.workspace_id, dataset=dataset, tag=tag)],
        update_conflicts=True,
        unique_fields=["workspace", "dataset"],
        update_fields=["tag"],
    )
    return sync_index(get_index(dataset))


def get_index(dataset: Dataset) -> ExampleIndex:
    """Return the dataset's index; raises `DatasetNotIndexed`."""
    indexes = ExampleIndex.objects.for_workspace(dataset.workspace_id)
    index = indexes.filter(dataset=dataset).select_related("dataset").first()
    if index is None:
        raise errors.DatasetNotIndexed
    return index


@transaction.atomic
def delete_index(*, dataset: Dataset) -> None:
    """Remove the index, if any."""
    workspace_id = dataset.workspace_id
    ExampleIndex.objects.for_workspace(workspace_id).filter(dataset=dataset).delete()
    IndexedExample.objects.for_workspace(workspace_id).filter(dataset=dataset).delete()


@transaction.atomic
def sync_index(index: ExampleIndex) -> ExampleIndex:
    """Bring the index to the version of its tag, by what changed since the indexed version.

    Raises `TooLargeToIndex`. Idempotent; concurrent calls wait for each other.
    """
    indexes = ExampleIndex.objects.for_workspace(index.workspace_id)
    index = indexes.select_for_update(of=["self"]).select_related("dataset").get(pk=index.pk)
    dataset = index.dataset
    target = find_version(dataset, tag=index.tag).as_of
    if index.indexed_version_at == target:
        return index
    rows = ExampleRevision.objects.for_workspace(index.workspace_id).filter(dataset=dataset)
    if rows.as_of(target).count() > MAX_INDEXED:
        raise errors.TooLargeToIndex
    if index.indexed_version_at is None:
        revisions = iterate_revisions(dataset, target)
    else:
        difference = diff_versions(dataset, index.indexed_version_at, target)
        entries = IndexedExample.objects.for_workspace(index.workspace_id).filter(dataset=dataset)
        entries.filter(example_id__in=difference.removed).delete()
        changed = difference.added + difference.modified
        revisions = iterate_revisions(dataset, target, example_ids=changed)
    while batch := list(itertools.islice(revisions, _BATCH_SIZE)):
        _upsert(dataset, batch)
    index.indexed_version_at = target
    index.save(update_fields=["indexed_version_at", "updated_at"])
    return index


def _upsert(dataset: Dataset, revisions: Sequence[ExampleRevision]) -> None:
    ids = [revision.example_id for revision in revisions]
    vectors = [vector_literal(embed(text_of(revision.inputs))) for revision in revisions]
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT, [dataset.workspace_id, dataset.pk, ids, vectors])


def sync_all() -> int:
    """Bring every stale index to its version; return their number."""
    indexes = ExampleIndex.objects.across_workspaces(reason="the sweeper serves all workspaces")
    indexes = indexes.filter(dataset__deleted_at=None)
    stale = Q(indexed_version_at=None) | ~Q(indexed_version_at=F("dataset__latest_version_at"))
    latest = indexes.filter(stale, tag=LATEST)
    tagged = indexes.exclude(tag=LATEST).filter(
        Q(indexed_version_at=None) | ~Q(indexed_version_at=F("dataset__tags__as_of")),
        dataset__tags__name=F("tag"),
    )
    count = 0
    for index in [*latest, *tagged]:
        try:
            sync_index(index)
        except (errors.TooLargeToIndex, errors.VersionNotFound):
            continue  # the next sync or search of a client reports it
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class SimilarExample:
    revision: ExampleRevision
    similarity: float
    """The cosine of the vectors, at most 1."""


def find_similar(
    *, dataset: Dataset, inputs: Any, limit: int, where: Q | None = None
) -> list[SimilarExample]:
    """Return the indexed examples with the most similar inputs, the most similar first.

    `where` restricts them. Raises `DatasetNotIndexed`; an index without a version has no examples.
    """
    index = get_index(dataset)
    version_at: datetime | None = index.indexed_version_at
    if version_at is None:
        return []
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).as_of(version_at)
    rows = rows.filter(dataset=dataset)
    condition, parameters = "", ()
    if where is not None:
        matches, parameters = rows.filter(where).values("example_id").query.sql_with_params()
        condition = f"AND example_id IN ({matches})"
    vector = vector_literal(embed(text_of(inputs)))
    with connection.cursor() as cursor:
        cursor.execute(
            _NEAREST.format(condition=condition),
            [vector, dataset.workspace_id, dataset.pk, *parameters, vector, limit],
        )
        nearest: list[tuple[UUID, float]] = cursor.fetchall()
    by_id = {row.example_id: row for row in rows.filter(example_id__in=[pk for pk, _ in nearest])}
    return [
        SimilarExample(by_id[example_id], similarity)
        for example_id, similarity in nearest
        if example_id in by_id
    ]
