"""The throttle of postprocessing while runs are ingested."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import psutil
import pytest

from apps.trace_store import ChangedRun
from apps.trace_store.postgres.postprocess import queue
from apps.trace_store.postgres.postprocess.throttle import Throttle

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _full_machine(monkeypatch):
    """Report every processor as busy."""
    monkeypatch.setattr(psutil, "cpu_percent", lambda: 100.0)


def enqueue_requests(workspace, *, requests: int, runs: int) -> None:
    now = datetime.now(UTC)
    for _ in range(requests):
        queue.enqueue(
            workspace.pk, [ChangedRun(uuid4(), workspace.pk, now, uuid4()) for _ in range(runs)]
        )


def test_a_burst_is_processed_slowly_and_in_small_batches(workspace):
    throttle = Throttle(400)
    enqueue_requests(workspace, requests=1, runs=100)
    throttle.pause_seconds(100, 60)

    enqueue_requests(workspace, requests=5, runs=100)

    assert throttle.pause_seconds(100, 60) == 2.0  # twelve times as long, limited to 2 seconds
    assert throttle.runs == 100


def test_a_single_run_is_processed_without_delay(workspace):
    throttle = Throttle(400)
    enqueue_requests(workspace, requests=1, runs=100)
    throttle.pause_seconds(100, 0.0001)

    enqueue_requests(workspace, requests=1, runs=1)

    assert throttle.pause_seconds(100, 0.0001) < 0.001  # in a burst 0.0012
    assert throttle.runs == 400


def test_the_throttle_recovers_after_a_burst(workspace):
    throttle = Throttle(400)
    enqueue_requests(workspace, requests=1, runs=100)
    throttle.pause_seconds(100, 60)
    enqueue_requests(workspace, requests=5, runs=100)
    throttle.pause_seconds(100, 60)

    assert throttle.pause_seconds(100, 60) <= 1.0
    assert throttle.runs == 400
