"""Runs added to a dataset: one run, a selection, and the turns of a thread."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import UUID, uuid4

from apps.datasets.models import Dataset, DatasetVersion
from tests.datasets.page_helpers import SCHEMA, current, path, text_of
from tests.factories.datasets import make_dataset
from tests.factories.tracing import ingest, read_run, wire_run


def now():
    return datetime.now(UTC).isoformat()


def test_run_is_added_to_a_dataset_without_its_outputs(page, workspace):
    run = wire_run(
        name="planner",
        inputs={"q": "hard"},
        outputs={"a": "wrong"},
        error="failed",
        start_time=now(),
    )
    ingest(workspace, run)
    dataset = make_dataset(workspace, name="failures")
    url = f"/o/{workspace.pk}/datasets/add"
    dialog = page.get(f"{url}?run={run['id']}", headers={"HX-Request": "true"})
    assert "planner becomes an example" in text_of(dialog)
    assert "failures" in text_of(dialog)
    fields = {"run": run["id"], "dataset": str(dataset.pk), "split": "hard", "add": "1"}

    added = page.post(url, fields, headers={"HX-Request": "true"})

    assert "1 example with a link to the source run" in text_of(added)
    row = current(dataset).get()
    assert (row.inputs, row.outputs, row.splits) == ({"q": "hard"}, None, ["hard"])
    assert row.source_run_id == UUID(run["id"])
    page.post(url, fields | {"with_outputs": "on"})
    assert current(dataset).first().outputs == {"a": "wrong"}


def test_selection_becomes_a_new_dataset(page, workspace):
    runs = [wire_run(inputs={"q": str(n)}, start_time=now()) for n in range(3)]
    ingest(workspace, *runs)
    ids = [run["id"] for run in runs]
    url = f"/o/{workspace.pk}/datasets/add"

    chosen = page.post(url, {"run": ids})  # the button of the run list
    nameless = page.post(url, {"run": ids, "dataset": "new", "add": "1"})
    added = page.post(url, {"run": ids, "dataset": "new", "name": "fresh", "add": "1"})

    assert "3 runs become examples" in text_of(chosen)
    assert nameless.status_code == 422
    assert "name a new one" in text_of(nameless)
    dataset = Dataset.objects.for_workspace(workspace).get()
    assert added["Location"] == path(dataset)
    assert [row.inputs["q"] for row in current(dataset)] == ["0", "1", "2"]
    assert DatasetVersion.objects.for_workspace(workspace).count() == 2


def test_turns_of_a_thread_become_examples(page, workspace):
    turns = [
        wire_run(
            inputs={"q": text},
            start=datetime(2026, 5, 1, 12, minute, tzinfo=UTC),
            extra={"metadata": {"thread_id": "t-1"}},
        )
        for minute, text in enumerate(("first", "second"))
    ]
    ingest(workspace, *turns)
    project_id = read_run(workspace, turns[0]["id"]).row.project_id
    dataset = make_dataset(workspace)
    url = f"/o/{workspace.pk}/datasets/add"

    dialog = page.get(f"{url}?project={project_id}&thread=t-1")
    ids = re.findall(r'name="run" value="([^"]+)"', dialog.content.decode())
    page.post(url, {"run": ids, "dataset": str(dataset.pk), "with_outputs": "on", "add": "1"})

    assert [row.inputs["q"] for row in current(dataset)] == ["first", "second"]
    assert page.get(f"{url}?project=x&thread=t-1").status_code == 404


def test_run_that_does_not_fit_the_schema_creates_no_dataset(page, workspace):
    run = wire_run(inputs={"q": "text"}, start_time=now())
    ingest(workspace, run)
    dataset = make_dataset(workspace, inputs_schema=SCHEMA)
    url = f"/o/{workspace.pk}/datasets/add"

    refused = page.post(url, {"run": run["id"], "dataset": str(dataset.pk), "add": "1"})
    unknown = page.post(url, {"run": str(uuid4()), "dataset": "new", "name": "x", "add": "1"})
    malformed = page.post(url, {"run": "x", "add": "1"})

    assert refused.status_code == 422
    assert "is a required property" in text_of(refused)
    assert unknown.status_code == 422
    assert "No runs are selected" in text_of(unknown)
    assert malformed.status_code == 400
    assert current(dataset).count() == 0
    assert Dataset.objects.for_workspace(workspace).count() == 1


def test_dataset_choices_are_searched(page, workspace):
    make_dataset(workspace, name="alpha")
    make_dataset(workspace, name="beta")

    choices = text_of(page.get(f"/o/{workspace.pk}/datasets/add?part=choices&q=alp"))

    assert "alpha" in choices
    assert "beta" not in choices
