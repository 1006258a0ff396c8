"""The thread of a worker process that makes evaluations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apps.evaluators.models import Evaluation
from apps.evaluators.services.evaluations import EvaluationQueue
from apps.feedback.models import Feedback
from apps.playground.call_worker import CallWorker
from tests.evaluators.conftest import add_run, create_rule, grade
from tests.factories.evaluators import structured
from tests.installation import wait_until
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("keys")]


@pytest.fixture
def worker() -> Iterator[CallWorker]:
    worker = CallWorker(EvaluationQueue())
    yield worker
    worker.stop()


def test_evaluations_of_a_stopped_worker_are_made_by_another_one(
    api, experiment, dataset, worker, provider
):
    judge = structured("Is {output} right?")
    create_rule(api, dataset_id=str(dataset.pk), evaluators=[{"structured": judge}])
    provider.answer = Reply("word " * 2000, seconds_per_word=0.02)
    for _ in range(4):
        add_run(experiment.workspace, experiment)
    first = CallWorker(EvaluationQueue())
    first.wake()
    wait_until(lambda: provider.open_count == 4, seconds=60)
    first.stop()
    provider.answer = Reply(grade(), seconds_per_word=0.01)
    Evaluation.unscoped.filter(status="running").update(due_at="2026-01-01T00:00:00Z")

    def is_complete() -> bool:
        worker.wake()
        return Evaluation.unscoped.filter(status="succeeded").count() == 4

    wait_until(is_complete, seconds=60)

    assert Feedback.unscoped.filter(key="correctness", score=1.0).count() == 4
    assert set(Evaluation.unscoped.values_list("attempt", flat=True)) == {2}
