"""A page of runs with large payloads: everything is sent, and little of it is in memory at once."""

from __future__ import annotations

import json
import tracemalloc
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from apps.core.json import LazyFragment, dumps, iterate_encoded
from apps.datasets.models import ExampleRevision
from apps.datasets.services import embedded_content
from apps.exports import runner
from apps.trace_store import ALL_PAYLOADS, Payload, RunQuery, filters, run_store
from apps.trace_store.postgres import payload_storage
from apps.trace_store.postgres.filtering import subjects
from apps.tracing.api.v2 import thread_messages
from apps.tracing.models import Project
from apps.tracing.services import ensure_project
from tests.factories.datasets import make_dataset
from tests.factories.exports import create_export_part
from tests.factories.tracing import ingest, wire_run
from tests.tracing.conftest import api, forget_known_partitions, make_api, objects

__all__ = ["api", "forget_known_partitions", "make_api", "objects"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("forget_known_partitions")]

COUNT = 12
TEXT_BYTES = 2_000_000


@pytest.fixture
def runs(workspace: Any) -> list[dict[str, Any]]:
    runs = [
        wire_run(
            id=str(UUID(int=number)),
            inputs={"text": f"{number}" * 3, "long": "x" * TEXT_BYTES},
            outputs={"number": number},
            extra={"metadata": {"thread_id": "one"}, "runtime": {"number": number}},
        )
        for number in range(1, COUNT + 1)
    ]
    ingest(workspace, *runs)
    return runs


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_storage, "MAX_LOADED_BYTES", 100_000)


def request_all(api: Any, project: UUID) -> dict[str, Any]:
    """Return the answers of the routes that return runs with their payloads."""
    requests: dict[str, dict[str, Any]] = {
        "/runs/query": {"session": [str(project)]},
        "/v2/runs/query": {
            "project_ids": [str(project)],
            "selects": ["ID", "INPUTS", "OUTPUTS", "EXTRA"],
        },
        "/v2/traces/query": {"project_id": str(project), "selects": ["INPUTS"]},
    }
    answers = {path: api.post(path, body) for path, body in requests.items()}
    query = {"project_id": project, "selects": "INPUTS"}
    answers["turns"] = api.get("/v2/threads/one/traces", **query)
    return answers


def test_the_page_is_the_same_with_little_memory(api, workspace, runs, monkeypatch):
    project = ensure_project(workspace.pk, "default").pk
    whole = {path: answer.json() for path, answer in request_all(api, project).items()}
    monkeypatch.setattr(payload_storage, "MAX_LOADED_BYTES", 100_000)

    answers = request_all(api, project)

    for path, answer in answers.items():
        assert answer.status_code == 200
        assert answer.streaming, path
        assert answer.headers["Content-Type"] == "application/json"
        assert json.loads(answer.getvalue()) == whole[path]
    assert len(whole["/runs/query"]["runs"]) == COUNT


@pytest.mark.parametrize("large_payload_bytes", [4_096, 1_000_000_000])
def test_little_of_a_page_is_in_memory_at_once(
    workspace, runs, little_memory, settings, large_payload_bytes
):
    settings.LARGE_PAYLOAD_BYTES = large_payload_bytes
    page = run_store.query(workspace.pk, RunQuery(), limit=COUNT, payloads=ALL_PAYLOADS)

    tracemalloc.start()
    sizes = [
        sum(map(len, iterate_encoded([run.embedded(payload) for payload in sorted(run.payloads)])))
        for run in page.runs
    ]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert sum(sizes) > COUNT * TEXT_BYTES
    assert peak < 4 * TEXT_BYTES


def test_payloads_that_are_still_in_their_rows_are_loaded(workspace, runs, monkeypatch, settings):
    settings.LARGE_PAYLOAD_BYTES = 1_000_000_000
    expected = run_store.query(workspace.pk, RunQuery(), limit=COUNT, payloads=ALL_PAYLOADS)
    monkeypatch.setattr(payload_storage, "MAX_LOADED_BYTES", 10)

    page = run_store.query(workspace.pk, RunQuery(), limit=COUNT, payloads=ALL_PAYLOADS)

    stored = [run.payloads[Payload.INPUTS] for run in page.runs]
    assert all(isinstance(value, LazyFragment) for value in stored)
    assert not any(value.stored for value in stored)
    for run, whole in zip(page.runs, expected.runs, strict=True):
        assert run.payloads.keys() == whole.payloads.keys()
        for payload in run.payloads:
            assert run.value(payload) == whole.value(payload)


def test_a_filter_over_large_payloads_finds_the_same_runs(workspace, runs, little_memory):
    where = filters.parse("search('777')")
    page = run_store.query(workspace.pk, RunQuery(where=where), limit=COUNT)
    rows = run_store.query(workspace.pk, RunQuery(), limit=COUNT)

    assert [run.row.id for run in page.runs] == [UUID(int=7)]
    loaded = subjects.load_subjects(workspace.pk, [run.row for run in rows.runs])
    assert sum(isinstance(subject.inputs, LazyFragment) for subject in loaded) == COUNT - 1


