"""Data of the pages of versions: history, tags, and the difference of two versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, F, OuterRef, TextField
from django.db.models.functions import Cast

from apps.core.json import loads_exact
from apps.datasets.models import Dataset, DatasetVersion, ExampleRevision
from apps.datasets.pages.example_list import preview
from apps.datasets.pages.json_text import indent_json
from apps.datasets.services.diff import diff_versions
from apps.datasets.services.tags import tags_of_versions
from apps.datasets.services.versions import versions_of
from apps.web_ui.text_diff import TextDiff, compare_texts

PAGE_SIZE = 50
CHANGES_PER_PAGE = 20


@dataclass(frozen=True)
class VersionRow:
    as_of: datetime
    tags: Sequence[str]
    added: int = 0
    modified: int = 0
    removed: int = 0
    previous: datetime | None = None

    @property
    def name(self) -> str:
        """Return the time as `as_of` takes it."""
        return self.as_of.isoformat()

    @property
    def previous_name(self) -> str:
        return "" if self.previous is None else self.previous.isoformat()


@dataclass(frozen=True)
class History:
    rows: Sequence[VersionRow]
    has_more: bool


def load_history(dataset: Dataset, offset: int) -> History:
    """Load a page of versions, newest first, with the number of changes, in five queries."""
    candidates: list[DatasetVersion] = list(versions_of(dataset)[offset : offset + PAGE_SIZE + 1])
    page = candidates[:PAGE_SIZE]
    if not page:
        return History([], has_more=False)
    tags = tags_of_versions(dataset, page)
    began, ended, modified = _count_changes(dataset, page[-1].as_of, page[0].as_of)
    previous = [version.as_of for version in candidates[1:]] + [None]
    return History(
        [
            VersionRow(
                as_of=version.as_of,
                tags=tags.get(version.as_of, ()),
                added=began.get(version.as_of, 0) - modified.get(version.as_of, 0),
                modified=modified.get(version.as_of, 0),
                removed=ended.get(version.as_of, 0) - modified.get(version.as_of, 0),
                previous=before,
            )
            for version, before in zip(page, previous[: len(page)], strict=True)
        ],
        has_more=len(candidates) > PAGE_SIZE,
    )


Counts = dict[datetime, int]


def _count_changes(dataset: Dataset, oldest: datetime, newest: datetime) -> list[Counts]:
    """Return the number of revisions that began, ended and were replaced, by version."""
    rows: Any = ExampleRevision.objects.for_workspace(dataset.workspace_id)
    rows = rows.filter(dataset=dataset).order_by()
    successor = rows.filter(example_id=OuterRef("example_id"), valid_from=OuterRef("valid_to"))
    ended = rows.filter(valid_to__gte=oldest, valid_to__lte=newest)
    grouped = (
        ("valid_from", rows.filter(valid_from__gte=oldest, valid_from__lte=newest)),
        ("valid_to", ended),
        ("valid_to", ended.filter(Exists(successor))),
    )
    return [
        dict(selected.values_list(column).annotate(count=Count("pk")))
        for column, selected in grouped
    ]


@dataclass(frozen=True)
class VersionChoice:
    """An option of the selects of versions."""

    name: str
    as_of: datetime
    tags: Sequence[str] = ()


def list_choices(dataset: Dataset, shown: Sequence[datetime]) -> list[VersionChoice]:
    """Return the newest versions, and the shown ones if they are older."""
    versions: list[DatasetVersion] = list(versions_of(dataset)[:PAGE_SIZE])
    tags = tags_of_versions(dataset, versions)
    times = {version.as_of for version in versions} | set(shown)
    return [
        VersionChoice(time.isoformat(), time, tags.get(time, ()))
        for time in sorted(times, reverse=True)
    ]


@dataclass(frozen=True)
class ExampleDifference:
    """A change of an example between two versions: `added`, `modified` or `removed`."""

    kind: str
    example_id: UUID
    preview: str = ""
    diff: TextDiff | None = None


@dataclass(frozen=True)
class Changes:
    """The difference of two versions, with one page of its examples."""

    added: int
    modified: int
    removed: int
    page: Sequence[ExampleDifference] = field(default_factory=list)
    has_more: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.modified or self.removed)


def load_changes(dataset: Dataset, older: datetime, newer: datetime, offset: int) -> Changes:
    """Load the difference from one version to another, in four queries."""
    difference = diff_versions(dataset, older, newer)
    entries = [
        *(("modified", item) for item in difference.modified),
        *(("added", item) for item in difference.added),
        *(("removed", item) for item in difference.removed),
    ]
    page = entries[offset : offset + CHANGES_PER_PAGE]
    ids = [example_id for _, example_id in page]
    before, after = _load_texts(dataset, older, ids), _load_texts(dataset, newer, ids)
    return Changes(
        len(difference.added),
        len(difference.modified),
        len(difference.removed),
        [
            _build_change(kind, item, before.get(item), after.get(item))
            for kind, item in page
            if item in before or item in after
        ],
        has_more=offset + CHANGES_PER_PAGE < len(entries),
    )


@dataclass(frozen=True)
class _Content:
    inputs: str
    outputs: str | None
    metadata: dict[str, Any]
    files: Sequence[str]

    @property
    def as_text(self) -> str:
        """Return the content as indented JSON with a heading for each part."""
        outputs = None if self.outputs is None else loads_exact(self.outputs)
        parts = [
            ("inputs", loads_exact(self.inputs)),
            ("outputs", outputs),
            ("metadata", self.metadata),
            ("files", list(self.files) or None),
        ]
        return "\n".join(
            f"{name}: {indent_json(value)}" for name, value in parts if value is not None
        )


def _load_texts(
    dataset: Dataset, version_at: datetime, example_ids: Sequence[UUID]
) -> dict[UUID, _Content]:
    if not example_ids:
        return {}
    rows: Any = ExampleRevision.objects.for_workspace(dataset.workspace_id).as_of(version_at)
    rows = rows.filter(dataset=dataset, example_id__in=example_ids).defer("inputs", "outputs")
    rows = rows.annotate(
        inputs_text=Cast(F("inputs"), TextField()), outputs_text=Cast(F("outputs"), TextField())
    )
    return {
        row.example_id: _Content(
            row.inputs_text,
            row.outputs_text,
            row.metadata,
            [entry["name"] for entry in row.attachments or ()],
        )
        for row in rows
    }


def _build_change(
    kind: str, example_id: UUID, before: _Content | None, after: _Content | None
) -> ExampleDifference:
    content = after or before
    beginning = "" if content is None else preview(content.inputs)
    diff = None
    if before is not None and after is not None:
        diff = compare_texts(before.as_text, after.as_text)
    return ExampleDifference(kind, example_id, beginning, diff)
