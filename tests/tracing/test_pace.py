"""How much of the machine settling takes while runs come in."""

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
    """Every processor is in use."""
    monkeypatch.setattr(psutil, "cpu_percent", lambda: 100.0)


def come(workspace, *, requests: int, runs: int) -> None:
    now = datetime.now(UTC)
    for _ in range(requests):
        queue.enqueue(
            workspace.pk, [ChangedRun(uuid4(), workspace.pk, now, uuid4()) for _ in range(runs)]
        )


def test_a_burst_is_left_alone_and_taken_in_small_batches(workspace):
    pace = Throttle(400)
    come(workspace, requests=1, runs=100)
    pace.rest(100, 60)

    come(workspace, requests=5, runs=100)

    assert pace.rest(100, 60) == 2.0  # twelve times as long, but no longer than that
    assert pace.runs == 100


def test_what_can_be_settled_is_settled_at_once(workspace):
    pace = Throttle(400)
    come(workspace, requests=1, runs=100)
    pace.rest(100, 0.0001)

    come(workspace, requests=1, runs=1)

    assert pace.rest(100, 0.0001) < 0.001  # in a burst 0.0012
    assert pace.runs == 400


def test_the_end_of_a_burst_is_noticed(workspace):
    pace = Throttle(400)
    come(workspace, requests=1, runs=100)
    pace.rest(100, 60)
    come(workspace, requests=5, runs=100)
    pace.rest(100, 60)

    assert pace.rest(100, 60) <= 1.0
    assert pace.runs == 400
