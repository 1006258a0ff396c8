"""What runs do to the state that is there: durability, forks, commands, cancelling."""

from __future__ import annotations

import time

import pytest

from apps.agent_server.models import AgentRun, Checkpoint
from tests.agent_runtime.factories import make_run, make_thread


@pytest.fixture
def run_on(engine, listen):
    """Runs a graph on a thread to its end and returns its events."""

    def execute(thread, graph_id, **kwargs):
        sequence = AgentRun.unscoped.filter(thread=thread).count() + 1
        run = make_run(thread, graph_id, sequence=sequence, kwargs=kwargs)
        engine.call(engine.engine.claim_or_queue, thread.pk)
        events = list(listen(run.pk))
        thread.refresh_from_db()
        return events

    return execute


def steps_of(thread):
    rows = Checkpoint.objects.filter(thread=thread, namespace="").order_by("checkpoint_id")
    return [(m["source"], m["step"]) for m in rows.values_list("metadata", flat=True)]


@pytest.mark.parametrize(
    ("durability", "steps"),
    [
        ("sync", [("input", -1), ("loop", 0), ("loop", 1)]),
        ("async", [("input", -1), ("loop", 0), ("loop", 1)]),
        ("exit", [("loop", 1)]),
    ],
)
def test_durability_decides_which_checkpoints_there_are(revision, run_on, durability, steps):
    thread = make_thread(revision)

    run_on(thread, "collect", input={"items": ["a"]}, durability=durability)

    assert steps_of(thread) == steps
    assert (thread.values, thread.status) == ({"items": ["a"]}, "idle")
    run_on(thread, "collect", input={"items": ["b"]}, durability=durability)
    assert thread.values == {"items": ["a", "b"]}


def test_a_run_from_an_older_checkpoint_makes_a_branch_that_becomes_the_head(revision, run_on):
    thread = make_thread(revision)
    run_on(thread, "collect", input={"items": ["a"]})
    older = thread.state["checkpoint"]["checkpoint_id"]
    run_on(thread, "collect", input={"items": ["b"]})

    run_on(thread, "collect", input={"items": ["c"]}, checkpoint={"checkpoint_id": older})

    assert thread.values == {"items": ["a", "c"]}
    assert thread.state["metadata"]["step"] == 4


def test_naming_the_head_with_new_input_makes_no_branch(revision, run_on):
    thread = make_thread(revision)
    run_on(thread, "collect", input={"items": ["a"]})
    head = thread.state["checkpoint"]

    run_on(thread, "collect", input={"items": ["b"]}, checkpoint=head, checkpoint_id=None)

    assert thread.values == {"items": ["a", "b"]}
    assert [source for source, _ in steps_of(thread)] == ["input", "loop", "loop"] * 2


def test_going_to_the_end_closes_a_thread_that_asks(revision, run_on):
    thread = make_thread(revision)
    run_on(thread, "ask", input={"answer": ""})
    assert thread.status == "interrupted"

    events = run_on(thread, "ask", command={"goto": "__end__", "update": None})

    assert (thread.status, thread.state["next"], thread.interrupts) == ("idle", [], {})
    assert events[-1] == ("end", {"status": "success"})


def test_new_input_on_a_thread_that_asks_starts_over(revision, run_on):
    thread = make_thread(revision)
    run_on(thread, "ask", input={"answer": ""})
    [[first]] = thread.interrupts.values()

    run_on(thread, "ask", input={"answer": "again"})

    [[second]] = thread.interrupts.values()
    assert second["id"] != first["id"]
    assert (thread.values, thread.status) == ({"answer": "again"}, "interrupted")


def test_a_cancelled_run_keeps_what_it_finished(engine, revision, listen, tmp_path):
    thread = make_thread(revision)
    file = tmp_path / "effects"
    kwargs = {"input": {"file": str(file), "wait_at": "three"}}
    run = make_run(thread, "steps", kwargs=kwargs)
    engine.call(engine.engine.claim_or_queue, thread.pk)
    deadline = time.monotonic() + 60
    while not (file.exists() and "three" in file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    AgentRun.unscoped.filter(pk=run.pk).update(cancel_action="interrupt")
    engine.wait_for(engine.engine.cancel_if_requested(run.pk))
    events = list(listen(run.pk))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert events[-1] == ("end", {"status": "interrupted"})
    assert "error" not in [name for name, _ in events]
    assert (run.status, thread.status) == ("interrupted", "interrupted")
    assert (run.error["error"], thread.error) == ("UserInterrupt", None)
    assert (thread.values["trail"], thread.state["next"]) == (["one", "two"], ["three"])


def test_a_run_that_takes_too_long_is_timed_out(engines, revision, listen):
    engine = engines(AGENT_RUN_TIMEOUT_SECONDS=1)
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs={"input": {"items": ["a"], "seconds": 60}})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    events = list(listen(run.pk))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert [name for name, _ in events[-2:]] == ["error", "end"]
    assert (run.status, run.error["error"]) == ("timeout", "TimeoutError")
    assert (thread.status, thread.state["next"]) == ("error", ["take"])


def test_a_run_that_does_not_let_itself_be_stopped_is_left_behind(
    engines, revision, listen, monkeypatch
):
    monkeypatch.setattr("apps.agent_runtime.runs.run_session.STOP_SECONDS", 0.5)
    engine = engines(AGENT_RUN_TIMEOUT_SECONDS=1)
    thread = make_thread(revision)
    run = make_run(thread, "stubborn", kwargs={"input": {"items": ["a"]}})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    events = list(listen(run.pk))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert events[-1] == ("end", {"status": "timeout"})
    assert (run.status, thread.status, thread.state["next"]) == ("timeout", "error", ["not_listen"])
