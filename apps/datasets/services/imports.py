"""Import of CSV and JSONL files: rows become examples by a mapping of columns."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from django.db import transaction

from apps.core.json import MAX_DEPTH, dumps, is_too_deep, loads_exact
from apps.datasets import errors
from apps.datasets.models import Dataset
from apps.datasets.services.content import check_example
from apps.datasets.services.csv_cells import EXPORT_COLUMNS, restore_text
from apps.datasets.services.examples import NewExample, build_contents
from apps.datasets.services.versions import write_version
from apps.datasets.wire import ABSENT, SPLIT_KEY, WireExample, merge_splits, parse_metadata

PREVIEW_ROWS = 10
MAX_COLUMNS = 2000
_BATCH_SIZE = 2000
_JSONL_SUFFIXES = (".jsonl", ".ndjson")
_JSONL_KEYS = frozenset({"inputs", "outputs", "metadata", "split"})
# The default limit of the standard library is 128 KiB.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Which column becomes which key of the example: `{column: key}`."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    parses_json: bool = False
    """Whether cells of CSV that are JSON become their values, such as `3` or `["a"]`."""

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self.inputs, *self.outputs, *self.metadata]))


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """An uploaded file and how it is read."""

    name: str
    content: bytes
    mapping: ColumnMapping

    @property
    def is_jsonl(self) -> bool:
        return self.name.lower().endswith(_JSONL_SUFFIXES)

    def columns(self) -> list[str]:
        """Return the names of the columns; of JSONL the keys of the first rows."""
        if not self.is_jsonl:
            return _read_head(self._text())
        rows = itertools.islice(self._jsonl_rows(), PREVIEW_ROWS)
        return list(dict.fromkeys(key for row in rows for key in row))

    def examples(self) -> Iterator[NewExample]:
        """Yield an example for each row; raises `FileRefused` with the row."""
        rows = self._jsonl_rows() if self.is_jsonl else self._csv_rows()
        for number, row in enumerate(rows):
            yield NewExample(self._map(row, number))

    def _text(self) -> str:
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise errors.FileRefused(f"The file is not UTF-8: byte {error.start}.") from None

    def _csv_rows(self) -> Iterator[dict[str, Any]]:
        text = self._text()
        head = _read_head(text)
        if not self.mapping.inputs:
            raise errors.FileRefused("Set `input_keys`: the columns that are inputs.")
        names = set(head)
        missing = [name for name in self.mapping.columns if name not in names]
        if missing:
            raise errors.FileRefused(
                f"The file has no column `{missing[0]:.100}`; it has {', '.join(head)[:500]}."
            )
        is_export = head[0] == EXPORT_COLUMNS[0] and head[-1] == EXPORT_COLUMNS[1]
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            next(reader)
            cells_of_rows = (cells for cells in reader if cells)
            for number, cells in enumerate(cells_of_rows):
                if len(cells) != len(head):
                    raise errors.FileRefused(
                        f"Row {number} has {len(cells)} cells, the head has {len(head)}.",
                        [{"row": number, "field": "", "message": "wrong number of cells"}],
                    )
                texts = map(restore_text, cells) if is_export else cells
                values = map(_parse_cell, texts) if self.mapping.parses_json else texts
                yield dict(zip(head, values, strict=True))
        except csv.Error as error:
            raise errors.FileRefused(f"Line {reader.line_num}: {error}.") from None

    def _jsonl_rows(self) -> Iterator[dict[str, Any]]:
        number = 0
        # Texts in JSON may have other line breaks, such as U+2028.
        for line in self._text().split("\n"):
            if not line.strip():
                continue
            try:
                row = loads_exact(line)
            except (ValueError, RecursionError) as error:
                raise _row_refused(number, "", f"not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise _row_refused(number, "", "not a JSON object")
            if is_too_deep(row, line.encode()):
                raise _row_refused(number, "", f"nested deeper than {MAX_DEPTH} levels")
            yield row
            number += 1

    def _map(self, row: Mapping[str, Any], number: int) -> WireExample:
        """Return the example of a row; without a mapping it has the keys of the JSONL export."""
        if self.is_jsonl and not self.mapping.columns:
            unknown = row.keys() - _JSONL_KEYS
            if unknown:
                raise _row_refused(
                    number, min(unknown), "the key is not one of inputs, outputs, metadata, split"
                )
            return WireExample(
                inputs=_raw(row.get("inputs")),
                outputs=_raw(row.get("outputs")),
                metadata=_raw(row.get("metadata")),
                split=row.get("split"),
            )
        missing = [column for column in self.mapping.columns if column not in row]
        if missing:
            raise _row_refused(number, missing[0], "the row has no such key")
        mapping = self.mapping
        metadata = _pick(row, mapping.metadata) if mapping.metadata else None
        if metadata and metadata.get(SPLIT_KEY) in {"", None}:
            metadata.pop(SPLIT_KEY, None)  # an empty cell: the default split
        return WireExample(
            inputs=_raw(_pick(row, mapping.inputs)),
            outputs=_raw(_pick(row, mapping.outputs) if mapping.outputs else None),
            metadata=_raw(metadata),
        )


def _read_head(text: str) -> list[str]:
    try:
        head = next(csv.reader(io.StringIO(text, newline=""), strict=True), [])
    except csv.Error as error:
        raise errors.FileRefused(f"Line 1: {error}.") from None
    if len(head) > MAX_COLUMNS:
        raise errors.FileRefused(f"A file has at most {MAX_COLUMNS} columns.")
    if not any(head):
        raise errors.FileRefused("The file is empty: its first line names the columns.")
    if len(set(head)) < len(head):
        raise errors.FileRefused("Two columns of the file have the same name.")
    return head


def _pick(row: Mapping[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    return {key: row[column] for column, key in mapping.items()}


def _parse_cell(cell: str) -> Any:
    try:
        value = loads_exact(cell)
    except (ValueError, RecursionError):
        return cell
    return cell if is_too_deep(value, cell.encode()) else value


def _raw(value: Any) -> msgspec.Raw:
    return ABSENT if value is None else msgspec.Raw(dumps(value))


def _row_refused(row: int, name: str, message: str) -> errors.FileRefused:
    place = f"Row {row}, {name}" if name else f"Row {row}"
    return errors.FileRefused(
        f"{place}: {message}.", [{"row": row, "field": name, "message": message}]
    )


@transaction.atomic
def import_file(
    *,
    dataset: Dataset,
    file: ImportedFile,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Add an example for each row in one version, and return their number: all or none.

    `on_progress` is called with the number of rows after each batch; an exception of it ends the
    import. Raises `FileRefused` or `ExampleRefused` with the row, counted from 0 without the head.
    """
    count = 0
    with write_version(dataset.workspace_id, dataset.pk) as version:
        rows = file.examples()
        while batch := list(itertools.islice(rows, _BATCH_SIZE)):
            version.add(build_contents(version.dataset, batch, {}, first_row=count))
            count += len(batch)
            if on_progress is not None:
                on_progress(count)
    return count


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """What an import would do."""

    columns: Sequence[str]
    row_count: int
    examples: Sequence[Mapping[str, Any]]
    problems: Sequence[Mapping[str, Any]]


