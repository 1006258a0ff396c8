"""What changed between two versions, from the revisions that began or ended in between."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.datasets.models import Dataset, ExampleRevision


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids of examples, sorted."""

    added: list[UUID]
    modified: list[UUID]
    removed: list[UUID]


def diff_versions(dataset: Dataset, older: datetime, newer: datetime) -> Difference:
    """Return the examples that differ between the states at two times; either may be earlier.

    The cost is that of the changes in between, not of the dataset.
    """
    if older > newer:
        inverse = diff_versions(dataset, newer, older)
        return Difference(inverse.removed, inverse.modified, inverse.added)
    rows: Any = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    rows = rows.filter(dataset=dataset).order_by()
    began = set(
        rows.filter(
            Q(valid_to=None) | Q(valid_to__gt=newer), valid_from__gt=older, valid_from__lte=newer
        ).values_list("example_id", flat=True)
    )
    ended = set(
        rows.filter(valid_to__gt=older, valid_to__lte=newer, valid_from__lte=older).values_list(
            "example_id", flat=True
        )
    )
    return Difference(
        added=sorted(began - ended),
        modified=sorted(began & ended),
        removed=sorted(ended - began),
    )
