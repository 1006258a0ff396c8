"""Pages of datasets: list, examples, editor, versions, tags, search, links and deletion."""

from __future__ import annotations

import json
import re
from uuid import UUID

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.audit.models import Entry
from apps.datasets.models import Dataset, DatasetTag, DatasetVersion
from apps.datasets.services.datasets import delete_dataset
from apps.datasets.services.examples import create_examples
from apps.datasets.services.sharing import share_dataset
from apps.web_ui.formatting import format_exact_time
from tests.console.conftest import create_workspace_user, signed_in
from tests.datasets.page_helpers import SCHEMA, current, path, text_of
from tests.factories.datasets import make_dataset, new_example
from tests.factories.tracing import ingest, wire_run


def form_of(revision, **changes):
    """The fields of the editor of an example."""
    fields = {
        "inputs": json.dumps(revision.inputs),
        "outputs": "" if revision.outputs is None else json.dumps(revision.outputs),
        "metadata": "",
        "splits": ", ".join(revision.splits),
        "modified_at": revision.valid_from.isoformat(),
    }
    return fields | changes


@pytest.fixture
def reader(workspace):
    return signed_in(create_workspace_user(workspace, "viewer"))


# The list


def test_list_shows_datasets_and_an_empty_state_with_a_snippet(page, workspace):
    url = f"/o/{workspace.pk}/datasets"
    empty = page.get(url).content.decode()
    assert "No datasets yet" in empty
    assert "client.create_dataset" in empty
    make_dataset(workspace, {"q": "a"}, {"q": "b"}, name="alpha", description="First letters")
    make_dataset(workspace, name="beta", data_type="chat")

    text = text_of(page.get(url))

    assert "alpha First letters Key-value 2" in text
    assert "beta" in text_of(page.get(f"{url}?type=chat"))
    assert "alpha" not in text_of(page.get(f"{url}?type=chat"))
    assert "alpha" in text_of(page.get(f"{url}?q=ALP"))
    assert "No matching dataset" in text_of(page.get(f"{url}?q=gamma"))


def test_list_is_sorted_and_paged(page, workspace, monkeypatch):
    monkeypatch.setattr("apps.datasets.pages.dataset_list.PAGE_SIZE", 2)
    for name in ("c", "a", "b"):
        make_dataset(workspace, *([{"q": name}] if name == "b" else []), name=f"name-{name}")
    url = f"/o/{workspace.pk}/datasets?sort=name"

    first = page.get(url).content.decode()
    next_url = re.search(r'href="(\?[^"]*after=[^"]+)"', first)[1].replace("&amp;", "&")
    second = page.get(f"/o/{workspace.pk}/datasets{next_url}").content.decode()
    by_count = text_of(page.get(f"/o/{workspace.pk}/datasets?sort=-example_count"))

    assert first.index("name-a") < first.index("name-b")
    assert "name-c" not in first
    assert "name-c" in second
    assert "name-a" not in second
    assert "name-b" in by_count
    assert page.get(f"{url}&after=nonsense").status_code == 400


def count_queries(page, url):
    page.get(url)  # warm up caches
    with CaptureQueriesContext(connection) as captured:
        assert page.get(url).status_code == 200
    return len(captured)


def test_queries_of_the_list_do_not_grow_with_the_rows(page, workspace):
    url = f"/o/{workspace.pk}/datasets"
    make_dataset(workspace, {"q": "a"}, name="one")
    with_one = count_queries(page, url)
    for number in range(5):
        make_dataset(workspace, {"q": "a"}, name=f"more {number}")

    assert count_queries(page, url) == with_one


@pytest.mark.parametrize("suffix", ["", "/versions", "/versions/diff", "?q=a"])
def test_queries_of_a_dataset_do_not_grow_with_the_examples(page, workspace, suffix):
    dataset = make_dataset(workspace, {"q": "a"}, {"q": "a b"})
    with_few = count_queries(page, path(dataset, suffix))
    for _ in range(3):
        create_examples(
            dataset=dataset, examples=[new_example({"q": f"a {number}"}) for number in range(5)]
        )

    assert count_queries(page, path(dataset, suffix)) == with_few


