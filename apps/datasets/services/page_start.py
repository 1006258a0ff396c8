"""Finds the version at which a deep page of examples begins, so that its offset is not read.

A list is ordered by the version that wrote each revision, newest first. A version knows how many
of its revisions exist; those that were replaced or deleted are counted on an index.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import Count

from apps.datasets.models import Dataset, DatasetVersion, ExampleRevision

MIN_OFFSET = 10_000
"""Smaller offsets are as quick to read."""
MAX_VERSIONS = 10_000
"""Newest versions that are looked at; a page of older ones begins there."""
MAX_ENDED = 100_000
"""With more replaced and deleted revisions, counting them costs as much as the offset."""


class PageStart(NamedTuple):
    """The revisions of a page: `offset` after the first one of the version."""

    valid_from: datetime
    offset: int


def find_page_start(dataset: Dataset, version_at: datetime | None, offset: int) -> PageStart | None:
    """Return where the page of all examples begins; None if the offset has to be read.

    `version_at` is the version that is read, None for the latest.
    """
    if offset < MIN_OFFSET:
        return None
    versions = DatasetVersion.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    ended = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    ended = ended.filter(dataset=dataset, valid_to__isnull=False)
    if version_at is not None:
        versions = versions.filter(as_of__lte=version_at)
        ended = ended.filter(valid_to__lte=version_at)
    if ended.order_by()[: MAX_ENDED + 1].count() > MAX_ENDED:
        return None
    ended_counts = dict(
        ended.order_by()
        .values("valid_from")
        .annotate(count=Count("*"))
        .values_list("valid_from", "count")
    )
    rows = versions.newest_first().values_list("as_of", "added_count")[:MAX_VERSIONS]
    start = None
    for as_of, added in rows:
        start = PageStart(as_of, offset)
        offset -= added - ended_counts.get(as_of, 0)
        if offset < 0:
            break
    return start