def preview_file(
    *, dataset: Dataset, file: ImportedFile, is_beginning: bool = False
) -> ImportPreview:
    """Return the columns, the first examples, and the violations of the dataset's schemas.

    The dataset may be unsaved. Of the beginning of a larger file the last row may be cut. Raises
    `FileRefused` for a file that cannot be read.
    """
    columns = file.columns()
    examples: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    count = 0
    if file.mapping.columns or file.is_jsonl:
        rows = _without_cut_row(file.examples()) if is_beginning else file.examples()
        for row, example in enumerate(rows):
            wire = example.wire
            checked = check_example(dataset, wire.inputs, wire.outputs)
            if len(problems) < errors.MAX_PROBLEMS:
                problems += ({"row": row, **problem} for problem in checked.problems)
            if row < PREVIEW_ROWS:
                metadata, _ = merge_splits(parse_metadata(wire.metadata), wire.split)
                outputs = None if checked.outputs is None else loads_exact(checked.outputs)
                inputs = loads_exact(checked.inputs)
                examples.append({"inputs": inputs, "outputs": outputs, "metadata": metadata})
            count += 1
    return ImportPreview(columns, count, examples, problems[: errors.MAX_PROBLEMS])


def _without_cut_row(rows: Iterator[NewExample]) -> Iterator[NewExample]:
    """Yield the rows until one cannot be read, which is the last of the part."""
    is_first = True
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except errors.FileRefused:
            if is_first:
                raise
            return
        yield row
        is_first = False