def test_dataset_is_created(page, workspace):
    url = f"/o/{workspace.pk}/datasets/new"
    make_dataset(workspace, name="taken")

    refused = page.post(url, {"name": "taken", "data_type": "kv"})
    created = page.post(url, {"name": "new", "description": "d", "data_type": "chat"})

    assert refused.status_code == 422
    assert "already exists" in text_of(refused)
    dataset = Dataset.objects.for_workspace(workspace).get(name="new")
    assert created["Location"] == path(dataset)
    assert (dataset.description, dataset.data_type) == ("d", "chat")


# Examples


def test_examples_are_listed_filtered_and_paged(page, workspace, monkeypatch):
    monkeypatch.setattr("apps.datasets.pages.example_list.PAGE_SIZE", 2)
    dataset = make_dataset(workspace)
    assert "No examples yet" in text_of(page.get(path(dataset)))
    rows = [
        new_example({"q": "red"}, outputs={"a": "1"}, metadata={"level": 1}, split="train"),
        new_example({"q": "green", "lang": "en"}, metadata={"level": 2}),
        new_example({"q": "blue"}, metadata={"topic": "sky"}, split="test"),
    ]
    create_examples(dataset=dataset, examples=rows)

    first = page.get(path(dataset)).content.decode()
    next_url = re.search(r'href="(\?after=[^"]+)"', first)[1]
    second = text_of(page.get(path(dataset, next_url)))

    assert first.index("red") < first.index("q: green · lang: en")
    assert "blue" not in first
    assert "blue" in second
    assert "red" not in second
    for query, match in (
        ("q=GREEN", "green"),
        ("split=test", "blue"),
        ("metadata=level=1", "red"),
        ('metadata={"topic":"sky"}', "blue"),
    ):
        text = text_of(page.get(path(dataset, f"?{query}")))
        assert match in text, query
        assert not {"red", "green", "blue"} - {match} & set(text.split()), query
    assert "No matching example" in text_of(page.get(path(dataset, "?q=violet")))
    problem = page.get(path(dataset, "?metadata={"))
    assert problem.status_code == 422
    assert "Not valid JSON" in text_of(problem)
    assert page.get(path(dataset, "?after=x")).status_code == 400


def test_version_shows_the_examples_of_its_time(page, workspace):
    dataset = make_dataset(workspace, {"q": "old"})
    first_version = dataset.latest_version_at
    create_examples(dataset=dataset, examples=[new_example({"q": "young"})])
    DatasetTag(workspace=workspace, dataset=dataset, name="v1", as_of=first_version).save()

    text = text_of(page.get(path(dataset, "?as_of=v1")))

    assert "Show the latest" in text
    assert "old" in text
    assert "young" not in text
    assert "young" in text_of(page.get(path(dataset)))
    assert page.get(path(dataset, "?as_of=unknown")).status_code == 404


