"""Import of CSV and JSONL files, and export."""

from __future__ import annotations

import csv
import io
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services.examples import create_examples
from tests.factories.datasets import make_dataset, new_example

UPLOAD = "/datasets/upload"
CSV = 'question,answer,note\n"why, and\nhow?",so,1\nwho?,"""me""",2\n'


def upload(api, path=UPLOAD, *, content=CSV, name="file.csv", **fields):
    data = content if isinstance(content, bytes) else content.encode()
    file = SimpleUploadedFile(name, data, content_type="text/csv")
    return api.client.post(path, {"file": file, **fields})


def read(api, dataset_id, name, **query):
    response = api.get(f"/datasets/{dataset_id}/{name}", **query)
    assert response.status_code == 200
    return b"".join(response).decode()


def test_callers_without_access_are_refused(make_api, workspace, other_workspace, dataset):
    reader, outsider = make_api(workspace, "read"), make_api(other_workspace)
    into = f"/examples/upload/{dataset.pk}"

    assert upload(reader, input_keys=["question"]).status_code == 403
    assert upload(reader, f"{UPLOAD}/preview", input_keys=["question"]).status_code == 403
    assert upload(reader, into, input_keys=["question"]).status_code == 403
    assert upload(outsider, into, input_keys=["question"]).status_code == 404
    for name in ("csv", "jsonl", "openai", "openai_ft"):
        assert outsider.get(f"/datasets/{dataset.pk}/{name}").status_code == 404
        assert (
            make_api(workspace, "ingest").get(f"/datasets/{dataset.pk}/{name}").status_code == 403
        )
    assert Dataset.objects.for_workspace(workspace).count() == 1


def test_rows_of_a_csv_file_become_examples_in_their_order(api, workspace):
    response = upload(
        api,
        input_keys=["question"],
        output_keys=["answer"],
        metadata_keys=["note"],
        description="from a file",
        data_type="kv",
        id="5f0b8c1e-0000-4000-8000-000000000001",
    )

    body = response.json()
    assert response.status_code == 200, body
    assert (body["name"], body["description"]) == ("file.csv", "from a file")
    assert (body["id"], body["example_count"]) == ("5f0b8c1e-0000-4000-8000-000000000001", 2)
    examples = api.get("/examples", dataset=body["id"]).json()
    assert [(e["inputs"], e["outputs"]) for e in examples] == [
        ({"question": "why, and\nhow?"}, {"answer": "so"}),
        ({"question": "who?"}, {"answer": '"me"'}),
    ]
    assert examples[0]["metadata"] == {"note": "1", "dataset_split": ["base"]}
    assert Dataset.objects.for_workspace(workspace).get().versions.count() == 2


def test_columns_are_renamed_by_a_mapping(api):
    body = upload(
        api,
        name="renamed.csv",
        input_key_mappings='{"question": "q"}',
        output_keys=["answer"],
        output_key_mappings='{"answer": "a"}',
    ).json()

    example = api.get("/examples", dataset=body["id"]).json()[1]
    assert (example["inputs"], example["outputs"]) == ({"q": "who?"}, {"a": '"me"'})


def test_the_name_of_an_existing_dataset_is_a_conflict(api, workspace):
    make_dataset(workspace, name="taken")

    response = upload(api, name="x.csv", input_keys=["question"], description="d")
    assert response.status_code == 200
    conflict = api.client.post(
        UPLOAD,
        {
            "file": SimpleUploadedFile("x.csv", CSV.encode()),
            "input_keys": ["question"],
            "name": "taken",
        },
    )

    assert (conflict.status_code, conflict.json()["code"]) == (409, "dataset_name_taken")
    assert "already exists" in conflict.json()["detail"]


