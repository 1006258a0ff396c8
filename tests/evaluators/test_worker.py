"""The thread of a worker process that makes evaluations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apps.evaluators.models import Evaluation
from apps.evaluators.services.code_queue import CodeQueue
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
    wait_until(lambda: provider.open_count == 4)
    first.stop()
    provider.answer = Reply(grade(), seconds_per_word=0.01)
    Evaluation.unscoped.filter(status="running").update(due_at="2026-01-01T00:00:00Z")

    def is_complete() -> bool:
        worker.wake()
        return Evaluation.unscoped.filter(status="succeeded").count() == 4

    wait_until(is_complete)

    assert Feedback.unscoped.filter(key="correctness", score=1.0).count() == 4
    assert set(Evaluation.unscoped.values_list("attempt", flat=True)) == {2}


@pytest.mark.integration
def test_function_that_a_stopped_worker_ran_is_run_by_another_one(api, experiment, dataset):
    waits = [{"code": "import time\ndef perform_eval(run):\n time.sleep(1000)"}]
    rule = create_rule(api, dataset_id=str(dataset.pk), code_evaluators=waits)
    add_run(experiment.workspace, experiment)
    first = CallWorker(CodeQueue(), "first-functions", 2)
    first.wake()
    wait_until(lambda: Evaluation.unscoped.filter(status="running").exists())
    first.stop()
    quick = [{"code": "def perform_eval(run):\n return 0.5"}]
    assert api.patch(f"/runs/rules/{rule['id']}", {"code_evaluators": quick}).status_code == 200
    Evaluation.unscoped.filter(status="running").update(due_at="2026-01-01T00:00:00Z")
    second = CallWorker(CodeQueue(), "second-functions", 2)

    def is_scored() -> bool:
        second.wake()
        return Evaluation.unscoped.filter(status="succeeded").exists()

    wait_until(is_scored)
    second.stop()

    assert Feedback.unscoped.get().score == 0.5
    assert Evaluation.unscoped.get().attempt == 2