def test_example_is_shown_with_source_run_files_and_history(page, workspace, project):
    dataset = make_dataset(workspace)
    run = wire_run(name="planner")
    ingest(workspace, run)
    example = new_example({"messages": [{"role": "user", "content": "Hi"}]}, split="train")
    example.wire.source_run_id = UUID(run["id"])
    create_examples(dataset=dataset, examples=[example])
    revision = current(dataset).get()
    url = path(dataset, f"/e/{revision.example_id}")
    file = SimpleUploadedFile("note.txt", b"hello", "text/plain")

    page.post(f"{url}/edit", form_of(revision) | {"files": file})

    shown = page.get(url).content.decode()
    assert f"/o/{workspace.pk}/r/{run['id']}" in shown
    assert "note.txt" in shown
    assert "Versions of this example" in shown
    served = page.get(f"{url}/files/0")
    assert b"".join(served.streaming_content) == b"hello"
    assert page.get(f"{url}/files/1").status_code == 404
    assert page.get(f"{url}/inputs.json").json() == revision.inputs
    assert page.get(f"{url}/extra.json").status_code == 404
    preview = page.get(f"{url}?part=preview", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in preview
    assert 'id="example"' in preview


def test_example_is_added_and_edited_with_schema_errors_by_field(page, workspace):
    dataset = make_dataset(workspace, inputs_schema=SCHEMA)
    url = path(dataset, "/new-example")

    malformed = page.post(url, {"inputs": '{"n": 1', "splits": ""})
    violating = page.post(url, {"inputs": '{"n": "one"}', "splits": ""})
    added = page.post(url, {"inputs": '{"n": 1}', "outputs": '{"m": 2}', "splits": "a, b"})

    assert (malformed.status_code, violating.status_code) == (422, 422)
    assert "not valid JSON" in text_of(malformed)
    assert re.search(r"n : &#x27;one&#x27; is not of type", text_of(violating))
    assert added["Location"] == path(dataset)
    revision = current(dataset).get()
    assert (revision.inputs, revision.outputs, revision.splits) == ({"n": 1}, {"m": 2}, ["a", "b"])
    edit = path(dataset, f"/e/{revision.example_id}/edit")
    refused = page.post(edit, form_of(revision, inputs="{}"), headers={"HX-Request": "true"})
    assert refused.status_code == 422
    assert "is a required property" in text_of(refused)
    emptied = page.post(edit, form_of(revision, outputs=""))
    assert "keeps its outputs" in text_of(emptied)
    saved = page.post(edit, form_of(revision, inputs='{"n": 5}', metadata='{"k": "v"}'))
    assert saved["Location"] == path(dataset, f"/e/{revision.example_id}")
    changed = current(dataset).get()
    assert changed.inputs == {"n": 5}
    assert changed.metadata == {"k": "v", "dataset_split": ["a", "b"]}


def test_editor_refuses_to_overwrite_another_change(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"})
    revision = current(dataset).get()
    edit = path(dataset, f"/e/{revision.example_id}/edit")
    page.post(edit, form_of(revision, inputs='{"q": "theirs"}'))

    stale = page.post(edit, form_of(revision, inputs='{"q": "mine"}'))

    assert stale.status_code == 422
    assert "has changed since the editor" in text_of(stale)
    assert current(dataset).get().inputs == {"q": "theirs"}


def test_saved_example_replaces_its_row_in_the_list(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"})
    revision = current(dataset).get()

    response = page.post(
        path(dataset, f"/e/{revision.example_id}/edit"),
        form_of(revision, inputs='{"q": "changed"}'),
        headers={"HX-Request": "true"},
    )

    content = response.content.decode()
    assert f'<tr data-row id="example-{revision.example_id}" hx-swap-oob="true">' in content
    assert content.count("changed") >= 2


def test_selected_examples_move_between_splits_and_are_deleted_with_undo(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"}, {"q": "b"}, {"q": "c"})
    ids = [str(item) for item in current(dataset).values_list("example_id", flat=True)]
    url = path(dataset, "/selected")

    def splits():
        return [row.splits for row in sorted(current(dataset), key=lambda r: r.inputs["q"])]

    page.post(url, {"action": "move", "split": "train", "example": ids[:2]})
    assert splits() == [["train"], ["train"], ["base"]]
    page.post(url, {"action": "add", "split": "hard", "example": ids[:1]})
    page.post(url, {"action": "remove", "split": "train", "example": ids[1:2]})
    assert splits() == [["train", "hard"], ["base"], ["base"]]
    nameless = page.post(url, {"action": "move", "split": "", "example": ids}, follow=True)
    assert "must have 1 to" in text_of(nameless)
    assert "No examples are selected" in text_of(page.post(url, {"action": "delete"}, follow=True))

    deleted = page.post(url, {"action": "delete", "example": ids[:2]})

    assert current(dataset).count() == 1
    shown = page.get(deleted["Location"]).content.decode()
    removed_at = re.search(r'name="removed_at" value="([^"]+)"', shown)[1]
    for _ in range(2):  # repeating has no effect
        page.post(path(dataset, "/restored-examples"), {"removed_at": removed_at})
    assert {str(row.example_id) for row in current(dataset)} == set(ids)
    assert splits() == [["train", "hard"], ["base"], ["base"]]
    dataset.refresh_from_db()
    assert dataset.example_count == 3
    assert page.post(path(dataset, "/restored-examples"), {"removed_at": "x"}).status_code == 400


def test_split_names_are_options(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"})

    assert '<option value="base">' in page.get(path(dataset, "/split-names")).content.decode()


# Versions


def test_versions_count_their_changes(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"}, {"q": "b"})
    first = current(dataset).first()
    page.post(path(dataset, f"/e/{first.example_id}/edit"), form_of(first, inputs='{"q": "A"}'))
    page.post(path(dataset, f"/e/{first.example_id}/delete"))

    text = text_of(page.get(path(dataset, "/versions")))

    counts = re.findall(r"(\+\d+|0) (\d+) (\S?\d+) Diff", text)
    assert [
        (added, modified, removed.strip("\N{MINUS SIGN}")) for added, modified, removed in counts
    ] == [("0", "0", "1"), ("0", "1", "0"), ("+2", "0", "0")]


def test_versions_of_the_same_second_are_told_apart(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"})
    first = current(dataset).first()
    page.post(path(dataset, f"/e/{first.example_id}/edit"), form_of(first, inputs='{"q": "A"}'))
    versions = DatasetVersion.objects.for_workspace(workspace).filter(dataset=dataset)
    times = [format_exact_time(version.as_of) for version in versions]

    history = text_of(page.get(path(dataset, "/versions")))
    choices = text_of(page.get(path(dataset, "/versions/diff")))

    assert len(set(times)) == len(times) > 1
    assert all(time in history and time in choices for time in times)


def test_difference_shows_added_modified_and_removed_examples(page, workspace):
    dataset = make_dataset(workspace, {"q": "kept"}, {"q": "gone"})
    older = dataset.latest_version_at.isoformat()
    kept, gone = current(dataset)
    page.post(path(dataset, f"/e/{kept.example_id}/edit"), form_of(kept, inputs='{"q": "new"}'))
    page.post(path(dataset, f"/e/{gone.example_id}/delete"))
    create_examples(dataset=dataset, examples=[new_example({"q": "extra"})])
    older_query = older.replace("+", "%2B")

    text = text_of(page.get(path(dataset, f"/versions/diff?older={older_query}&newer=latest")))
    backwards = text_of(page.get(path(dataset, f"/versions/diff?newer={older_query}&older=latest")))
    last = text_of(page.get(path(dataset, "/versions/diff")))

    assert "1 added 1 modified 1 removed" in text
    assert re.search(r"removed: .*kept", text)
    assert re.search(r"added: .*new", text)
    assert "extra" in text
    assert "gone" in text
    assert "1 added 1 modified 1 removed" in backwards
    assert "1 added 0 modified 0 removed" in last
    assert page.get(path(dataset, "/versions/diff?older=unknown")).status_code == 404


def test_tag_is_created_moved_and_removed(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"})
    first = dataset.latest_version_at.isoformat()
    create_examples(dataset=dataset, examples=[new_example({"q": "b"})])
    dataset.refresh_from_db()
    url = path(dataset, "/versions/tags")

    def tag(**fields):
        return text_of(page.post(url, fields, follow=True))

    assert "prod is now the version of" in tag(tag="prod", as_of=first)
    tag(tag="prod", as_of=dataset.latest_version_at.isoformat())
    assert DatasetTag.objects.for_workspace(workspace).get().as_of == dataset.latest_version_at
    assert "is not the exact time" in tag(tag="prod", as_of="2020-01-01T00:00:00+00:00")
    assert "not be `latest`" in tag(tag="latest", as_of=first).replace("&#x60;", "`")
    assert "is not a valid timestamp" in tag(tag="prod", as_of="soon")
    assert "was removed" in tag(tag="prod", as_of=first, delete="1")
    assert not DatasetTag.objects.for_workspace(workspace).exists()
    assert Entry.objects.filter(action="dataset.tagged").count() == 3


# Settings, deletion, links, export and search


def test_settings_change_names_and_schemas(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"})
    body = {"name": "renamed", "description": "", "inputs_schema": json.dumps(SCHEMA)}

    refused = page.post(path(dataset, "/settings"), body | {"outputs_schema": '{"type": 3}'})
    saved = page.post(path(dataset, "/settings"), body)

    assert refused.status_code == 422
    assert "is not a valid JSON Schema" in text_of(refused)
    assert saved.status_code == 302
    dataset.refresh_from_db()
    assert (dataset.name, dataset.description, dataset.inputs_schema) == ("renamed", None, SCHEMA)


def test_deleted_dataset_is_restored(page, workspace):
    dataset = make_dataset(workspace, {"q": "a"}, name="precious")
    mistyped = page.post(path(dataset, "/delete"), {"name": "other"}, follow=True)
    assert "The name does not match" in text_of(mistyped)

    deleted = page.post(path(dataset, "/delete"), {"name": "precious"})

    assert "precious was deleted" in text_of(page.get(deleted["Location"]))
    assert "precious" in text_of(page.get(f"/o/{workspace.pk}/datasets/deleted"))
    assert page.get(path(dataset)).status_code == 404
    make_dataset(workspace, name="precious")
    blocked = page.post(path(dataset, "/undelete"), follow=True)
    assert "already exists" in text_of(blocked)
    delete_dataset(dataset=Dataset.objects.for_workspace(workspace).present().get())
    assert page.post(path(dataset, "/undelete"))["Location"] == path(dataset)
    assert page.get(path(dataset)).status_code == 200


def test_public_link_opens_the_examples_without_sources(page, workspace):
    dataset = make_dataset(workspace, {"q": "shared"})
    example = current(dataset).get()

    dialog = page.post(path(dataset, "/link"), headers={"HX-Request": "true"}).content.decode()
    public_url = re.search(r"/public/[0-9a-f-]+/d", dialog)[0]
    listed = Client().get(public_url)
    shown = Client().get(f"{public_url}/{example.example_id}")

    assert "shared" in text_of(listed)
    assert listed["X-Robots-Tag"] == "noindex, nofollow"
    assert "shared" in shown.content.decode()
    assert str(workspace.pk) not in shown.content.decode() + listed.content.decode()
    page.post(path(dataset, "/link"), {"action": "revoke"})
    assert Client().get(public_url).status_code == 404
    assert Client().get(f"{public_url}/{example.example_id}").status_code == 404


def test_public_page_does_not_open_examples_of_other_datasets(workspace):
    shared = make_dataset(workspace, {"q": "a"}, name="shared")
    other = make_dataset(workspace, {"q": "b"}, name="other")
    share = share_dataset(dataset=shared)

    response = Client().get(f"/public/{share.token}/d/{current(other).get().example_id}")

    assert response.status_code == 404


@pytest.mark.parametrize("export_format", ["csv", "jsonl", "openai_ft", "openai"])
def test_dataset_is_exported(page, workspace, export_format):
    dataset = make_dataset(workspace, {"q": "exported"})

    response = page.get(path(dataset, f"/export/{export_format}"))

    assert b"exported" in b"".join(response.streaming_content)
    assert "attachment" in response["Content-Disposition"]
    assert page.get(path(dataset, "/export/xml")).status_code == 404


def test_few_shot_index_is_created_searched_and_removed(page, workspace):
    dataset = make_dataset(workspace, {"q": "reset my password"}, {"q": "refund an order"})
    url = path(dataset, "/similar")
    assert "Create the index" in text_of(page.get(url))

    page.post(f"{url}/index", {"tag": "latest"})

    text = text_of(page.get(f"{url}?q=password forgotten"))
    assert text.index("reset my password") < text.index("refund an order")
    unknown = page.post(f"{url}/index", {"tag": "unknown"}, follow=True)
    assert "neither a time nor a tag" in text_of(unknown)
    create_examples(dataset=dataset, examples=[new_example({"q": "late"})])
    assert "Update now" in text_of(page.get(url))
    page.post(f"{url}/index", {"delete": "1"})
    assert "Create the index" in text_of(page.get(url))


# Access


def test_reader_sees_no_actions_and_cannot_change(reader, workspace):
    dataset = make_dataset(workspace, {"q": "a"})
    example_id = current(dataset).get().example_id

    shown = reader.get(path(dataset)).content.decode()

    assert "Add example" not in shown
    assert "data-select-all" not in shown
    for suffix in (
        *("/settings", "/delete", "/undelete", "/selected", "/restored-examples", "/new-example"),
        *("/import", "/link", "/versions/tags", "/similar/index"),
        *(f"/e/{example_id}/edit", f"/e/{example_id}/delete"),
    ):
        assert reader.post(path(dataset, suffix), {}).status_code == 403, suffix
    for name in ("new", "import", "add"):
        assert reader.post(f"/o/{workspace.pk}/datasets/{name}", {}).status_code == 403, name
    assert current(dataset).count() == 1


def test_hostile_texts_are_escaped(page, workspace):
    attack = "<script>alert(1)</script>"
    dataset = make_dataset(workspace, name=attack, description=attack)
    create_examples(
        dataset=dataset,
        examples=[new_example({attack: attack}, metadata={attack: attack}, split=attack)],
    )
    example_id = current(dataset).get().example_id

    for suffix in ("", "/versions", "/versions/diff", "/settings", "/similar", "/split-names",
                   f"/e/{example_id}", f"/e/{example_id}/edit", "?as_of=latest"):  # fmt: skip
        assert attack not in page.get(path(dataset, suffix)).content.decode(), suffix
    assert attack not in page.get(f"/o/{workspace.pk}/datasets").content.decode()
