"""Section 7: the queue of a thread, double texting, cancelling, disconnects."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.errors import APIStatusError, ConflictError, NotFoundError

# Test ids must be the same in every worker, so this is no random one.
NOBODY = "6f1e3d0a-0000-4000-8000-000000000000"

BUSY = (
    "Thread is already running a task. Wait for it to finish or choose a different multitask"
    " strategy."
)
DONE = ["plan", "write", "review"]


def slow(note: str = "slow", seconds: float = 20, node: str = "write") -> dict:
    """Input of a run that is slow in one node only: the nodes before it finish at once."""
    return {"notes": [note], "sleep": seconds, "slow": node}


def quick(note: str) -> dict:
    return {"notes": [note], "sleep": 0}


@pytest.fixture
def thread(client):
    return client.threads.create()["thread_id"]


@pytest.fixture
def start(client, thread):
    """Starts a run on the thread."""

    def create(input_: dict | None, **options):
        return client.runs.create(thread, "pace", input=input_, **options)["run_id"]

    return create


@pytest.fixture
def busy(client, thread, start):
    """A run in the middle: `plan` is done, `write` takes long."""
    run_id = start(slow())
    until(lambda: client.threads.get_state(thread)["next"] == ["write"], "the second step")
    return run_id


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def status(client, thread, run_id):
    return client.runs.get(thread, run_id)["status"]


def notes(client, thread):
    return client.threads.get_state(thread)["values"]["notes"]


def is_gone(client, thread, run_id):
    try:
        client.runs.get(thread, run_id)
    except NotFoundError as error:
        return "not found" in str(error).lower()
    return False


# 7.1 The queue


def test_runs_of_a_thread_execute_one_after_the_other_in_order(client, thread, start):
    runs = [start(quick(str(number))) for number in range(5)]

    client.runs.join(thread, runs[-1])

    expected = [note for number in range(5) for note in (str(number), *DONE)]
    assert notes(client, thread) == expected
    assert {run["status"] for run in client.runs.list(thread)} == {"success"}


def test_runs_of_different_threads_execute_at_once(client):
    threads = [client.threads.create()["thread_id"] for _ in range(5)]

    runs = [client.runs.create(t, "pace", input=slow(seconds=60)) for t in threads]

    until(
        lambda: all(client.threads.get_state(t)["next"] == ["write"] for t in threads),
        "all runs are in their second step at once",
        seconds=50,
    )
    for run in runs:
        client.runs.cancel(run["thread_id"], run["run_id"], wait=True)


def test_a_thread_is_busy_between_queued_runs(client, thread, busy, start):
    queued = start(quick("next"))

    assert client.threads.get(thread)["status"] == "busy"
    assert [status(client, thread, run) for run in (busy, queued)] == ["running", "pending"]


def test_a_delayed_run_starts_when_it_is_due(client, thread, start):
    began = time.time()
    run = client.runs.create(thread, "pace", input=quick("late"), after_seconds=1)

    client.runs.join(thread, run["run_id"])

    waited = time.time() - began
    assert 1 <= waited < 15
    assert notes(client, thread) == ["late", *DONE]


def test_a_delayed_run_is_created_in_the_future_and_occupies_the_thread(client, thread):
    run = client.runs.create(thread, "pace", input=quick("late"), after_seconds=60)

    created, updated = (datetime.fromisoformat(run[f]) for f in ("created_at", "updated_at"))
    assert 50 < (created - updated).total_seconds() < 70
    assert run["status"] == "pending"
    assert client.threads.get(thread)["status"] == "busy"
    with pytest.raises(ConflictError, match="already running a task"):
        client.runs.create(thread, "pace", input={}, multitask_strategy="reject")


def test_an_undelayed_run_passes_a_delayed_one(client, thread):
    late = client.runs.create(thread, "pace", input=quick("late"), after_seconds=60)["run_id"]

    client.runs.wait(thread, "pace", input=quick("now"))

    assert notes(client, thread) == ["now", *DONE]
    assert status(client, thread, late) == "pending"
    assert client.threads.get(thread)["status"] == "busy"


def test_a_node_sees_who_it_is(client, thread):
    run = client.runs.create(
        thread, "context", input={"question": "who"}, config={"configurable": {"mine": "m"}}
    )
    client.runs.join(thread, run["run_id"])

    seen = client.threads.get_state(thread)["values"]["seen"]["configurable"]
    assert seen["mine"] == "m"
    assert seen["run_id"] == run["run_id"]
    assert seen["thread_id"] == thread
    assert seen["graph_id"] == "context"
    assert seen["assistant_id"] == run["assistant_id"]
    assert seen["checkpoint_ns"].startswith("node:")
    assert {"user_id", "langgraph_request_id"} <= set(seen)


def test_a_nodes_metadata_names_run_and_attempt(client, thread):
    run = client.runs.create(thread, "context", input={}, metadata={"topic": "tea"})
    client.runs.join(thread, run["run_id"])

    metadata = client.threads.get_state(thread)["values"]["seen"]["metadata"]
    expected = {
        "topic": "tea",
        "run_id": run["run_id"],
        "thread_id": thread,
        "graph_id": "context",
        "assistant_id": run["assistant_id"],
        "run_attempt": 1,
    }
    assert expected.items() <= metadata.items()


def test_context_reaches_the_graph_as_its_schema_knows_it(client, thread):
    context = {"tone": "stern", "length": 7, "unknown": "x"}

    answer = client.runs.wait(thread, "context", input={}, context=context)

    assert answer["answer"] == "stern 7"
    assert answer["seen"]["configurable"]["unknown"] == "x"


# 7.2 Double texting


def test_reject_refuses_and_changes_nothing(client, thread, busy, start):
    before = client.threads.get(thread)

    with pytest.raises(ConflictError) as refusal:
        start({}, multitask_strategy="reject")

    assert refusal.value.response.json()["detail"] == BUSY
    assert client.threads.get(thread) == before
    assert [run["run_id"] for run in client.runs.list(thread)] == [busy]


@pytest.mark.parametrize("strategy", ["reject", "enqueue", "interrupt", "rollback"])
def test_every_strategy_runs_at_once_on_an_idle_thread(client, thread, strategy):
    answer = client.runs.wait(thread, "pace", input=quick("first"), multitask_strategy=strategy)

    assert answer["notes"] == ["first", *DONE]
    assert client.runs.list(thread)[0]["multitask_strategy"] == strategy


def test_enqueue_is_the_default(client, thread, busy, start):
    run = client.runs.create(thread, "pace", input=quick("next"))

    assert (run["status"], run["multitask_strategy"]) == ("pending", "enqueue")


def test_interrupt_stops_the_run_and_keeps_its_finished_steps(client, thread, busy, start):
    new = start(quick("new"), multitask_strategy="interrupt")
    client.runs.join(thread, new)

    assert [status(client, thread, run) for run in (busy, new)] == ["interrupted", "success"]
    assert notes(client, thread) == ["slow", "plan", "new", *DONE]


def test_interrupt_kills_the_queue_as_well(client, thread, busy, start):
    queued = [start(quick(f"queued {n}")) for n in range(2)]

    new = start(quick("new"), multitask_strategy="interrupt")
    at_once = [status(client, thread, run) for run in queued]
    client.runs.join(thread, new)

    assert at_once == ["interrupted", "interrupted"]
    assert notes(client, thread) == ["slow", "plan", "new", *DONE]


def test_interrupt_kills_delayed_runs(client, thread, start):
    delayed = start(quick("late"), after_seconds=1)

    new = start(quick("new"), multitask_strategy="interrupt")
    client.runs.join(thread, new)

    assert status(client, thread, delayed) == "interrupted"
    assert client.threads.get(thread)["status"] == "idle"
    assert notes(client, thread) == ["new", *DONE]


def test_the_checkpoints_of_an_interrupted_run_stay_in_history(client, thread, busy, start):
    client.runs.join(thread, start(quick("new"), multitask_strategy="interrupt"))

    history = client.threads.get_history(thread, limit=20)
    of_old = [state for state in history if state["metadata"]["run_id"] == busy]
    assert [state["metadata"]["step"] for state in of_old] == [1, 0, -1]


def test_the_join_of_an_interrupted_run_answers_values(client, thread, busy, start):
    new = start(quick("new"), multitask_strategy="interrupt")
    client.runs.join(thread, new)

    assert client.runs.join(thread, busy)["notes"] == ["slow", "plan", "new", *DONE]


def test_a_superseding_run_shows_in_the_threads_error_until_it_ends(client, thread, busy, start):
    new = start(slow("new", seconds=1), multitask_strategy="interrupt")
    during = client.threads.get(thread)
    client.runs.join(thread, new)
    after = client.threads.get(thread)

    assert during["status"] == "busy"
    assert during["error"] == {
        "error": "UserInterrupt", "message": f"superseded by run {new}"
    }  # fmt: skip
    assert (after["status"], after["error"]) == ("idle", None)


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
def test_the_stream_of_a_superseded_run_ends_without_an_error(client, thread, start, strategy):
    events = []
    for part in client.runs.stream(thread, "pace", input=slow(), stream_mode="updates"):
        events.append(part.event)
        if part.event == "updates" and "plan" in part.data:
            new = start(quick("new"), multitask_strategy=strategy)

    client.runs.join(thread, new)
    assert "error" not in events
    assert events[:2] == ["metadata", "updates"]


def test_rollback_deletes_the_run_and_all_it_saved(client, thread, busy, start):
    new = start(quick("new"), multitask_strategy="rollback")
    client.runs.join(thread, new)

    assert is_gone(client, thread, busy)
    history = client.threads.get_history(thread, limit=20)
    assert {state["metadata"]["run_id"] for state in history} == {new}
    assert notes(client, thread) == ["new", *DONE]


def test_rollback_starts_from_the_state_before(client, thread, start):
    client.runs.wait(thread, "pace", input=quick("first"))
    old = start(slow("old"))
    until(lambda: client.threads.get_state(thread)["next"] == ["write"], "the second step")

    client.runs.join(thread, start(quick("new"), multitask_strategy="rollback"))

    assert is_gone(client, thread, old)
    assert notes(client, thread) == ["first", *DONE, "new", *DONE]


def test_rollback_deletes_the_queue_and_delayed_runs(client, thread, busy, start):
    queued, delayed = start(quick("queued")), start(quick("late"), after_seconds=1)

    new = start(quick("new"), multitask_strategy="rollback")
    gone = [is_gone(client, thread, run) for run in (queued, delayed)]
    client.runs.join(thread, new)

    assert gone == [True, True]
    assert [run["run_id"] for run in client.runs.list(thread)] == [new]
    assert notes(client, thread) == ["new", *DONE]


def test_a_rolled_back_run_joins_as_nothing(client, thread, start):
    old = start(slow())
    until(lambda: client.threads.get_state(thread)["next"] == ["write"], "the second step")
    answers = []
    with client.http.client.stream("GET", f"/threads/{thread}/runs/{old}/join") as response:
        new = start(quick("new"), multitask_strategy="rollback")
        answers.append(b"".join(response.iter_raw()))

    client.runs.join(thread, new)
    assert answers[0].strip() == b"{}"


def test_the_newest_of_several_superseding_runs_wins(client, thread, busy, start):
    first = start(quick("first"), multitask_strategy="interrupt")
    second = start(quick("second"), multitask_strategy="rollback")
    third = start(quick("third"), multitask_strategy="interrupt")
    client.runs.join(thread, third)

    open_ = {"pending", "running"}
    left = {run["run_id"]: run["status"] for run in client.runs.list(thread)}
    assert left[third] == "success"
    assert not open_.intersection(left.values())
    assert set(left) <= {busy, first, second, third}
    assert notes(client, thread)[-4:] == ["third", *DONE]


def test_a_queued_run_waits_for_one_that_superseded(client, thread, busy, start):
    superseding = start(quick("new"), multitask_strategy="interrupt")
    queued = start(quick("queued"))
    client.runs.join(thread, queued)

    runs = [busy, superseding, queued]
    assert [status(client, thread, r) for r in runs] == ["interrupted", "success", "success"]
    assert notes(client, thread) == ["slow", "plan", "new", *DONE, "queued", *DONE]


def test_rolling_back_a_planned_answer_leaves_the_question(client, thread):
    client.runs.wait(thread, "human", input={"notes": ["asked"], "ask": 1})
    asked = client.threads.get(thread)

    run = client.runs.create(thread, "human", command={"resume": "yes"}, after_seconds=30)["run_id"]
    client.runs.cancel(thread, run, action="rollback", wait=True)

    again = client.threads.get(thread)
    assert (again["status"], again["interrupts"]) == (asked["status"], asked["interrupts"])
    answer = client.runs.wait(thread, "human", command={"resume": "no"})
    assert answer["notes"][-2:] == ["answer 0: no", "sent"]


# 7.3 Cancelling


def test_cancel_answers_before_the_run_has_stopped(client, thread, busy):
    response = client.http.client.post(f"/threads/{thread}/runs/{busy}/cancel")

    assert (response.status_code, response.content) == (202, b"")


def test_cancel_with_wait_answers_when_it_has(client, thread, busy):
    path = f"/threads/{thread}/runs/{busy}/cancel"
    response = client.http.client.post(path, params={"wait": 1})

    assert (response.status_code, response.json()) == (200, {})
    assert response.headers["location"] == f"/threads/{thread}/runs/{busy}/join"
    assert status(client, thread, busy) == "interrupted"


def test_a_cancelled_run_keeps_its_state_and_can_go_on(client, thread, busy, start):
    client.runs.cancel(thread, busy, wait=True)

    cancelled = client.threads.get(thread)
    assert (cancelled["status"], cancelled["error"]) == ("interrupted", None)
    assert cancelled["values"]["notes"] == ["slow", "plan"]
    client.threads.update_state(thread, {"sleep": 0}, as_node="plan")
    client.runs.wait(thread, "pace", input=None)
    assert notes(client, thread) == ["slow", *DONE]


def test_a_cancelled_run_answers_its_waiter_with_values(client, thread, busy):
    client.runs.cancel(thread, busy, wait=True)

    assert client.runs.join(thread, busy)["notes"] == ["slow", "plan"]


def test_cancel_with_rollback_takes_the_run_away(client, thread, busy):
    client.runs.cancel(thread, busy, wait=True, action="rollback")

    assert is_gone(client, thread, busy)
    found = client.threads.get(thread)
    assert (found["status"], found["values"]) == ("idle", None)
    assert client.threads.get_history(thread) == []


def test_cancel_with_rollback_brings_an_earlier_status_back(client, thread, start):
    with pytest.raises(Exception, match="no such city"):
        client.runs.wait(thread, "faults", input={"kind": "value"})
    failed = client.threads.get(thread)

    run = start(slow())
    until(lambda: client.threads.get_state(thread)["next"] == ["write"], "the second step")
    client.runs.cancel(thread, run, wait=True, action="rollback")

    again = client.threads.get(thread)
    assert again["status"] == failed["status"] == "error"
    assert again["error"] == failed["error"]


def test_a_pending_run_is_cancelled_without_touching_the_running_one(client, thread, busy, start):
    queued = start(quick("queued"))

    client.runs.cancel(thread, queued)

    assert [status(client, thread, r) for r in (busy, queued)] == ["running", "interrupted"]
    assert client.threads.get(thread)["status"] == "busy"


def test_a_pending_run_is_rolled_back_at_once(client, thread, busy, start):
    queued = start(quick("queued"))

    client.runs.cancel(thread, queued, action="rollback")

    assert is_gone(client, thread, queued)
    assert status(client, thread, busy) == "running"


def test_cancelling_a_delayed_run_frees_the_thread(client, thread, start):
    run = start(quick("late"), after_seconds=60)

    client.runs.cancel(thread, run, wait=True)

    assert status(client, thread, run) == "interrupted"
    assert client.threads.get(thread)["status"] == "interrupted"
    assert client.runs.wait(thread, "pace", input=quick("new"))["notes"] == ["new", *DONE]


def test_a_finished_run_cannot_be_cancelled(client, thread, start):
    run = start(quick("x"))
    client.runs.join(thread, run)

    with pytest.raises(NotFoundError, match="No matching runs to cancel"):
        client.runs.cancel(thread, run)


def test_a_run_that_is_not_there_cannot_be_cancelled(client, thread):
    with pytest.raises(NotFoundError, match="No matching runs to cancel"):
        client.runs.cancel(thread, str(uuid4()))


def test_an_unknown_action_is_refused(client, thread, busy):
    with pytest.raises(APIStatusError) as refusal:
        client.runs.cancel(thread, busy, action="pause")

    assert refusal.value.status_code == 422
    assert status(client, thread, busy) == "running"


def test_several_runs_are_cancelled_by_name(client, thread, busy, start):
    queued = [start(quick(str(n))) for n in range(3)]

    client.runs.cancel_many(thread_id=thread, run_ids=queued[:2])

    states = [status(client, thread, run) for run in (busy, *queued)]
    assert states == ["running", "interrupted", "interrupted", "pending"]


def test_several_runs_are_rolled_back_by_name(client, thread, busy, start):
    queued = [start(quick(str(n))) for n in range(2)]

    client.runs.cancel_many(thread_id=thread, run_ids=queued, action="rollback")

    assert [run["run_id"] for run in client.runs.list(thread)] == [busy]


def test_cancelling_runs_that_are_not_there_says_so(client, thread):
    with pytest.raises(NotFoundError, match="No runs found to cancel"):
        client.runs.cancel_many(thread_id=thread, run_ids=[str(uuid4())])


@pytest.mark.parametrize("body", [{}, {"run_ids": [NOBODY]}, {"status": "done"}])
def test_cancelling_must_say_what(client, body):
    response = client.http.client.post("/runs/cancel", json=body)

    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)


# 7.4 What may be done while a thread is busy


def test_metadata_may_change_while_a_run_is_under_way(client, thread, busy):
    assert client.threads.update(thread, metadata={"a": 1})["metadata"]["a"] == 1


def test_the_state_may_not_be_updated_while_a_run_is_under_way(client, thread, busy):
    with pytest.raises(ConflictError):
        client.threads.update_state(thread, {"notes": ["x"]})


def test_a_thread_may_be_deleted_while_a_run_is_under_way(client, thread, busy):
    client.threads.delete(thread)

    with pytest.raises(NotFoundError):
        client.threads.get(thread)


# 7.5 Disconnects


def leave(client, method, path, body=None, *, after):
    """Open a stream and hang up once a line holds that text."""
    with client.http.client.stream(method, path, json=body) as response:
        place = response.headers.get("content-location") or ""
        for line in response.iter_lines():
            if after in line:
                break
    return place.rpartition("/")[2]


@pytest.mark.parametrize(("wish", "left"), [("cancel", "interrupted"), ("continue", "success")])
def test_who_leaves_a_stream_takes_the_run_along_if_they_said_so(client, thread, wish, left):
    body = {
        "assistant_id": "pace", "input": slow(seconds=1.5), "stream_mode": "updates",
        "on_disconnect": wish,
    }  # fmt: skip

    run = leave(client, "POST", f"/threads/{thread}/runs/stream", body, after="plan")

    until(lambda: status(client, thread, run) == left, f"the run is {left}")


def test_who_leaves_leaves_the_run_by_default(client, thread):
    body = {"assistant_id": "pace", "input": slow(seconds=1), "stream_mode": "updates"}

    run = leave(client, "POST", f"/threads/{thread}/runs/stream", body, after="plan")

    until(lambda: status(client, thread, run) == "success", "the run goes on")


@pytest.mark.parametrize("value", ["true", "1"])
def test_who_leaves_a_join_may_take_the_run_along(client, thread, busy, value):
    path = f"/threads/{thread}/runs/{busy}/join?cancel_on_disconnect={value}"
    with (
        pytest.raises(httpx.ReadTimeout),
        client.http.client.stream("GET", path, timeout=httpx.Timeout(5, read=0.3)) as response,
    ):
        response.read()

    until(lambda: status(client, thread, busy) == "interrupted", "the run stops")


# 7.6 and 7.7


def test_a_run_id_in_the_body_is_ignored(client, thread):
    given = str(uuid4())
    body = {"assistant_id": "pace", "input": quick("x"), "run_id": given}

    runs = [client.http.post(f"/threads/{thread}/runs", json=body) for _ in range(2)]

    assert len({given, *(run["run_id"] for run in runs)}) == 3


def test_a_stream_says_which_attempt_it_is(client, thread):
    parts = client.runs.stream(thread, "pace", input=quick("x"))

    first = next(iter(parts))
    assert (first.event, first.data["attempt"]) == ("metadata", 1)
