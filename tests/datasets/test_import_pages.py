"""The import wizard: guessed columns, preview, problems by row and field, progress."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.datasets.models import Dataset
from apps.datasets.services.examples import create_examples
from apps.datasets.services.import_progress import ImportProgress
from tests.datasets.page_helpers import SCHEMA, current, path, text_of
from tests.factories.datasets import make_dataset, new_example


def columns(*choices):
    """The fields of the mapping: column, role and key."""
    fields = {}
    for number, (name, role, key) in enumerate(choices):
        fields |= {f"column-{number}": name, f"role-{number}": role, f"key-{number}": key}
    return fields


def upload(page, url, content, *, name="rows.csv", step="import", **fields):
    file = SimpleUploadedFile(name, content)
    return page.post(url, {"file": file, "step": step} | fields)


CSV = b"question,answer,split,level\nRed?,yes,train,1\nBlue?,no,,2\n"


def test_the_limit_of_a_file_is_a_round_number(page, workspace):
    text = page.get(f"/o/{workspace.pk}/datasets/import").content.decode()

    assert "At most 25 MiB;" in text


def test_columns_are_guessed_previewed_and_imported(page, workspace):
    url = f"/o/{workspace.pk}/datasets/import"

    preview = upload(page, url, CSV, step="preview")

    text = preview.content.decode()
    assert preview.status_code == 200
    assert re.search(r'name="role-1"[^>]*>(\s*<option[^>]*>[^<]*</option>)*?\s*<option value="outputs" selected', text)  # fmt: skip  # noqa: E501
    assert "question: Red? · level: 1" in text_of(preview)
    assert not Dataset.objects.for_workspace(workspace).exists()
    mapping = columns(
        ("question", "inputs", "q"),
        ("answer", "outputs", "answer"),
        ("split", "split", ""),
        ("level", "metadata", "level"),
    )
    imported = upload(page, url, CSV, name="colours.csv", parses_json="on", **mapping)
    dataset = Dataset.objects.for_workspace(workspace).get()
    assert imported["Location"] == path(dataset)
    assert (dataset.name, dataset.example_count) == ("colours", 2)
    first, second = current(dataset)
    assert (first.inputs, first.outputs) == ({"q": "Red?"}, {"answer": "yes"})
    assert first.metadata == {"level": 1, "dataset_split": ["train"]}
    assert second.splits == ["base"]


def test_import_states_problems_by_row_and_field_and_imports_nothing(page, workspace):
    dataset = make_dataset(workspace, inputs_schema=SCHEMA)
    url = path(dataset, "/import")
    mapping = columns(("n", "inputs", "n")) | {"parses_json": "on"}

    preview = upload(page, url, b"n\n1\nx\n", step="preview", **mapping)
    imported = upload(page, url, b"n\n1\nx\n", **mapping)

    for response in (preview, imported):
        assert "2 inputs.n &#x27;x&#x27; is not of type" in text_of(response)
    assert imported.status_code == 422
    assert current(dataset).count() == 0


@pytest.mark.parametrize(
    ("content", "fields", "problem"),
    [
        (b"", {}, "The file is empty"),
        (b"a,b\n1\n", {}, "has 1 cells"),
        (b"a,a\n1,2\n", {}, "same name"),
        (b"\xff\xfe\n", {}, "not UTF-8"),
        (b"a\n1\n", columns(("a", "", "")), "Choose at least one column"),
        (
            b"a,b\n1,2\n",
            columns(("a", "inputs", "x"), ("b", "inputs", "x")),
            "Two columns have the key",
        ),
    ],
)
def test_unreadable_files_and_mappings_are_refused(page, workspace, content, fields, problem):
    dataset = make_dataset(workspace)

    response = upload(page, path(dataset, "/import"), content, **fields)

    assert response.status_code == 422
    assert problem in text_of(response)
    assert current(dataset).count() == 0


def test_exported_json_lines_are_imported_as_they_are(page, workspace):
    source = make_dataset(workspace)
    create_examples(
        dataset=source,
        examples=[new_example({"q": 1}, outputs={"a": 2}, metadata={"k": "v"}, split="train")],
    )
    content = b"".join(page.get(path(source, "/export/jsonl")).streaming_content)
    target = make_dataset(workspace, name="target")

    upload(page, path(target, "/import"), content, name="rows.jsonl")

    [row] = current(target)
    assert (row.inputs, row.outputs, row.splits) == ({"q": 1}, {"a": 2}, ["train"])


def test_beginning_of_a_large_file_may_end_within_a_row(page, workspace):
    dataset = make_dataset(workspace)

    response = upload(
        page,
        path(dataset, "/import"),
        b'q,n\nfirst,1\n"second',
        step="preview",
        is_beginning="1",
        headers={"HX-Request": "true"},
    )

    assert response.status_code == 200
    assert "q: first · n: 1" in text_of(response)


def test_progress_of_an_import_is_read_and_cancelled(page, workspace, monkeypatch):
    dataset, import_id = make_dataset(workspace), uuid4()
    progress_url = f"/o/{workspace.pk}/datasets/import/{import_id}"
    assert page.get(progress_url).status_code == 404
    assert page.post(progress_url).status_code == 404
    monkeypatch.setattr("apps.datasets.services.imports._BATCH_SIZE", 1)
    seen, original = [], ImportProgress.advance

    def advance(progress, count):
        seen.append(page.get(progress_url).json())
        page.post(progress_url)
        original(progress, count)

    monkeypatch.setattr(ImportProgress, "advance", advance)

    response = upload(page, path(dataset, "/import"), b"q\na\nb\n", import_id=str(import_id))

    assert seen == [{"count": 0}]
    assert response.status_code == 422
    assert "was cancelled. Nothing was imported" in text_of(response)
    assert current(dataset).count() == 0
    assert page.get(progress_url).status_code == 404
