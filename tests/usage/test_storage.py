"""Limits in bytes of what a workspace stores: examples, feedback, threads and store items."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from apps.agent_server.models import CheckpointBlob, StoreItem, Thread
from apps.agent_server.services import cancel_runs
from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services.examples import delete_from_dataset
from apps.deployments.models import Deployment
from apps.feedback.models import Feedback
from apps.organizations.models import Workspace
from apps.usage import storage, tasks
from apps.usage.models import StorageKind, StoredBytes
from tests.datasets.test_multipart import file_part
from tests.datasets.test_multipart import send as send_examples
from tests.datasets.test_multipart import url as examples_url
from tests.factories.agent_server import (
    AgentFactory,
    AgentRunFactory,
    StoreItemFactory,
    ThreadFactory,
)
from tests.factories.api_keys import key_for
from tests.factories.datasets import make_dataset
from tests.factories.organizations import WorkspaceFactory
from tests.tracing.conftest import api, make_api, objects, page

__all__ = ["api", "make_api", "objects", "page"]

pytestmark = pytest.mark.django_db

LARGE = 100_000
SETTINGS = {
    StorageKind.DATASETS: "MAX_DATASET_STORAGE_BYTES",
    StorageKind.FEEDBACK: "MAX_FEEDBACK_STORAGE_BYTES",
    StorageKind.THREADS: "MAX_THREAD_STORAGE_BYTES",
    StorageKind.STORE: "MAX_STORE_STORAGE_BYTES",
}


@pytest.fixture(autouse=True)
def _clear_cache() -> Iterator[None]:
    storage.clear_cache()
    yield
    storage.clear_cache()


@pytest.fixture
def agent(workspace: Workspace) -> Deployment:
    return AgentFactory(workspace=workspace)


@pytest.fixture
def dataset(workspace: Workspace) -> Dataset:
    return make_dataset(workspace)


@pytest.fixture
def fill(settings: Any, workspace: Workspace) -> Callable[[StorageKind], None]:
    """Return a function that makes the workspace reach the limit of one kind."""

    def fill(kind: StorageKind) -> None:
        setattr(settings, SETTINGS[kind], 2 * 1_048_576)
        measured_at = "2026-01-01T00:00:00Z"
        StoredBytes(
            workspace=workspace, kind=kind, size=2 * 1_048_576, measured_at=measured_at
        ).save()
        storage.clear_cache()

    return fill


@pytest.fixture
def call_agent(agent: Deployment) -> Callable[..., Any]:
    """Return a function that sends a JSON request to the agent."""
    client = Client(headers={"X-Api-Key": key_for(agent.workspace, "write")})

    def call(method: str, path: str, body: Any = None) -> Any:
        return client.generic(
            method, f"/agents/{agent.slug}{path}", json.dumps(body), "application/json"
        )

    return call


def random_text(size: int = LARGE) -> str:
    """A text that no compression makes much smaller."""
    return secrets.token_urlsafe(size * 3 // 4)


def used(workspace: Workspace) -> dict[StorageKind, int]:
    return {stored.kind: stored.used for stored in storage.list_storage(workspace.pk)}


def is_large(size: int, times: int = 1) -> bool:
    return 0.8 * times * LARGE < size < 1.2 * times * LARGE


def assert_full(response: Any) -> None:
    assert (response.status_code, response.json()["code"]) == (422, "storage_full")
    assert "the maximum of 2 MB" in response.json()["detail"]


def test_each_kind_is_measured_for_its_workspace_only(workspace, agent):
    other = AgentFactory(workspace=WorkspaceFactory())
    make_dataset(workspace, {"text": random_text()})
    Feedback(workspace=workspace, key="k", run_id=uuid4(), comment=random_text()).save()
    thread = ThreadFactory(deployment=agent)
    CheckpointBlob.objects.create(
        thread=thread, namespace="", channel="c", version="1", kind="json", blob=bytes(range(256))
    )
    AgentRunFactory(thread=thread, kwargs={"input": random_text()})
    StoreItemFactory(deployment=agent, value={"text": random_text()})
    StoreItemFactory(deployment=other, value={"text": "small"})

    tasks.measure_storage()

    sizes = used(workspace)
    assert all(is_large(sizes[kind]) for kind in StorageKind), sizes
    others = used(other.workspace)
    assert 0 < others.pop(StorageKind.STORE) < 1000
    assert set(others.values()) == {0}


def test_deleted_rows_no_longer_count(workspace, agent):
    item = StoreItemFactory(deployment=agent, value={"text": random_text()})
    tasks.measure_storage()
    assert is_large(used(workspace)[StorageKind.STORE])

    StoreItem.objects.for_workspace(workspace).filter(pk=item.pk).delete()
    tasks.measure_storage()

    assert used(workspace)[StorageKind.STORE] == 0


def test_large_tables_are_estimated_from_a_sample(workspace, agent, monkeypatch):
    """A third of the blocks is read; the estimate is of all rows."""
    for number in range(300):
        StoreItemFactory(deployment=agent, key=str(number), value={"text": random_text(1500)})
    storage_table = storage._tables[StorageKind.STORE][0]
    exact = storage_table.measure()[workspace.pk]
    monkeypatch.setattr(storage, "SAMPLE_BYTES", 200_000)

    estimates = [storage_table.measure()[workspace.pk] for _ in range(10)]

    assert len(set(estimates)) > 1
    assert abs(sum(estimates) / 10 - exact) < 0.35 * exact


def test_values_outside_of_the_row_are_not_read(workspace, agent, django_assert_num_queries):
    """The size of such a value is in the row."""
    StoreItemFactory(deployment=agent, value={"text": random_text()})

    with django_assert_num_queries(2) as queries:
        storage._tables[StorageKind.STORE][0].measure()

    assert "pg_column_size(r.value)" in queries.captured_queries[1]["sql"]


@pytest.mark.usefixtures("objects")
def test_all_versions_and_each_attachment_count_once(api, workspace, dataset):
    example_id = str(uuid4())
    content = secrets.token_bytes(LARGE)
    created = send_examples(
        api, "POST", examples_url(dataset),
        (example_id, {}), (f"{example_id}.inputs", {"a": 1}),
        file_part(example_id, "file", content),
    )  # fmt: skip
    changed = send_examples(
        api, "PATCH", examples_url(dataset),
        (example_id, {}), (f"{example_id}.inputs", {"a": random_text()}),
    )  # fmt: skip
    added = send_examples(
        api, "PATCH", examples_url(dataset),
        (example_id, {}),
        (f"{example_id}.attachments_operations", {"retain": ["file"]}),
        file_part(example_id, "other", secrets.token_bytes(LARGE)),
    )  # fmt: skip
    delete_from_dataset(dataset=dataset, example_ids=[UUID(example_id)])
    tasks.measure_storage()

    assert [response.status_code for response in (created, changed, added)] == [201, 201, 201]
    revisions = ExampleRevision.objects.for_workspace(workspace).order_by("valid_from")
    assert list(revisions.values_list("attachment_bytes", flat=True)) == [LARGE, 0, LARGE]
    # Two files, and the inputs of two revisions.
    assert is_large(used(workspace)[StorageKind.DATASETS], 4)


@pytest.mark.usefixtures("objects")
def test_examples_beyond_the_limit_are_refused(api, workspace, dataset, fill, tmp_path):
    first = api.post("/examples", {"dataset_id": str(dataset.pk), "inputs": {"a": 1}})
    example_id, file_id = first.json()["id"], str(uuid4())
    fill(StorageKind.DATASETS)

    with_file = send_examples(
        api, "POST", examples_url(dataset),
        (file_id, {}), (f"{file_id}.inputs", {}), file_part(file_id, "file", b"content"),
    )  # fmt: skip

    assert_full(with_file)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert_full(api.post("/examples", {"dataset_id": str(dataset.pk), "inputs": {"a": 2}}))
    assert_full(api.patch(f"/examples/{example_id}", {"inputs": {"a": 2}}))
    assert api.delete(f"/examples/{example_id}").status_code == 200
    assert make_dataset(WorkspaceFactory(), {"a": 1}).example_count == 1


def test_feedback_beyond_the_limit_is_refused(api, workspace, fill):
    body = {"key": "k", "run_id": str(uuid4()), "comment": "c", "score": 1}
    feedback_id = api.post("/feedback", body).json()["id"]
    fill(StorageKind.FEEDBACK)

    assert_full(api.post("/feedback", body))
    assert_full(api.patch(f"/feedback/{feedback_id}", {"comment": "longer"}))
    assert api.patch(f"/feedback/{feedback_id}", {"score": 0}).status_code == 200
    assert Feedback.objects.for_workspace(workspace).count() == 1
    assert api.delete(f"/feedback/{feedback_id}").status_code == 204


def test_threads_and_runs_beyond_the_limit_are_refused(workspace, call_agent, fill):
    thread_id = call_agent("POST", "/threads", {}).json()["thread_id"]
    fill(StorageKind.THREADS)
    run = {"assistant_id": "agent"}

    assert_full(call_agent("POST", "/threads", {}))
    assert_full(call_agent("PATCH", f"/threads/{thread_id}", {"metadata": {"a": 1}}))
    assert_full(call_agent("POST", f"/threads/{thread_id}/copy"))
    assert_full(call_agent("POST", f"/threads/{thread_id}/runs", run))
    assert_full(call_agent("POST", "/runs", run))
    assert_full(call_agent("POST", "/runs/batch", [run]))
    assert Thread.objects.for_workspace(workspace).count() == 1
    assert call_agent("DELETE", f"/threads/{thread_id}").status_code == 204


def test_open_runs_are_cancelled_a_tenth_above_the_limit(workspace, agent, fill):
    pending = AgentRunFactory(thread__deployment=agent, status="pending")
    running = AgentRunFactory(thread__deployment=agent, status="running")
    others = AgentRunFactory(status="running")
    fill(StorageKind.THREADS)
    assert cancel_runs.cancel_beyond_storage() == 0

    StoredBytes.objects.for_workspace(workspace).update(size=3 * 1_048_576)
    assert cancel_runs.cancel_beyond_storage() == 2

    for run in (pending, running, others):
        run.refresh_from_db()
    assert pending.status == "interrupted"
    assert (running.status, running.cancel_action) == ("running", "interrupt")
    assert others.cancel_action == ""


def test_states_beyond_the_limit_are_refused(workspace, agent, call_agent, fill):
    thread = ThreadFactory(deployment=agent, metadata={"graph_id": "agent"})
    AgentRunFactory(thread=thread, status="success")
    fill(StorageKind.THREADS)

    assert_full(call_agent("POST", f"/threads/{thread.thread_id}/state", {"values": {"a": 1}}))


def test_store_items_beyond_the_limit_are_refused(workspace, call_agent, fill):
    item = {"namespace": ["n"], "key": "k", "value": {"a": 1}}
    assert call_agent("PUT", "/store/items", item).status_code == 204
    fill(StorageKind.STORE)

    assert_full(call_agent("PUT", "/store/items", item | {"value": {"a": 2}}))
    assert call_agent("DELETE", "/store/items", {"namespace": ["n"], "key": "k"}).status_code == 204
    assert not StoreItem.objects.for_workspace(workspace).exists()


def test_the_usage_page_shows_each_kind_with_its_limit(page, workspace, fill):
    fill(StorageKind.FEEDBACK)

    html = page.get(f"/o/{workspace.pk}/settings/usage").content.decode()

    assert html.count('aria-label="Feedback: 100%"') == 1
    assert html.count('aria-label="Store items: 0%"') == 1
    assert "Threads with runs and checkpoints" in html
    assert "Examples with attachments" in html
