"""Runs that stop for others, as the engine carries it out."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone

from apps.agent_server.models import AgentRun, Checkpoint, CheckpointBlob, CheckpointWrite
from apps.agent_server.services import cancel_runs
from tests.agent_runtime.factories import make_run, make_thread

STEPS = ["one", "two", "three", "four", "five"]


def execute(engine, thread):
    engine.call(engine.engine.claim_or_queue, thread.pk)


def await_that(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def saved_by(run):
    return Checkpoint.objects.filter(thread=run.thread, run_id=run.pk).count()


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "effects"


@pytest.fixture
def thread(revision):
    return make_thread(revision)


@pytest.fixture
def earlier(engine, thread, listen):
    """A run that left a state behind, before everything else."""
    run = make_run(thread, "steps", sequence=1, kwargs={"input": {"trail": ["earlier"]}, **FIRST})
    execute(engine, thread)
    list(listen(run.pk))
    thread.refresh_from_db()
    return run


FIRST = {"interrupt_before": ["one"]}


@pytest.fixture
def held(engine, thread, earlier, file):
    """A run that waits in its third step for a file."""
    kwargs = {"input": {"file": str(file), "wait_at": "three"}}
    run = make_run(thread, "steps", sequence=2, kwargs=kwargs)
    execute(engine, thread)
    await_that(lambda: file.exists() and "three 1" in file.read_text())
    return run


def newer(thread, file):
    kwargs = {"input": {"file": str(file), "wait_at": "", "trail": ["newer"]}}
    return make_run(thread, "steps", sequence=3, kwargs=kwargs)


@transaction.atomic
def supersede(thread, action, by):
    cancel_runs.preempt(thread.pk, action, by.pk)


def test_an_interrupted_run_leaves_its_steps_to_the_newer(engine, thread, held, file, listen):
    by = newer(thread, file)

    supersede(thread, "interrupt", by)
    thread.refresh_from_db()
    assert thread.error == {
        "error": "UserInterrupt", "message": f"superseded by run {by.pk}"
    }  # fmt: skip
    engine.wait_for(engine.engine.cancel_if_requested(held.pk))
    said, _ = list(listen(held.pk)), list(listen(by.pk))

    held.refresh_from_db()
    thread.refresh_from_db()
    assert (held.status, held.superseded_by) == ("interrupted", by.pk)
    assert said[-1] == ("end", {"status": "interrupted"})
    assert "error" not in [name for name, _ in said]
    assert thread.values["trail"] == ["earlier", "one", "two", "newer", *STEPS]
    assert (thread.status, thread.error, saved_by(held)) == ("idle", None, 4)


def test_a_rolled_back_run_was_never_there(engine, thread, held, file, listen):
    earlier = AgentRun.unscoped.get(sequence=1)
    before = saved_by(earlier)
    by = newer(thread, file)

    supersede(thread, "rollback", by)
    engine.wait_for(engine.engine.cancel_if_requested(held.pk))
    said, _ = list(listen(held.pk)), list(listen(by.pk))

    thread.refresh_from_db()
    assert not AgentRun.unscoped.filter(pk=held.pk).exists()
    assert said[-1] == ("end", {"status": "interrupted"})
    assert thread.values["trail"] == ["earlier", "newer", *STEPS]
    assert (saved_by(held), saved_by(earlier)) == (0, before)
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


@pytest.mark.parametrize(("action", "left"), [("interrupt", "interrupted"), ("rollback", None)])
def test_a_run_whose_worker_dies_while_it_should_stop_is_stopped_by_the_next(
    engine, thread, listen, action, left
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
    assert (status, thread.values, thread.status) == (left, {"items": ["b"]}, "idle")


def test_a_run_that_succeeds_before_it_hears_of_its_rollback_is_undone(engine, thread, listen):
    run = make_run(thread, "collect", kwargs={"input": {"items": ["a"], "seconds": 0.5}})
    execute(engine, thread)
    await_that(lambda: AgentRun.unscoped.filter(pk=run.pk, status="running").exists())

    AgentRun.unscoped.filter(pk=run.pk).update(cancel_action="rollback")
    list(listen(run.pk))

    thread.refresh_from_db()
    assert not AgentRun.unscoped.filter(pk=run.pk).exists()
    assert (thread.status, thread.values, thread.state) == ("idle", None, None)
    assert not Checkpoint.objects.filter(thread=thread).exists()


def test_rolling_back_an_answer_brings_its_question_back(engine, thread, listen):
    asked = make_run(thread, "ask_twice", kwargs={"input": {"answer": ""}})
    execute(engine, thread)
    list(listen(asked.pk))
    thread.refresh_from_db()
    before = sorted(map(str, CheckpointWrite.objects.values_list("channel", "blob")))
    interrupts = thread.interrupts

    answered = make_run(
        thread, "ask_twice", sequence=2, kwargs={"command": {"resume": "yes"}},
    )  # fmt: skip
    thread.status = "busy"
    thread.save()
    execute(engine, thread)
    await_that(lambda: AgentRun.unscoped.filter(pk=answered.pk, status="running").exists())
    AgentRun.unscoped.filter(pk=answered.pk).update(cancel_action="rollback")
    list(listen(answered.pk))

    thread.refresh_from_db()
    assert sorted(map(str, CheckpointWrite.objects.values_list("channel", "blob"))) == before
    assert (thread.status, thread.interrupts) == ("interrupted", interrupts)
    again = make_run(thread, "ask_twice", sequence=3, kwargs={"command": {"resume": "no"}})
    execute(engine, thread)
    list(listen(again.pk))
    thread.refresh_from_db()
    [[question]] = thread.interrupts.values()
    assert question["value"] == "and no?"


def test_a_run_that_waits_for_its_next_attempt_is_not_overtaken(engine, thread, listen):
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


def test_a_planned_run_begins_when_it_is_due(engine, thread, listen):
    due = timezone.now() + timedelta(seconds=1)
    run = make_run(
        thread, "collect", created_at=due, available_at=due, kwargs={"input": {"items": ["a"]}}
    )

    engine.call(engine.engine.timer.set, 1.0)
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.status == "success"
    assert 0 <= (run.started_at - due).total_seconds() < 5
