"""Files and schemas of members: rows that no example can hold, formulas, and checks without end."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import time
from base64 import b64decode
from random import Random
from typing import Any

import pytest

from apps.core import object_storage
from apps.core.errors import AppError
from apps.datasets.errors import FileRefused, SchemaRefused
from apps.datasets.models import Dataset
from apps.datasets.services import content
from apps.datasets.services.content import check_schema, find_violations
from apps.datasets.services.csv_cells import protect_text, restore_text
from apps.datasets.services.downloads import export_csv, export_jsonl
from apps.datasets.services.imports import (
    MAX_COLUMNS,
    ColumnMapping,
    ImportedFile,
    import_file,
    preview_file,
)
from apps.trace_store import Attachment
from apps.trace_store.media import restore_media
from tests.factories.datasets import make_dataset
from tests.tracing.conftest import objects

__all__ = ["objects"]

MAX_CPU_SECONDS = 20.0
DEEP = '{"a":' * 600 + "1" + "}" * 600
MAPPED = ColumnMapping({"a": "a"}, parses_json=True)


def import_text(dataset: Dataset, text: str, name: str, mapping: Any = None) -> int:
    file = ImportedFile(name, text.encode(), mapping or ColumnMapping())
    return import_file(dataset=dataset, file=file)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "row",
    [
        DEEP,
        f'{{"inputs": {DEEP}}}',
        '{"inputs": {"a": 1}, "split": {"a": 1}}',
        '{"inputs": {"a": 1}, "split": 5}',
        '{"inputs": {"a": 1}, "metadata": [1]}',
        '{"inputs": [1]}',
        '{"inputs": {"a": 1e400}}',
        '{"inputs": {"a": "\\ud800"}}',
        "[1]",
        "9" * 5000,
    ],
)
def test_row_that_is_no_example_is_refused(workspace, row):
    dataset = make_dataset(workspace)

    with pytest.raises(AppError) as raised:
        import_text(dataset, row, "rows.jsonl")

    assert 400 <= raised.value.status < 500


@pytest.mark.django_db
@pytest.mark.parametrize("cell", [DEEP, "9" * 5000, "1e400", "a\0b", '"\ud7ff"'])
def test_cell_that_is_no_value_is_text(workspace, cell):
    dataset = make_dataset(workspace)
    buffer = io.StringIO()
    csv.writer(buffer).writerows([["a"], [cell]])

    assert import_text(dataset, buffer.getvalue(), "rows.csv", MAPPED) == 1


@pytest.mark.django_db
def test_line_breaks_within_texts_do_not_end_a_row(workspace):
    dataset, copy = (
        make_dataset(workspace, {"a": "b\u2028c\x85"}),
        make_dataset(workspace, name="copy"),
    )
    exported = b"".join(export_jsonl(dataset, None)).decode()

    assert import_text(copy, exported, "rows.jsonl") == 1


def test_number_of_columns_is_limited():
    head = ",".join(map(str, range(200_000)))
    mapping = ColumnMapping({str(number): str(number) for number in range(200_000)})

    with pytest.raises(FileRefused, match=str(MAX_COLUMNS)):
        next(ImportedFile("rows.csv", f"{head}\n1".encode(), mapping).examples())


FORMULAS = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-1"]


@pytest.mark.django_db
def test_texts_of_an_export_are_no_formulas_and_are_imported_unchanged(workspace):
    values = [*FORMULAS, "plain", "'quoted'", "1-1", ""]
    dataset = make_dataset(workspace, *({"a": value} for value in values), name="formulas")
    exported = b"".join(export_csv(dataset, None)).decode()

    cells = [row["inputs.a"] for row in csv.DictReader(io.StringIO(exported, newline=""))]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    file = ImportedFile("x.csv", exported.encode(), ColumnMapping({"inputs.a": "a"}))
    read = [json.loads(bytes(example.wire.inputs))["a"] for example in file.examples()]
    assert sorted(read) == sorted(values)


@pytest.mark.parametrize("text", FORMULAS)
def test_protected_texts_are_restored(text):
    assert protect_text(text).startswith("'")
    assert restore_text(protect_text(text)) == text


def test_texts_of_other_files_keep_their_apostrophes():
    file = ImportedFile("x.csv", b"a\n'=1\n", ColumnMapping({"a": "a"}))

    [example] = file.examples()

    assert json.loads(bytes(example.wire.inputs)) == {"a": "'=1"}


def doubling(levels: int) -> dict[str, Any]:
    """A schema that applies its last part 2^levels times."""
    parts: dict[str, Any] = {
        f"p{n}": {"allOf": [{"$ref": f"#/$defs/p{n + 1}"}, {"$ref": f"#/$defs/p{n + 1}"}]}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/p0", "$defs": parts | {f"p{levels}": {"type": "object"}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling(30), {}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(20_000)]}),
    ],
)
def test_check_that_would_not_end_is_a_violation(schema, value, monkeypatch):
    monkeypatch.setattr(content, "MAX_STEPS", 50_000)
    check_schema(schema, "inputs_schema_definition")
    start = time.process_time()

    [violation] = find_violations(schema, value)

    assert "more than 50000 steps" in violation.message
    assert time.process_time() - start < MAX_CPU_SECONDS


def test_unevaluated_properties_with_many_references_are_refused():
    with pytest.raises(SchemaRefused, match="references"):
        check_schema(doubling(30) | {"unevaluatedProperties": False}, "inputs_schema_definition")


@pytest.mark.django_db
def test_preview_keeps_few_problems(workspace):
    dataset = make_dataset(workspace)
    dataset.inputs_schema = {"additionalProperties": {"type": "string"}}
    row = json.dumps({"inputs": {f"a{n}": n for n in range(500)}})

    preview = preview_file(
        dataset=dataset,
        file=ImportedFile("x.jsonl", "\n".join([row] * 5).encode(), ColumnMapping()),
    )

    assert len(preview.problems) == 100


def test_references_that_a_client_wrote_do_not_become_gigabytes(objects, settings):
    """78 bytes that name a medium of a megabyte, ten thousand times."""
    medium = Random(1).randbytes(1_000_000)
    digest = hashlib.sha256(medium).hexdigest()
    object_storage.put("attachments/medium", medium)
    name = f"media-{digest}.png"
    attachment = Attachment(name=name, path="attachments/medium", mime_type="image/png", size=1)
    payload = json.dumps([f"slipway-media:{digest}"] * 10_000).encode()

    restored = restore_media(payload, [attachment])

    assert len(payload) < len(restored) <= settings.MAX_BODY_BYTES
    values = json.loads(restored)
    assert b64decode(values[0]) == medium
    assert values[-1] == f"slipway-media:{digest}"
