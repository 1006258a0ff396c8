"""Section 7: the queue of a thread, double texting, cancelling, disconnects."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.errors import APIStatusError, ConflictError, NotFoundError

from tests.installation import wait_until

# A fixed id, because test ids must be the same in every worker.
UNKNOWN_ID = "6f1e3d0a-0000-4000-8000-000000000000"

BUSY = (
    "Thread is already running a task. Wait for it to finish or choose a different multitask"
    " strategy."
)
DONE = ["plan", "write", "review"]


def slow_input(note: str = "slow", seconds: float = 100, node: str = "write") -> dict:
    """Build the input of a run that is slow in one node; the nodes before it finish at once."""
    return {"notes": [note], "sleep": seconds, "slow": node}


def quick_input(note: str) -> dict:
    return {"notes": [note], "sleep": 0}


@pytest.fixture
def start(client, thread_id):
    """A function that starts a run on the thread and returns its id."""

    def create(input_: dict | None, **options):
        return client.runs.create(thread_id, "pace", input=input_, **options)["run_id"]

    return create


@pytest.fixture
def running(client, thread_id, start):
    """A running run: `plan` has finished, `write` takes long."""
    run_id = start(slow_input())
    wait_until(lambda: client.threads.get_state(thread_id)["next"] == ["write"], "the second step")
    return run_id


def run_status(client, thread_id, run_id):
    return client.runs.get(thread_id, run_id)["status"]


def thread_notes(client, thread_id):
    return client.threads.get_state(thread_id)["values"]["notes"]


def is_deleted(client, thread_id, run_id):
    try:
        client.runs.get(thread_id, run_id)
    except NotFoundError as error:
        return "not found" in str(error).lower()
    return False


# 7.1 The queue


def test_runs_of_a_thread_execute_in_order(client, thread_id, start):
    runs = [start(quick_input(str(number))) for number in range(5)]

    client.runs.join(thread_id, runs[-1])

    expected = [note for number in range(5) for note in (str(number), *DONE)]
    assert thread_notes(client, thread_id) == expected
    assert {run["status"] for run in client.runs.list(thread_id)} == {"success"}


def test_runs_of_different_threads_execute_concurrently(client):
    threads = [client.threads.create()["thread_id"] for _ in range(5)]
    runs = [client.runs.create(t, "pace", input=slow_input(seconds=300)) for t in threads]

    def are_all_in_the_slow_step():
        return all(client.threads.get_state(t)["next"] == ["write"] for t in threads)

    wait_until(are_all_in_the_slow_step, "the slow step of all runs")
    assert {run_status(client, run["thread_id"], run["run_id"]) for run in runs} == {"running"}
    for run in runs:
        client.runs.cancel(run["thread_id"], run["run_id"])


def test_a_thread_with_queued_runs_is_busy(client, thread_id, running, start):
    queued = start(quick_input("next"))

    assert client.threads.get(thread_id)["status"] == "busy"
    assert [run_status(client, thread_id, run) for run in (running, queued)] == [
        "running",
        "pending",
    ]


def test_a_delayed_run_starts_when_it_is_due(client, thread_id, start):
    started_at = time.time()
    run = client.runs.create(thread_id, "pace", input=quick_input("late"), after_seconds=1)

    client.runs.join(thread_id, run["run_id"])

    assert time.time() - started_at >= 1
    assert thread_notes(client, thread_id) == ["late", *DONE]


def test_a_delayed_run_has_a_future_creation_time_and_makes_the_thread_busy(client, thread_id):
    run = client.runs.create(thread_id, "pace", input=quick_input("late"), after_seconds=60)

    created, updated = (datetime.fromisoformat(run[f]) for f in ("created_at", "updated_at"))
    assert 30 < (created - updated).total_seconds() <= 60.5
    assert run["status"] == "pending"
    assert client.threads.get(thread_id)["status"] == "busy"
    with pytest.raises(ConflictError, match="already running a task"):
        client.runs.create(thread_id, "pace", input={}, multitask_strategy="reject")


def test_a_run_starts_before_a_delayed_run(client, thread_id):
    late = client.runs.create(thread_id, "pace", input=quick_input("late"), after_seconds=60)[
        "run_id"
    ]

    client.runs.wait(thread_id, "pace", input=quick_input("now"))

    assert thread_notes(client, thread_id) == ["now", *DONE]
    assert run_status(client, thread_id, late) == "pending"
    assert client.threads.get(thread_id)["status"] == "busy"


def test_a_node_reads_the_ids_of_its_run(client, thread_id):
    run = client.runs.create(
        thread_id, "context", input={"question": "who"}, config={"configurable": {"mine": "m"}}
    )
    client.runs.join(thread_id, run["run_id"])

    seen = client.threads.get_state(thread_id)["values"]["seen"]["configurable"]
    assert seen["mine"] == "m"
    assert seen["run_id"] == run["run_id"]
    assert seen["thread_id"] == thread_id
    assert seen["graph_id"] == "context"
    assert seen["assistant_id"] == run["assistant_id"]
    assert seen["checkpoint_ns"].startswith("node:")
    assert {"user_id", "langgraph_request_id"} <= set(seen)


def test_the_metadata_of_a_node_names_run_and_attempt(client, thread_id):
    run = client.runs.create(thread_id, "context", input={}, metadata={"topic": "tea"})
    client.runs.join(thread_id, run["run_id"])

    metadata = client.threads.get_state(thread_id)["values"]["seen"]["metadata"]
    expected = {
        "topic": "tea",
        "run_id": run["run_id"],
        "thread_id": thread_id,
        "graph_id": "context",
        "assistant_id": run["assistant_id"],
        "run_attempt": 1,
    }
    assert expected.items() <= metadata.items()


def test_context_is_converted_to_its_schema(client, thread_id):
    context = {"tone": "stern", "length": 7, "unknown": "x"}

    result = client.runs.wait(thread_id, "context", input={}, context=context)

    assert result["answer"] == "stern 7"
    assert result["seen"]["configurable"]["unknown"] == "x"


# 7.2 Double texting


def test_reject_answers_conflict_and_changes_nothing(client, thread_id, running, start):
    before = client.threads.get(thread_id)

    with pytest.raises(ConflictError) as caught:
        start({}, multitask_strategy="reject")

    assert caught.value.response.json()["detail"] == BUSY
    assert client.threads.get(thread_id) == before
    assert [run["run_id"] for run in client.runs.list(thread_id)] == [running]


@pytest.mark.parametrize("strategy", ["reject", "enqueue", "interrupt", "rollback"])
def test_every_strategy_starts_at_once_on_an_idle_thread(client, thread_id, strategy):
    result = client.runs.wait(
        thread_id, "pace", input=quick_input("first"), multitask_strategy=strategy
    )

    assert result["notes"] == ["first", *DONE]
    assert client.runs.list(thread_id)[0]["multitask_strategy"] == strategy


def test_enqueue_is_the_default(client, thread_id, running, start):
    run = client.runs.create(thread_id, "pace", input=quick_input("next"))

    assert (run["status"], run["multitask_strategy"]) == ("pending", "enqueue")


def test_interrupt_stops_the_run_and_keeps_its_finished_steps(client, thread_id, running, start):
    new = start(quick_input("new"), multitask_strategy="interrupt")
    client.runs.join(thread_id, new)

    assert [run_status(client, thread_id, run) for run in (running, new)] == [
        "interrupted",
        "success",
    ]
    assert thread_notes(client, thread_id) == ["slow", "plan", "new", *DONE]


def test_interrupt_stops_queued_runs(client, thread_id, running, start):
    queued = [start(quick_input(f"queued {n}")) for n in range(2)]

    new = start(quick_input("new"), multitask_strategy="interrupt")
    statuses = [run_status(client, thread_id, run) for run in queued]
    client.runs.join(thread_id, new)

    assert statuses == ["interrupted", "interrupted"]
    assert thread_notes(client, thread_id) == ["slow", "plan", "new", *DONE]


def test_interrupt_stops_delayed_runs(client, thread_id, start):
    delayed = start(quick_input("late"), after_seconds=1)

    new = start(quick_input("new"), multitask_strategy="interrupt")
    client.runs.join(thread_id, new)

    assert run_status(client, thread_id, delayed) == "interrupted"
    assert client.threads.get(thread_id)["status"] == "idle"
    assert thread_notes(client, thread_id) == ["new", *DONE]


def test_the_checkpoints_of_an_interrupted_run_are_kept(client, thread_id, running, start):
    client.runs.join(thread_id, start(quick_input("new"), multitask_strategy="interrupt"))

    history = client.threads.get_history(thread_id, limit=20)
    old_states = [state for state in history if state["metadata"]["run_id"] == running]
    assert [state["metadata"]["step"] for state in old_states] == [1, 0, -1]


def test_joining_an_interrupted_run_returns_the_values(client, thread_id, running, start):
    new = start(quick_input("new"), multitask_strategy="interrupt")
    client.runs.join(thread_id, new)

    assert client.runs.join(thread_id, running)["notes"] == ["slow", "plan", "new", *DONE]


def test_a_superseding_run_is_named_in_the_error_of_the_thread_until_it_ends(
    client, thread_id, running, start
):
    new = start(slow_input("new"), multitask_strategy="interrupt")
    during = client.threads.get(thread_id)
    client.runs.join(thread_id, start(quick_input("last"), multitask_strategy="interrupt"))
    marker = client.threads.get(thread_id)

    assert during["status"] == "busy"
    assert during["error"] == {
        "error": "UserInterrupt", "message": f"superseded by run {new}"
    }  # fmt: skip
    assert (marker["status"], marker["error"]) == ("idle", None)


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
def test_the_stream_of_a_superseded_run_ends_without_an_error(client, thread_id, start, strategy):
    events = []
    for part in client.runs.stream(thread_id, "pace", input=slow_input(), stream_mode="updates"):
        events.append(part.event)
        if part.event == "updates" and "plan" in part.data:
            new = start(quick_input("new"), multitask_strategy=strategy)

    client.runs.join(thread_id, new)
    assert "error" not in events
    assert events[:2] == ["metadata", "updates"]


def test_rollback_deletes_the_run_and_its_checkpoints(client, thread_id, running, start):
    new = start(quick_input("new"), multitask_strategy="rollback")
    client.runs.join(thread_id, new)

    assert is_deleted(client, thread_id, running)
    history = client.threads.get_history(thread_id, limit=20)
    assert {state["metadata"]["run_id"] for state in history} == {new}
    assert thread_notes(client, thread_id) == ["new", *DONE]


def test_rollback_starts_from_the_previous_state(client, thread_id, start):
    client.runs.wait(thread_id, "pace", input=quick_input("first"))
    old = start(slow_input("old"))
    wait_until(lambda: client.threads.get_state(thread_id)["next"] == ["write"], "the second step")

    client.runs.join(thread_id, start(quick_input("new"), multitask_strategy="rollback"))

    assert is_deleted(client, thread_id, old)
    assert thread_notes(client, thread_id) == ["first", *DONE, "new", *DONE]


def test_rollback_deletes_queued_and_delayed_runs(client, thread_id, running, start):
    queued, delayed = start(quick_input("queued")), start(quick_input("late"), after_seconds=1)

    new = start(quick_input("new"), multitask_strategy="rollback")
    deleted = [is_deleted(client, thread_id, run) for run in (queued, delayed)]
    client.runs.join(thread_id, new)

    assert deleted == [True, True]
    assert [run["run_id"] for run in client.runs.list(thread_id)] == [new]
    assert thread_notes(client, thread_id) == ["new", *DONE]


def test_joining_a_rolled_back_run_returns_an_empty_object(client, thread_id, start):
    old = start(slow_input())
    wait_until(lambda: client.threads.get_state(thread_id)["next"] == ["write"], "the second step")
    bodies = []
    with client.http.client.stream("GET", f"/threads/{thread_id}/runs/{old}/join") as response:
        new = start(quick_input("new"), multitask_strategy="rollback")
        bodies.append(b"".join(response.iter_raw()))

    client.runs.join(thread_id, new)
    assert bodies[0].strip() == b"{}"


def test_the_newest_of_several_superseding_runs_wins(client, thread_id, running, start):
    first = start(quick_input("first"), multitask_strategy="interrupt")
    second = start(quick_input("second"), multitask_strategy="rollback")
    third = start(quick_input("third"), multitask_strategy="interrupt")
    client.runs.join(thread_id, third)

    active = {"pending", "running"}
    statuses = {run["run_id"]: run["status"] for run in client.runs.list(thread_id)}
    assert statuses[third] == "success"
    assert not active.intersection(statuses.values())
    assert set(statuses) <= {running, first, second, third}
    assert thread_notes(client, thread_id)[-4:] == ["third", *DONE]


def test_a_queued_run_waits_for_a_superseding_run(client, thread_id, running, start):
    superseding = start(quick_input("new"), multitask_strategy="interrupt")
    queued = start(quick_input("queued"))
    client.runs.join(thread_id, queued)

    runs = [running, superseding, queued]
    assert [run_status(client, thread_id, r) for r in runs] == ["interrupted", "success", "success"]
    assert thread_notes(client, thread_id) == ["slow", "plan", "new", *DONE, "queued", *DONE]


def test_rolling_back_a_delayed_resume_keeps_the_interrupt(client, thread_id):
    client.runs.wait(thread_id, "human", input={"notes": ["start"], "ask": 1})
    interrupted = client.threads.get(thread_id)

    run = client.runs.create(thread_id, "human", command={"resume": "yes"}, after_seconds=30)[
        "run_id"
    ]
    client.runs.cancel(thread_id, run, action="rollback", wait=True)

    marker = client.threads.get(thread_id)
    assert (marker["status"], marker["interrupts"]) == (
        interrupted["status"],
        interrupted["interrupts"],
    )
    result = client.runs.wait(thread_id, "human", command={"resume": "no"})
    assert result["notes"][-2:] == ["answer 0: no", "sent"]


# 7.3 Cancelling


def test_cancel_responds_before_the_run_has_stopped(client, thread_id, running):
    response = client.http.client.post(f"/threads/{thread_id}/runs/{running}/cancel")

    assert (response.status_code, response.content) == (202, b"")


def test_cancel_with_wait_responds_after_the_run_has_stopped(client, thread_id, running):
    path = f"/threads/{thread_id}/runs/{running}/cancel"
    response = client.http.client.post(path, params={"wait": 1})

    assert (response.status_code, response.json()) == (200, {})
    assert response.headers["location"] == f"/threads/{thread_id}/runs/{running}/join"
    assert run_status(client, thread_id, running) == "interrupted"


def test_a_cancelled_run_keeps_its_state_and_is_continued(client, thread_id, running, start):
    client.runs.cancel(thread_id, running, wait=True)

    cancelled = client.threads.get(thread_id)
    assert (cancelled["status"], cancelled["error"]) == ("interrupted", None)
    assert cancelled["values"]["notes"] == ["slow", "plan"]
    client.threads.update_state(thread_id, {"sleep": 0}, as_node="plan")
    client.runs.wait(thread_id, "pace", input=None)
    assert thread_notes(client, thread_id) == ["slow", *DONE]


def test_joining_a_cancelled_run_returns_the_values(client, thread_id, running):
    client.runs.cancel(thread_id, running, wait=True)

    assert client.runs.join(thread_id, running)["notes"] == ["slow", "plan"]


def test_cancel_with_rollback_deletes_the_run(client, thread_id, running):
    client.runs.cancel(thread_id, running, wait=True, action="rollback")

    assert is_deleted(client, thread_id, running)
    thread = client.threads.get(thread_id)
    assert (thread["status"], thread["values"]) == ("idle", None)
    assert client.threads.get_history(thread_id) == []


def test_cancel_with_rollback_restores_the_previous_status(client, thread_id, start):
    client.runs.wait(thread_id, "faults", input={"kind": "value"}, raise_error=False)
    failed = client.threads.get(thread_id)

    run = start(slow_input())
    wait_until(lambda: client.threads.get_state(thread_id)["next"] == ["write"], "the second step")
    client.runs.cancel(thread_id, run, wait=True, action="rollback")

    marker = client.threads.get(thread_id)
    assert marker["status"] == failed["status"] == "error"
    assert marker["error"] == failed["error"]


def test_cancelling_a_pending_run_keeps_the_running_one(client, thread_id, running, start):
    queued = start(quick_input("queued"))

    client.runs.cancel(thread_id, queued)

    assert [run_status(client, thread_id, r) for r in (running, queued)] == [
        "running",
        "interrupted",
    ]
    assert client.threads.get(thread_id)["status"] == "busy"


def test_a_pending_run_is_rolled_back_at_once(client, thread_id, running, start):
    queued = start(quick_input("queued"))

    client.runs.cancel(thread_id, queued, action="rollback")

    assert is_deleted(client, thread_id, queued)
    assert run_status(client, thread_id, running) == "running"


def test_cancelling_a_delayed_run_releases_the_thread(client, thread_id, start):
    run = start(quick_input("late"), after_seconds=60)

    client.runs.cancel(thread_id, run, wait=True)

    assert run_status(client, thread_id, run) == "interrupted"
    assert client.threads.get(thread_id)["status"] == "interrupted"
    assert client.runs.wait(thread_id, "pace", input=quick_input("new"))["notes"] == ["new", *DONE]


def test_a_finished_run_cannot_be_cancelled(client, thread_id, start):
    run = start(quick_input("x"))
    client.runs.join(thread_id, run)

    with pytest.raises(NotFoundError, match="No matching runs to cancel"):
        client.runs.cancel(thread_id, run)


def test_a_missing_run_cannot_be_cancelled(client, thread_id):
    with pytest.raises(NotFoundError, match="No matching runs to cancel"):
        client.runs.cancel(thread_id, str(uuid4()))


def test_an_unknown_cancel_action_is_rejected(client, thread_id, running):
    with pytest.raises(APIStatusError) as caught:
        client.runs.cancel(thread_id, running, action="pause")

    assert caught.value.status_code == 422
    assert run_status(client, thread_id, running) == "running"


def test_several_runs_are_cancelled_by_id(client, thread_id, running, start):
    queued = [start(quick_input(str(n))) for n in range(3)]

    client.runs.cancel_many(thread_id=thread_id, run_ids=queued[:2])

    states = [run_status(client, thread_id, run) for run in (running, *queued)]
    assert states == ["running", "interrupted", "interrupted", "pending"]


def test_several_runs_are_rolled_back_by_id(client, thread_id, running, start):
    queued = [start(quick_input(str(n))) for n in range(2)]

    client.runs.cancel_many(thread_id=thread_id, run_ids=queued, action="rollback")

    assert [run["run_id"] for run in client.runs.list(thread_id)] == [running]


def test_cancelling_missing_runs_is_not_found(client, thread_id):
    with pytest.raises(NotFoundError, match="No runs found to cancel"):
        client.runs.cancel_many(thread_id=thread_id, run_ids=[str(uuid4())])


@pytest.mark.parametrize("body", [{}, {"run_ids": [UNKNOWN_ID]}, {"status": "done"}])
def test_cancelling_without_a_selection_is_rejected(client, body):
    response = client.http.client.post("/runs/cancel", json=body)

    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)


# 7.4 Changes of a busy thread


def test_metadata_is_updated_during_a_run(client, thread_id, running):
    assert client.threads.update(thread_id, metadata={"a": 1})["metadata"]["a"] == 1


def test_the_state_cannot_be_updated_during_a_run(client, thread_id, running):
    with pytest.raises(ConflictError):
        client.threads.update_state(thread_id, {"notes": ["x"]})


def test_a_thread_is_deleted_during_a_run(client, thread_id, running):
    client.threads.delete(thread_id)

    with pytest.raises(NotFoundError):
        client.threads.get(thread_id)


# 7.5 Disconnects


def disconnect_after(client, method, path, body=None, *, marker):
    """Open a stream, disconnect when a line contains `marker` and return the run id."""
    with client.http.client.stream(method, path, json=body) as response:
        location = response.headers.get("content-location") or ""
        for line in response.iter_lines():
            if marker in line:
                break
    return location.rpartition("/")[2]


@pytest.mark.parametrize(
    ("on_disconnect", "seconds", "expected"),
    [("cancel", 100, "interrupted"), ("continue", 1, "success")],
)
def test_disconnecting_from_a_stream_applies_on_disconnect(
    client, thread_id, on_disconnect, seconds, expected
):
    body = {
        "assistant_id": "pace", "input": slow_input(seconds=seconds), "stream_mode": "updates",
        "on_disconnect": on_disconnect,
    }  # fmt: skip

    run = disconnect_after(client, "POST", f"/threads/{thread_id}/runs/stream", body, marker="plan")

    wait_until(lambda: run_status(client, thread_id, run) == expected, f"the run is {expected}")


def test_disconnecting_continues_the_run_by_default(client, thread_id):
    body = {"assistant_id": "pace", "input": slow_input(seconds=1), "stream_mode": "updates"}

    run = disconnect_after(client, "POST", f"/threads/{thread_id}/runs/stream", body, marker="plan")

    wait_until(lambda: run_status(client, thread_id, run) == "success", "the run goes on")


@pytest.mark.parametrize("value", ["true", "1"])
def test_disconnecting_from_a_join_cancels_the_run_on_request(client, thread_id, running, value):
    path = f"/threads/{thread_id}/runs/{running}/join?cancel_on_disconnect={value}"
    with (
        pytest.raises(httpx.ReadTimeout),
        client.http.client.stream("GET", path, timeout=httpx.Timeout(5, read=0.3)) as response,
    ):
        response.read()

    wait_until(lambda: run_status(client, thread_id, running) == "interrupted", "the run stops")


# 7.6 and 7.7


def test_a_run_id_in_the_body_is_ignored(client, thread_id):
    run_id = str(uuid4())
    body = {"assistant_id": "pace", "input": quick_input("x"), "run_id": run_id}

    runs = [client.http.post(f"/threads/{thread_id}/runs", json=body) for _ in range(2)]

    assert len({run_id, *(run["run_id"] for run in runs)}) == 3


def test_a_stream_names_its_attempt(client, thread_id):
    parts = client.runs.stream(thread_id, "pace", input=quick_input("x"))

    first = next(iter(parts))
    assert (first.event, first.data["attempt"]) == ("metadata", 1)