@pytest.mark.parametrize(
    ("content", "fields", "text"),
    [
        (CSV, {}, "input_keys"),
        (CSV, {"input_keys": ["missing"]}, "`missing`"),
        ("a,b\n1,2\n1\n", {"input_keys": ["a"]}, "Row 1 has 1 cells"),
        ("", {"input_keys": ["a"]}, "empty"),
        ("a,a\n", {"input_keys": ["a"]}, "same name"),
        ('a\n"x\n', {"input_keys": ["a"]}, "Line"),
        (b"a\n\xff\n", {"input_keys": ["a"]}, "UTF-8"),
        (CSV, {"input_keys": ["question"], "colour": "red"}, "colour"),
        (CSV, {"input_keys": ["question"], "input_key_mappings": "[1]"}, "input_key_mappings"),
        (CSV, {"input_keys": ["question"], "data_type": "xml"}, "data_type"),
        (
            CSV,
            {
                "input_keys": ["question"],
                "inputs_schema_definition": '{"properties": {"question": {"maxLength": 5}}}',
            },
            "Row 0, inputs.question",
        ),
    ],
)
def test_an_unusable_file_is_refused_with_row_and_column(api, workspace, content, fields, text):
    response = upload(api, content=content, **fields)

    assert response.status_code == 422
    assert text in response.json()["detail"]
    assert not Dataset.objects.for_workspace(workspace).exists()
    assert not ExampleRevision.objects.for_workspace(workspace).exists()


def test_a_jsonl_file_keeps_the_types_of_its_values(api):
    lines = [
        {"inputs": {"q": [1, 2.5]}, "outputs": None, "metadata": {"m": 1}, "split": "test"},
        {"inputs": {"q": {"a": "b"}}},
    ]
    content = "\n".join(json.dumps(line) for line in lines) + "\n\n"

    body = upload(api, name="file.jsonl", content=content).json()

    first, second = api.get("/examples", dataset=body["id"]).json()
    assert (first["inputs"], first["outputs"]) == ({"q": [1, 2.5]}, None)
    assert first["metadata"] == {"m": 1, "dataset_split": ["test"]}
    assert second["inputs"] == {"q": {"a": "b"}}


@pytest.mark.parametrize(
    ("content", "fields", "text"),
    [
        ('{"inputs": {}}\n{', {}, "Row 1: not valid JSON"),
        ("[1]", {}, "Row 0: not a JSON object"),
        ('{"inputs": {}, "extra": 1}', {}, "Row 0, extra"),
        ('{"a": 1}\n{"b": 1}', {"input_keys": ["a"]}, "Row 1, a"),
        ('{"outputs": {}}', {}, "Row 0, inputs"),
    ],
)
def test_an_unusable_line_is_refused_with_its_row(api, workspace, content, fields, text):
    response = upload(api, name="file.jsonl", content=content, **fields)

    assert response.status_code == 422
    assert text in response.json()["detail"]
    assert not Dataset.objects.for_workspace(workspace).exists()


def test_rows_are_added_to_an_existing_dataset_in_one_version(api, workspace):
    dataset = make_dataset(workspace, {"question": "first"})
    versions = dataset.versions.count()

    response = upload(api, f"/examples/upload/{dataset.pk}", input_keys=["question"])

    assert response.json() == {"count": 2}
    assert dataset.versions.count() == versions + 1
    dataset.refresh_from_db()
    assert dataset.example_count == 3


def test_a_preview_shows_columns_examples_and_problems_and_stores_nothing(api, workspace):
    response = upload(
        api,
        f"{UPLOAD}/preview",
        input_keys=["question"],
        inputs_schema_definition='{"properties": {"question": {"maxLength": 5}}}',
    )

    body = response.json()
    assert response.status_code == 200, body
    assert (body["format"], body["columns"]) == ("csv", ["question", "answer", "note"])
    assert body["row_count"] == 2
    assert body["examples"][1] == {
        "inputs": {"question": "who?"},
        "outputs": None,
        "metadata": {"dataset_split": ["base"]},
    }
    assert [(p["row"], p["field"]) for p in body["problems"]] == [(0, "inputs.question")]
    assert not Dataset.objects.for_workspace(workspace).exists()
    without_mapping = upload(api, f"{UPLOAD}/preview").json()
    assert (without_mapping["columns"], without_mapping["examples"]) == (body["columns"], [])


def test_a_preview_uses_the_schemas_of_an_existing_dataset(api, workspace, other_workspace):
    schema = {"properties": {"question": {"maxLength": 5}}}
    dataset = make_dataset(workspace, inputs_schema=schema)
    foreign = make_dataset(other_workspace)
    path = f"{UPLOAD}/preview"

    preview = upload(api, path, input_keys=["question"], dataset_id=str(dataset.pk)).json()
    hidden = upload(api, path, input_keys=["question"], dataset_id=str(foreign.pk))

    assert len(preview["problems"]) == 1
    assert hidden.status_code == 404


