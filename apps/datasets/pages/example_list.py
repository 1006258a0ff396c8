"""Data of the examples table: a page of previews by cursor, in two queries."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from django.db import OperationalError, connection, transaction
from django.db.models import F, Q, TextField
from django.db.models.functions import Cast, Left
from django.http import QueryDict

from apps.core import errors as core_errors
from apps.core.json import dumps, dumps_text, loads
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.pages.json_text import one_line
from apps.datasets.querysets import ExampleRevisionQuerySet
from apps.datasets.services.versions import LATEST, resolve_as_of
from apps.datasets.wire import SPLIT_KEY, storable_json
from apps.trace_store.errors import QueryTooSlow
from apps.tracing.messages import find_excerpt

PAGE_SIZE = 50
SCAN_SECONDS = 8
MAX_FILTER_LENGTH = 1000
PREVIEW_CHARACTERS = 400
READ_CHARACTERS = 4_000
"""What a page reads of an object: enough for the messages of most examples."""
_MAX_METADATA_SHOWN = 4


@dataclass(frozen=True)
class ExampleRow:
    """An example as the table shows it."""

    id: UUID
    inputs: str
    outputs: str | None
    metadata: Sequence[tuple[str, str]]
    splits: Sequence[str]
    modified_at: datetime
    has_source_run: bool
    attachment_count: int


@dataclass(frozen=True)
class ExampleFilter:
    """The filter of the URL; `problem` says why the metadata cannot be read."""

    text: str = ""
    split: str = ""
    metadata_text: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    as_of: str = ""
    version_at: datetime | None = None
    """The version that is shown; None is the latest."""
    problem: str = ""

    @classmethod
    def read(cls, dataset: Dataset, query: QueryDict) -> ExampleFilter:
        """Read the query string; raises `VersionNotFound` for an unknown tag."""
        texts = {
            name: query.get(name, "").replace("\0", "")[:MAX_FILTER_LENGTH].strip()
            for name in ("q", "split", "metadata", "as_of")
        }
        metadata, problem = _parse_metadata(texts["metadata"])
        version_at = resolve_as_of(dataset, texts["as_of"])
        if version_at is not None and version_at >= dataset.latest_version_at:
            version_at = None
        return cls(
            text=texts["q"],
            split=texts["split"],
            metadata_text=texts["metadata"],
            metadata=metadata,
            as_of="" if texts["as_of"] == LATEST else texts["as_of"],
            version_at=version_at,
            problem=problem,
        )

    @property
    def is_scan(self) -> bool:
        """Return whether no index has the filter: contents are read until a page is full."""
        return bool(self.text or self.metadata)

    @property
    def is_active(self) -> bool:
        return bool(self.text or self.split or self.metadata_text)

    def apply(self, rows: ExampleRevisionQuerySet) -> ExampleRevisionQuerySet:
        if self.split:
            rows = rows.in_splits([self.split])
        if self.metadata:
            rows = rows.with_metadata(self.metadata)
        if self.text:
            rows = rows.containing_text(self.text)
        return rows


def _parse_metadata(text: str) -> tuple[dict[str, Any], str]:
    """Return the metadata of a JSON object or of `key=value` pairs, and the problem if any.

    A value that is JSON, such as `3` or `true`, has its type; any other is a string.
    """
    if not text:
        return {}, ""
    if text.startswith("{"):
        try:
            value = loads(text)
        except ValueError as error:
            return {}, f"Not valid JSON: {error}"
        return storable_json(value), ""
    metadata: dict[str, Any] = {}
    for pair in text.split(","):
        name, separator, value_text = (part.strip() for part in pair.partition("="))
        if not separator or not name:
            return {}, "Write `key=value`, several separated by commas, or a JSON object."
        try:
            metadata[name] = loads(value_text)
        except ValueError:
            metadata[name] = value_text
    return storable_json(metadata), ""


@dataclass(frozen=True)
class ExamplePage:
    rows: Sequence[ExampleRow] = ()
    next_cursor: str | None = None


def load_page(dataset: Dataset, filters: ExampleFilter, cursor: str) -> ExamplePage:
    """Load a page of the version, last written first.

    The ids come from an index, then the rows of the page; long contents are cut by the database.
    Raises `InvalidCursor` and `QueryTooSlow`.
    """
    valid = ExampleRevision.objects.for_workspace(dataset.workspace_id).as_of(filters.version_at)
    valid = valid.filter(dataset=dataset)
    rows = filters.apply(valid)
    if cursor:
        rows = rows.filter(_after(cursor))
    ordered = rows.newest_first().values_list("valid_from", "position", "example_id")
    keys = _read_keys(ordered[: PAGE_SIZE + 1], is_scan=filters.is_scan)
    page = keys[:PAGE_SIZE]
    next_cursor = None
    if len(keys) > PAGE_SIZE:
        next_cursor = base64.urlsafe_b64encode(dumps(page[-1])).decode()
    return ExamplePage(_load_rows(valid, [key[2] for key in page]), next_cursor)


Key = tuple[datetime, int, UUID]


def _read_keys(keys: Iterable[Key], *, is_scan: bool) -> list[Key]:
    """Run the query; one that scans contents until the page is full has a time limit.

    Raises `QueryTooSlow`.
    """
    if not is_scan:
        return list(keys)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = '{SCAN_SECONDS}s'")
            return list(keys)
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
            raise QueryTooSlow from error
        raise


def load_rows(dataset: Dataset, example_ids: Sequence[UUID]) -> list[ExampleRow]:
    """Load current examples in the order of the ids, without those that do not exist."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).current()
    return _load_rows(rows.filter(dataset=dataset), example_ids)


