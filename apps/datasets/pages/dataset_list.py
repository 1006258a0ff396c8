"""Data of the list of datasets, in two queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.datasets.dataset_order import after_cursor, encode_cursor, sort_datasets
from apps.datasets.models import Dataset, DataType
from apps.datasets.services.datasets import ExperimentCounts, count_experiments
from apps.datasets.services.removal import removal_time

PAGE_SIZE = 50
DEFAULT_SORT = "-modified_at"
COLUMNS = (
    ("name", "Name", "cell-half"),
    ("", "Type", "cell-tags"),
    ("example_count", "Examples", "num"),
    ("session_count", "Experiments", "num num-wide"),
    ("last_session_start_time", "Last experiment", "when"),
    ("modified_at", "Changed", "when"),
)
"""The name of the order, the heading and the class of each column."""
_SORTS = {key for key, _, _ in COLUMNS if key}


@dataclass(frozen=True)
class DatasetRow:
    dataset: Dataset
    experiments: ExperimentCounts


@dataclass(frozen=True)
class Heading:
    """The head of a column, with the order that a click selects."""

    label: str
    css: str
    direction: str = ""
    sort: str = ""


@dataclass(frozen=True)
class DatasetList:
    rows: Sequence[DatasetRow]
    headings: Sequence[Heading]
    next_cursor: str | None


def load_list(
    workspace_id: UUID, *, text: str, data_type: str, sort: str, cursor: str | None
) -> DatasetList:
    """Load one page; an unknown order or type is the default. Raises `InvalidCursor`."""
    if sort.removeprefix("-") not in _SORTS:
        sort = DEFAULT_SORT
    key, descending = sort.removeprefix("-"), sort.startswith("-")
    datasets = Dataset.objects.for_workspace(workspace_id).present()
    if text:
        datasets = datasets.filter(name__icontains=text)
    if data_type in DataType.values:
        datasets = datasets.filter(data_type=data_type)
    rows: Any = sort_datasets(workspace_id, datasets, key, descending=descending)
    if cursor:
        rows = rows.filter(after_cursor(cursor, key, descending=descending))
    # Schemas can be large, and the list does not show them.
    candidates = list(rows.defer("extra", "inputs_schema", "outputs_schema")[: PAGE_SIZE + 1])
    page = candidates[:PAGE_SIZE]
    counts = count_experiments(workspace_id, [dataset.pk for dataset in page])
    return DatasetList(
        [DatasetRow(row, counts.get(row.pk, ExperimentCounts())) for row in page],
        [_heading(*column, key, descending=descending) for column in COLUMNS],
        encode_cursor(page[-1]) if len(candidates) > PAGE_SIZE else None,
    )


def _heading(name: str, label: str, css: str, current: str, *, descending: bool) -> Heading:
    if not name:
        return Heading(label, css)
    if name != current:
        # Names begin at A, counts and times with the largest.
        return Heading(label, css, sort=name if name == "name" else f"-{name}")
    direction = "descending" if descending else "ascending"
    return Heading(label, css, direction, name if descending else f"-{name}")


@dataclass(frozen=True)
class DeletedRow:
    dataset: Dataset
    removed_at: datetime | None


def load_deleted(workspace_id: UUID, offset: int = 0) -> list[DeletedRow]:
    """Load one page of deleted datasets, and one more row if there is a next page."""
    rows = Dataset.objects.for_workspace(workspace_id).deleted().order_by("-deleted_at", "pk")
    rows = rows.defer("extra", "inputs_schema", "outputs_schema")
    return [DeletedRow(row, removal_time(row)) for row in rows[offset : offset + PAGE_SIZE + 1]]
