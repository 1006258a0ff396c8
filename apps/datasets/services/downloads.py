"""Export of a version as CSV, JSONL, and the formats of OpenAI, streamed in batches."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Func, Q, TextField

from apps.core.json import dumps, dumps_text
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services.csv_cells import EXPORT_COLUMNS, protect_text
from apps.datasets.services.embedded_content import split_by_size, stored_size
from apps.datasets.services.transformations import convert_messages

_BATCH_SIZE = 1000


def iterate_revisions(
    dataset: Dataset,
    version_at: datetime | None,
    *,
    example_ids: Collection[UUID] | None = None,
    splits: Collection[str] | None = None,
    written_since: datetime | None = None,
) -> Iterator[ExampleRevision]:
    """Yield the examples of a version, newest first; no transaction is open between batches.

    `version_at` None reads the latest version that `dataset` knows.
    """
    version_at = version_at or dataset.latest_version_at
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).as_of(version_at)
    rows = rows.filter(dataset=dataset).newest_first()
    if example_ids is not None:
        rows = rows.filter(example_id__in=example_ids)
    if splits is not None:
        rows = rows.in_splits(splits)
    if written_since is not None:
        rows = rows.filter(valid_from__gte=written_since)
    after = Q()
    keys = rows.values_list("pk", stored_size(), "valid_from", "position", "example_id")
    while batch := list(keys.filter(after)[:_BATCH_SIZE]):
        for ids in split_by_size([key[:2] for key in batch]):
            by_id = rows.order_by().in_bulk(ids)
            yield from (by_id[pk] for pk in ids if pk in by_id)
        _, _, valid_from, position, example_id = batch[-1]
        after = Q(valid_from__lt=valid_from) | Q(
            Q(position__gt=position) | Q(position=position, example_id__gt=example_id),
            valid_from=valid_from,
        )
        keys = keys.filter(valid_from__lte=valid_from)


def export_csv(dataset: Dataset, version_at: datetime | None) -> Iterator[bytes]:
    """Yield a table with a column for each top-level key; values that are no text are JSON.

    Texts that a spreadsheet would evaluate begin with an apostrophe, which an import removes.
    """
    version_at = version_at or dataset.latest_version_at
    columns = [
        (name, key)
        for name in ("inputs", "outputs")
        for key in _top_level_keys(dataset, version_at, name)
    ]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    first, last = EXPORT_COLUMNS
    writer.writerow([first, *(f"{name}.{key}" for name, key in columns), last])
    for revision in iterate_revisions(dataset, version_at):
        values = {"inputs": revision.inputs, "outputs": revision.outputs or {}}
        cells = [_cell(values[name].get(key)) for name, key in columns]
        writer.writerow([revision.example_id, *cells, dumps_text(revision.metadata)])
        if buffer.tell() > _FLUSH_CHARACTERS:
            yield _take(buffer)
    yield _take(buffer)


_FLUSH_CHARACTERS = 65_536


def _take(buffer: io.StringIO) -> bytes:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text.encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return protect_text(value) if isinstance(value, str) else dumps_text(value)


def _top_level_keys(dataset: Dataset, version_at: datetime, name: str) -> list[str]:
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).as_of(version_at)
    rows = rows.filter(dataset=dataset, **{f"{name}__isnull": False}).order_by()
    keys = Func(F(name), function="json_object_keys", output_field=TextField())
    keys_in_use: Any = rows.annotate(key=keys).values_list("key", flat=True).distinct()
    return sorted(keys_in_use)


def export_jsonl(dataset: Dataset, version_at: datetime | None) -> Iterator[bytes]:
    """Yield an object with inputs, outputs, metadata and split per line; an import reads it."""
    for revision in iterate_revisions(dataset, version_at):
        metadata = {k: v for k, v in revision.metadata.items() if k != "dataset_split"}
        yield (
            dumps(
                {
                    "inputs": revision.inputs,
                    "outputs": revision.outputs,
                    "metadata": metadata,
                    "split": revision.splits,
                }
            )
            + b"\n"
        )


def export_openai_finetuning(dataset: Dataset, version_at: datetime | None) -> Iterator[bytes]:
    """Yield `{"messages": [...]}` per line, with `tools` if the inputs have them."""
    for revision in iterate_revisions(dataset, version_at):
        line: dict[str, Any] = {"messages": _messages(revision.inputs, "user")}
        if revision.outputs is not None:
            line["messages"] += _messages(revision.outputs, "assistant")
        if isinstance(revision.inputs.get("tools"), list):
            line["tools"] = revision.inputs["tools"]
        yield dumps(line) + b"\n"


def export_openai_evals(dataset: Dataset, version_at: datetime | None) -> Iterator[bytes]:
    """Yield `{"input": [messages], "ideal": text}` per line, the samples of OpenAI's evals."""
    for revision in iterate_revisions(dataset, version_at):
        ideal = ""
        if revision.outputs is not None:
            content = _messages(revision.outputs, "assistant")[-1].get("content")
            ideal = content if isinstance(content, str) else dumps_text(content)
        yield dumps({"input": _messages(revision.inputs, "user"), "ideal": ideal}) + b"\n"


def _messages(content: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """Return the messages in inputs or outputs; other content is one message of the role.

    A single text is the message's content, anything else its JSON.
    """
    for key in ("messages", "input", "output", "message"):
        value = content.get(key)
        items = value if isinstance(value, list) else [value]
        converted = convert_messages(items)
        if items and all(isinstance(item, dict) and "role" in item for item in converted):
            return list(converted)
    values = list(content.values())
    if len(values) == 1 and isinstance(values[0], str):
        return [{"role": role, "content": values[0]}]
    return [{"role": role, "content": dumps_text(content)}]


Export = Callable[[Dataset, datetime | None], Iterator[bytes]]
FORMATS: dict[str, tuple[Export, str, str]] = {
    "csv": (export_csv, "text/csv; charset=utf-8", "csv"),
    "jsonl": (export_jsonl, "application/x-ndjson", "jsonl"),
    "openai": (export_openai_evals, "application/x-ndjson", "jsonl"),
    "openai_ft": (export_openai_finetuning, "application/x-ndjson", "jsonl"),
}
"""By format of the path: the export, its media type, and the suffix of the file."""
