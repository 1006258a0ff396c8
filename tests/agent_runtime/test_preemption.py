"""Runs that are interrupted or rolled back in favour of newer runs, in a real engine."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from apps.agent_runtime import due_timer
from apps.agent_server.models import AgentRun, Checkpoint, CheckpointBlob, CheckpointWrite
from apps.agent_server.services import cancel_runs
from tests.agent_runtime.factories import execute, let_continue, make_run, make_thread
from tests.installation import wait_until

STEPS = ["one", "two", "three", "four", "five"]


def count_checkpoints(run):
    return Checkpoint.objects.filter(thread=run.thread, run_id=run.pk).count()


@pytest.fixture
def thread(revision):
    return make_thread(revision)


@pytest.fixture
def earlier(engine, thread, listen):
    """A finished run whose state the later runs build on."""
    run = make_run(thread, "steps", sequence=1, kwargs={"input": {"trail": ["earlier"]}, **FIRST})
    execute(engine, thread)
    list(listen(run.pk))
    thread.refresh_from_db()
    return run


FIRST = {"interrupt_before": ["one"]}


@pytest.fixture
def waiting_run(engine, thread, earlier, file):
    """A run that waits in its third step for a file."""
    kwargs = {"input": {"file": str(file), "wait_at": "three"}}
    run = make_run(thread, "steps", sequence=2, kwargs=kwargs)
    execute(engine, thread)
    wait_until(lambda: file.exists() and "three 1" in file.read_text())
    return run


def make_newer_run(thread, file):
    kwargs = {"input": {"file": str(file), "wait_at": "", "trail": ["newer"]}}
    return make_run(thread, "steps", sequence=3, kwargs=kwargs)


@transaction.atomic
def preempt(thread, action, by):
    cancel_runs.preempt(thread.pk, action, by.pk)


def test_a_newer_run_builds_on_the_steps_of_the_interrupted_run(
    engine, thread, waiting_run, file, listen
):
    newer_run = make_newer_run(thread, file)

    preempt(thread, "interrupt", newer_run)
    thread.refresh_from_db()
    assert thread.error == {
        "error": "UserInterrupt", "message": f"superseded by run {newer_run.pk}"
    }  # fmt: skip
    engine.run(engine.engine.cancel_if_requested(waiting_run.pk))
    events, _ = list(listen(waiting_run.pk)), list(listen(newer_run.pk))

    waiting_run.refresh_from_db()
    thread.refresh_from_db()
    assert (waiting_run.status, waiting_run.superseded_by) == ("interrupted", newer_run.pk)
    assert events[-1] == ("end", {"status": "interrupted"})
    assert "error" not in [name for name, _ in events]
    assert thread.values["trail"] == ["earlier", "one", "two", "newer", *STEPS]
    assert (thread.status, thread.error, count_checkpoints(waiting_run)) == ("idle", None, 4)


def test_a_rollback_deletes_the_run_and_its_checkpoints(engine, thread, waiting_run, file, listen):
    earlier = AgentRun.unscoped.get(sequence=1)
    checkpoint_count = count_checkpoints(earlier)
    newer_run = make_newer_run(thread, file)

    preempt(thread, "rollback", newer_run)
    engine.run(engine.engine.cancel_if_requested(waiting_run.pk))
    events, _ = list(listen(waiting_run.pk)), list(listen(newer_run.pk))

    thread.refresh_from_db()
    assert not AgentRun.unscoped.filter(pk=waiting_run.pk).exists()
    assert events[-1] == ("end", {"status": "interrupted"})
    assert thread.values["trail"] == ["earlier", "newer", *STEPS]
    assert (count_checkpoints(waiting_run), count_checkpoints(earlier)) == (0, checkpoint_count)
    assert (thread.status, thread.error) == ("idle", None)
    shared = CheckpointBlob.objects.filter(thread=thread).count()
    used = {
        (channel, version)
        for versions in Checkpoint.objects.filter(thread=thread).values_list(
            "blob_versions", flat=True
        )
        for channel, version in versions.items()
    }
    stored = set(CheckpointBlob.objects.values_list("channel", "version"))
    assert (stored <= used, shared) == (True, len(stored))


@pytest.mark.parametrize(
    ("action", "expected_status"), [("interrupt", "interrupted"), ("rollback", None)]
)
def test_a_cancelled_run_whose_worker_died_is_cancelled_by_the_next_worker(
    engine, thread, listen, action, expected_status
):
    run = make_run(
        thread, "collect", status="pending", attempt=1, cancel_action=action,
        kwargs={"input": {"items": ["a"]}},
    )  # fmt: skip
    follower = make_run(thread, "collect", sequence=2, kwargs={"input": {"items": ["b"]}})

    execute(engine, thread)
    list(listen(follower.pk))

    thread.refresh_from_db()
    status = AgentRun.unscoped.filter(pk=run.pk).values_list("status", flat=True).first()
    assert (status, thread.values, thread.status) == (expected_status, {"items": ["b"]}, "idle")


def test_a_rollback_requested_before_a_run_succeeds_undoes_the_run(engine, thread, listen, file):
    kwargs = {"input": {"file": str(file), "wait_at": "five"}}
    run = make_run(thread, "steps", kwargs=kwargs)
    execute(engine, thread)
    wait_until(lambda: file.exists() and "five 1" in file.read_text())

    AgentRun.unscoped.filter(pk=run.pk).update(cancel_action="rollback")
    let_continue(file)
    list(listen(run.pk))

    thread.refresh_from_db()
    assert not AgentRun.unscoped.filter(pk=run.pk).exists()
    assert (thread.status, thread.values, thread.state) == ("idle", None, None)
    assert not Checkpoint.objects.filter(thread=thread).exists()


def test_rolling_back_an_answer_restores_its_interrupt(engine, thread, listen, file):
    kwargs = {"input": {"answer": "", "file": str(file)}}
    question_run = make_run(thread, "ask_twice", kwargs=kwargs)
    execute(engine, thread)
    list(listen(question_run.pk))
    thread.refresh_from_db()
    initial_writes = sorted(map(str, CheckpointWrite.objects.values_list("channel", "blob")))
    interrupts = thread.interrupts

    answer_run = make_run(
        thread, "ask_twice", sequence=2, kwargs={"command": {"resume": "yes"}},
    )  # fmt: skip
    thread.status = "busy"
    thread.save()
    execute(engine, thread)
    wait_until(lambda: AgentRun.unscoped.filter(pk=answer_run.pk, status="running").exists())
    AgentRun.unscoped.filter(pk=answer_run.pk).update(cancel_action="rollback")
    let_continue(file)
    list(listen(answer_run.pk))

    thread.refresh_from_db()
    assert (
        sorted(map(str, CheckpointWrite.objects.values_list("channel", "blob"))) == initial_writes
    )
    assert (thread.status, thread.interrupts) == ("interrupted", interrupts)
    second_answer_run = make_run(
        thread, "ask_twice", sequence=3, kwargs={"command": {"resume": "no"}}
    )
    execute(engine, thread)
    list(listen(second_answer_run.pk))
    thread.refresh_from_db()
    [[question]] = thread.interrupts.values()
    assert question["value"] == "and no?"


def test_a_later_run_waits_for_the_retry_of_an_earlier_run(engine, thread, listen):
    due = timezone.now() + timedelta(seconds=0.4)
    first = make_run(
        thread, "collect", attempt=1, crash_count=1, available_at=due,
        kwargs={"input": {"items": ["a"]}},
    )  # fmt: skip
    second = make_run(thread, "collect", sequence=2, kwargs={"input": {"items": ["b"]}})

    execute(engine, thread)
    list(listen(second.pk))

    thread.refresh_from_db()
    first.refresh_from_db()
    assert thread.values == {"items": ["a", "b"]}
    assert first.started_at >= due


def test_a_scheduled_run_starts_when_it_is_due(engines, thread, listen, monkeypatch):
    # Only the timer starts it.
    monkeypatch.setattr(due_timer, "POLL_SECONDS", 3600)
    engine = engines()
    due = timezone.now() + timedelta(seconds=1)
    run = make_run(
        thread, "collect", created_at=due, available_at=due, kwargs={"input": {"items": ["a"]}}
    )

    engine.call(engine.engine.timer.set, 1.0)
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.status == "success"
    assert run.started_at >= due
