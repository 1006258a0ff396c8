"""The thread of a worker process that makes the calls of experiments."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from apps.experiment_jobs.models import ExperimentJob
from apps.experiment_jobs.services import execution
from apps.playground import call_worker
from apps.playground.call_worker import CallWorker
from apps.playground.models import ModelCall
from tests.factories.datasets import make_dataset
from tests.installation import wait_until
from tests.playground.conftest import send, setting
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("keys")]


@pytest.fixture
def shared_connection() -> None:
    """The worker's thread has a connection of its own."""


@pytest.fixture
def worker() -> Iterator[CallWorker]:
    worker = CallWorker()
    yield worker
    worker.stop()


@pytest.fixture
def job(page, workspace, base) -> ExperimentJob:
    dataset = make_dataset(workspace, *({"question": f"Question {n}"} for n in range(8)))
    body = {
        "dataset_id": str(dataset.pk),
        "columns": [{"letter": "A", "setting": setting()}],
        "concurrency": 4,
    }
    created = send(page, f"{base}/experiments", body).json()["jobs"][0]
    return ExperimentJob.unscoped.select_related("workspace").get(pk=created["id"])


def advance(job: ExperimentJob) -> None:
    execution.advance_organization(job.workspace.organization_id)
    job.refresh_from_db()


def test_calls_of_a_job_are_made_side_by_side_until_it_is_complete(job, worker, provider):
    provider.answer = Reply("One two", seconds_per_word=0.05)

    def is_complete() -> bool:
        advance(job)
        worker.wake()
        return job.status == "completed"

    wait_until(is_complete)

    assert (job.succeeded_count, len(provider.requests)) == (8, 8)
    assert 1 < provider.max_open_count <= 4


def test_cancelled_call_is_stopped_within_seconds(job, worker, provider, monkeypatch):
    provider.answer = Reply("word " * 20_000, seconds_per_word=0.02)
    monkeypatch.setattr(call_worker, "EXTEND_SECONDS", 0.1)
    advance(job)
    worker.wake()
    wait_until(lambda: provider.open_count == 4)

    ModelCall.unscoped.update(status="cancelled", error="The experiment was cancelled.")

    assert provider.aborted.wait(120)
    wait_until(lambda: provider.open_count == 0)
    assert set(ModelCall.unscoped.values_list("status", flat=True)) == {"cancelled"}


def test_calls_of_a_stopped_worker_are_made_by_another_one(job, provider):
    provider.answer = Reply("word " * 20_000, seconds_per_word=0.02)
    first = CallWorker()
    advance(job)
    first.wake()
    wait_until(lambda: provider.open_count == 4)
    first.stop()
    provider.answer = Reply("Fine")
    ModelCall.unscoped.filter(status="running").update(due_at="2026-01-01T00:00:00Z")

    second = CallWorker()
    try:

        def is_complete() -> bool:
            advance(job)
            second.wake()
            return job.status == "completed"

        wait_until(is_complete)
    finally:
        second.stop()

    assert (job.succeeded_count, job.failed_count) == (8, 0)
    assert sorted(ModelCall.unscoped.values_list("attempt", flat=True)) == [1] * 4 + [2] * 4


def test_row_shows_the_reply_so_far(page, base, job, worker, provider):
    provider.answer = Reply("word " * 20_000, seconds_per_word=0.02)
    advance(job)
    worker.wake()

    def read_texts() -> list[str]:
        page_of_rows = page.get(f"{base}/experiments/rows?jobs={job.pk}&show=running").json()
        results = [row["results"]["A"][0] for row in page_of_rows["rows"]]
        assert {result["status"] for result in results} == {"running"}
        return [result["partial"] or "" for result in results]

    wait_until(lambda: [text[:5] for text in read_texts()] == ["word "] * 4)

    all_rows = page.get(f"{base}/experiments/rows?jobs={job.pk}").json()
    assert all_rows["total"] == 8
    assert page.get(f"{base}/experiments/rows?jobs={job.pk}&show=failed").json()["rows"] == []
    assert page.get(f"{base}/experiments/rows?jobs={job.pk}&show=x").status_code == 422


def test_organizations_leave_places_for_the_next_one():
    """Slow providers of a few organizations do not hold all calls of a worker."""
    counts: dict[UUID, int] = {}
    for _ in range(6):
        newcomer = uuid4()
        counts[newcomer] = 0
        while newcomer not in call_worker.find_full(counts):
            counts[newcomer] += 1

    assert [*counts.values()] == [50, 25, 12, 6, 3, 2]
    assert sum(counts.values()) < call_worker.MAX_CONCURRENT