@pytest.fixture
def chat(workspace):
    """A dataset with messages in the ways of LangChain and of OpenAI, and with plain text."""
    dataset = make_dataset(workspace, name="chat")
    human = {
        "lc": 1,
        "type": "constructor",
        "id": ["x", "HumanMessage"],
        "kwargs": {"content": "hi"},
    }
    call = {"name": "f", "args": {"x": 1}, "id": "c1"}
    answer = {"type": "ai", "data": {"content": "", "tool_calls": [call]}}
    create_examples(
        dataset=dataset,
        examples=[
            new_example({"messages": [human]}, outputs={"output": answer}),
            new_example(
                {"messages": [{"role": "user", "content": "yo"}], "tools": [{"type": "function"}]}
            ),
            new_example({"text": "in"}, outputs={"text": "out"}, metadata={"k": 1}, split="test"),
            new_example({"a": 1, "b": "=2"}, outputs={"c": None}),
        ],
    )
    dataset.refresh_from_db()
    return dataset


def test_export_for_finetuning_has_the_messages_of_openai(api, chat):
    lines = [json.loads(line) for line in read(api, chat.pk, "openai_ft").strip().split("\n")]

    assert lines == [
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "type": "function",
                            "id": "c1",
                            "function": {"name": "f", "arguments": '{"x":1}'},
                        }
                    ],
                },
            ]
        },
        {"messages": [{"role": "user", "content": "yo"}], "tools": [{"type": "function"}]},
        {"messages": [{"role": "user", "content": "in"}, {"role": "assistant", "content": "out"}]},
        {
            "messages": [
                {"role": "user", "content": '{"a":1,"b":"=2"}'},
                {"role": "assistant", "content": '{"c":null}'},
            ]
        },
    ]


def test_export_for_evals_has_input_and_ideal(api, chat):
    lines = [json.loads(line) for line in read(api, chat.pk, "openai").strip().split("\n")]

    assert lines[1] == {"input": [{"role": "user", "content": "yo"}], "ideal": ""}
    assert lines[2] == {"input": [{"role": "user", "content": "in"}], "ideal": "out"}


def test_csv_has_a_column_for_each_key(api, chat):
    response = api.get(f"/datasets/{chat.pk}/csv")

    rows = list(csv.DictReader(io.StringIO(b"".join(response).decode())))
    assert response["Content-Disposition"] == 'attachment; filename="chat.csv"'
    assert list(rows[0]) == [
        "id", "inputs.a", "inputs.b", "inputs.messages", "inputs.text", "inputs.tools",
        "outputs.c", "outputs.output", "outputs.text", "metadata",
    ]  # fmt: skip
    assert (rows[2]["inputs.text"], rows[2]["outputs.text"]) == ("in", "out")
    assert json.loads(rows[2]["metadata"]) == {"k": 1, "dataset_split": ["test"]}
    assert (rows[3]["inputs.a"], rows[3]["inputs.b"], rows[3]["outputs.c"]) == ("1", "'=2", "")


def test_an_exported_jsonl_file_imports_to_the_same_examples(api, chat, monkeypatch):
    monkeypatch.setattr("apps.datasets.services.downloads._BATCH_SIZE", 2)
    exported = read(api, chat.pk, "jsonl")

    copy = upload(api, name="copy.jsonl", content=exported).json()

    def contents(dataset_id):
        examples = api.get("/examples", dataset=str(dataset_id)).json()
        return [(e["inputs"], e["outputs"], e["metadata"]) for e in examples]

    assert contents(copy["id"]) == contents(chat.pk)
    assert len(contents(copy["id"])) == 4


def test_exports_read_a_version(api, workspace):
    dataset = make_dataset(workspace, {"n": 1})
    at = dataset.latest_version_at.isoformat()
    api.post("/examples", {"dataset_id": str(dataset.pk), "inputs": {"n": 2}})

    assert read(api, dataset.pk, "jsonl", as_of=at).count("\n") == 1
    assert read(api, dataset.pk, "jsonl").count("\n") == 2
    assert read(api, dataset.pk, "csv", as_of="2020-01-01") == "id,metadata\r\n"
    assert api.get(f"/datasets/{dataset.pk}/jsonl", as_of="nope").status_code == 404