def test_a_file_of_an_export_ends_at_its_size(workspace, runs, monkeypatch):
    project = ensure_project(workspace.pk, "default")
    part = create_export_part(project, "sentinel")
    part.export.filter = ""
    part.start_time = timezone.now() - timedelta(hours=1)
    part.end_time = timezone.now()
    monkeypatch.setattr(runner, "MAX_FILE_BYTES", 5 * TEXT_BYTES)

    first, cursor = runner._next_runs(part.export, part, ["id", "inputs"])

    assert 5 <= len(first) <= 6
    assert cursor


def test_values_with_lazy_fragments_are_encoded_in_pieces():
    class Word(LazyFragment):
        def load(self) -> bytes:
            return b'"word"'

    value = {"a": [1, Word(), {"b": Word()}], 2: (), "c": {"d": None}}

    assert b"".join(iterate_encoded(value)) == dumps(value)
    assert json.loads(dumps(value)) == {
        "a": [1, "word", {"b": "word"}], "2": [], "c": {"d": None},
    }  # fmt: skip


@pytest.mark.parametrize("route", ["examples", "results"])
def test_large_examples_are_loaded_while_the_page_is_sent(api, workspace, monkeypatch, route):
    dataset = make_dataset(
        workspace,
        *({"text": "y" * TEXT_BYTES, "n": n} for n in range(COUNT)),
        {"n": COUNT},
    )
    rows = ExampleRevision.objects.for_workspace(workspace).filter(dataset=dataset)
    rows.filter(inputs__isnull=False, position=1).update(outputs={"a": 1e16, "b": "\0"})
    ids = list(rows.values_list("example_id", flat=True))
    ingest(
        workspace,
        *(
            wire_run(session_name="experiment", reference_example_id=str(example_id))
            for example_id in ids
        ),
    )
    project = ensure_project(workspace.pk, "experiment")
    Project.objects.for_workspace(workspace).filter(pk=project.pk).update(
        reference_dataset_id=dataset.pk
    )

    def read() -> Any:
        if route == "examples":
            return api.get("/examples", dataset=str(dataset.pk))
        return api.post(f"/datasets/{dataset.pk}/runs", {"session_ids": [str(project.pk)]})

    whole = read()
    monkeypatch.setattr(embedded_content, "MAX_LOADED_BYTES", 1)
    streamed = read()

    assert (whole.status_code, whole.streaming, streamed.streaming) == (200, False, True)
    examples = json.loads(streamed.getvalue())
    assert examples == whole.json()
    assert len(examples) == COUNT + 1
    assert {"a": 1e16, "b": "\0"} in [example["outputs"] for example in examples]


def test_a_trace_of_large_runs_is_loaded_while_it_is_sent(api, workspace, monkeypatch):
    root = wire_run(inputs={"long": "x" * 50_000})
    children = [wire_run(root, inputs={"long": "y" * 50_000}) for _ in range(5)]
    ingest(workspace, root, *children)
    path = f"/v2/traces/{root['id']}/runs"
    query = {"project_id": ensure_project(workspace.pk, "default").pk, "selects": "INPUTS"}
    whole = api.get(path, **query)
    monkeypatch.setattr(payload_storage, "MAX_LOADED_BYTES", 60_000)

    answer = api.get(path, **query)

    assert (whole.streaming, answer.streaming) == (False, True)
    assert json.loads(answer.getvalue()) == whole.json()
    assert len(whole.json()["items"]) == 6


def test_messages_of_large_turns_are_on_several_pages(api, workspace, runs, monkeypatch):
    monkeypatch.setattr(thread_messages, "MAX_PAGE_BYTES", 3 * TEXT_BYTES)
    project = ensure_project(workspace.pk, "default").pk

    def read(cursor: str | None) -> tuple[list[str], dict[str, Any]]:
        query = {"project_id": project, "limit": COUNT} | ({"cursor": cursor} if cursor else {})
        headers = {"Accept": "application/json"}
        page = api.client.get("/v2/threads/one/messages", query, headers=headers).json()
        turns = [item["turnBoundary"] for item in page["items"] if "turnBoundary" in item]
        return [turn["trace_id"] for turn in turns], page

    turns, page = read(None)
    assert len(turns) == 3
    second, page_of_second = read(page["next_cursor"])
    assert read(page_of_second["prev_cursor"])[0] == turns
    turns += second
    while (cursor := page_of_second["next_cursor"]) is not None:
        more, page_of_second = read(cursor)
        turns += more
    assert sorted(turns) == sorted(run["id"] for run in runs)
    assert len(set(turns)) == COUNT