def _load_rows(rows: ExampleRevisionQuerySet, example_ids: Sequence[UUID]) -> list[ExampleRow]:
    if not example_ids:
        return []
    selected: Any = rows.filter(example_id__in=example_ids).defer("inputs", "outputs")
    previews = selected.annotate(
        inputs_text=_beginning("inputs"), outputs_text=_beginning("outputs")
    )
    by_id = {row.example_id: row_of(row) for row in previews}
    return [by_id[example_id] for example_id in example_ids if example_id in by_id]


def _beginning(column: str) -> Left:
    return Left(Cast(F(column), TextField()), READ_CHARACTERS)


def row_of(revision: Any) -> ExampleRow:
    """Return the row of a revision with `inputs_text` and `outputs_text`."""
    metadata = [
        (name, value if isinstance(value, str) else dumps_text(value))
        for name, value in revision.metadata.items()
        if name != SPLIT_KEY
    ]
    outputs = revision.outputs_text
    return ExampleRow(
        id=revision.example_id,
        inputs=preview(revision.inputs_text),
        outputs=None if outputs is None else preview(outputs),
        metadata=metadata[:_MAX_METADATA_SHOWN],
        splits=revision.splits,
        modified_at=revision.valid_from,
        has_source_run=revision.source_run_id is not None,
        attachment_count=len(revision.attachments or ()),
    )


def preview(text: str) -> str:
    """Return one line for the beginning of a JSON object.

    Of messages the last is shown, a single text alone, several fields with their names; an object
    that is cut stays JSON.
    """
    if len(text) >= READ_CHARACTERS:
        return text[:PREVIEW_CHARACTERS]
    try:
        value = json.loads(text)
    except ValueError:
        return text[:PREVIEW_CHARACTERS]
    if (excerpt := find_excerpt(value)) is not None:
        return " ".join(excerpt.split())[:PREVIEW_CHARACTERS]
    line = one_line(value) if isinstance(value, dict) else text
    return line[:PREVIEW_CHARACTERS]


def _after(cursor: str) -> Q:
    """Return the condition of the examples after the cursor's; raises `InvalidCursor`."""
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True)
        valid_from, position, example_id = msgspec.json.decode(
            text, type=tuple[datetime, int, UUID]
        )
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise core_errors.InvalidCursor from None
    if not 0 <= position < 2**31 or valid_from.tzinfo is None:
        raise core_errors.InvalidCursor
    return Q(valid_from__lte=valid_from) & (
        Q(valid_from__lt=valid_from)
        | Q(position__gt=position)
        | Q(position=position, example_id__gt=example_id)
    )
