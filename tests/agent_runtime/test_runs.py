"""Runs from a database row to their end, on a real graph host."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.utils import timezone

from apps.agent_runtime.graph_calls.call_session import GraphCall
from apps.agent_runtime.hosts.launch import RevisionRef
from apps.agent_server.models import AgentRun, Checkpoint
from tests.agent_runtime.factories import execute, make_run, make_thread

ITEM = {"input": {"items": ["first"]}}


def test_a_run_ends_with_its_state_on_the_thread(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs=ITEM)

    execute(engine, thread)
    events = list(listen(run.pk))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert events == [
        ("metadata", {"run_id": str(run.pk), "attempt": 1}),
        ("values", {"items": ["first"]}),
        ("end", {"status": "success"}),
    ]
    assert (run.status, run.attempt, run.error, run.lease_owner) == ("success", 1, None, "")
    assert (thread.status, thread.values) == ("idle", {"items": ["first"]})
    assert (thread.interrupts, thread.error) == ({}, None)
    assert (thread.state["values"], thread.state["next"]) == ({"items": ["first"]}, [])
    assert thread.state["metadata"]["run_id"] == str(run.pk)
    assert Checkpoint.objects.filter(thread=thread, run_id=run.pk).count() == 3


def test_an_error_names_its_class_and_is_the_last_event(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "fail", kwargs={"input": {"answer": "?"}})

    execute(engine, thread)
    events = list(listen(run.pk))

    run.refresh_from_db()
    thread.refresh_from_db()
    error = {"error": "LookupError", "message": "no such city"}
    assert events[-2:] == [("error", error), ("end", {"status": "error"})]
    assert (run.status, run.error) == ("error", error)
    assert (thread.status, thread.error) == ("error", error)
    assert thread.state["tasks"][0]["error"] == "LookupError('no such city')"


def test_an_interrupt_ends_the_run_as_success_and_the_thread_as_interrupted(
    engine, revision, listen
):
    thread = make_thread(revision)
    run = make_run(thread, "ask", kwargs={"input": {"answer": ""}})
    execute(engine, thread)
    list(listen(run.pk))
    thread.refresh_from_db()
    run.refresh_from_db()
    assert (run.status, thread.status, thread.state["next"]) == (
        "success",
        "interrupted",
        ["question"],
    )
    [[interrupt]] = thread.interrupts.values()
    assert interrupt["value"] == {"question": "sure?"}
    assert thread.state["interrupts"] == [interrupt]

    answer = make_run(thread, "ask", sequence=2, kwargs={"command": {"resume": "yes"}})
    execute(engine, thread)
    list(listen(answer.pk))

    thread.refresh_from_db()
    assert (thread.status, thread.values, thread.interrupts) == ("idle", {"answer": "yes"}, {})


def test_a_run_without_input_on_a_fresh_thread_fails_and_saves_nothing(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect")

    execute(engine, thread)
    events = list(listen(run.pk))

    thread.refresh_from_db()
    assert [name for name, _ in events] == ["metadata", "error", "end"]
    assert events[1][1]["error"] == "EmptyInputError"
    assert (thread.status, thread.values, thread.state) == ("error", None, None)


def test_twenty_runs_of_a_thread_run_one_by_one_in_the_order_of_their_sequence(
    engine, revision, listen
):
    thread = make_thread(revision)
    runs = [
        make_run(thread, "collect", sequence=n, kwargs={"input": {"items": [str(n)]}})
        for n in range(1, 21)
    ]

    for _ in range(3):
        execute(engine, thread)
    list(listen(runs[-1].pk))

    thread.refresh_from_db()
    assert thread.values == {"items": [str(n) for n in range(1, 21)]}
    assert thread.status == "idle"
    for run in runs:
        run.refresh_from_db()
    assert [(run.status, run.attempt) for run in runs] == [("success", 1)] * 20
    assert all(a.ended_at <= b.started_at for a, b in pairwise(runs))


def test_a_run_that_is_not_yet_due_stays_pending(engine, revision, listen):
    thread = make_thread(revision)
    planned = timezone.now() + timedelta(hours=1)
    later = make_run(thread, "collect", kwargs=ITEM, available_at=planned, created_at=planned)
    now = make_run(thread, "collect", sequence=2, kwargs=ITEM)

    execute(engine, thread)
    list(listen(now.pk))

    later.refresh_from_db()
    thread.refresh_from_db()
    assert (later.status, later.attempt, thread.status) == ("pending", 0, "busy")


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (["messages-tuple"], ["metadata", *["messages"] * 7, "end"]),
        (
            ["messages"],
            ["metadata", "messages/metadata", *["messages/partial"] * 7, "end"],
        ),
    ],
)
def test_tokens_are_streamed_as_message_events(engine, revision, listen, modes, expected):
    thread = make_thread(revision)
    kwargs = {"input": {"messages": [{"role": "user", "content": "hi"}]}, "stream_mode": modes}
    run = make_run(thread, "chat", kwargs=kwargs)

    execute(engine, thread)
    events = list(listen(run.pk))

    assert [name for name, _ in events] == expected


def test_a_run_of_an_unknown_graph_fails(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "nowhere", kwargs=ITEM)

    execute(engine, thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.error == {
        "error": "KeyError",
        "message": "This revision has no graph `nowhere`.",
    }


def test_graph_calls_return_state_and_history_of_their_own_thread(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs=ITEM)
    execute(engine, thread)
    list(listen(run.pk))
    ref = RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id)
    params = {"thread_id": str(thread.thread_id), "limit": 10}

    def call_graph(method, thread_id):
        body = json.dumps(params).encode()
        graph_call = GraphCall(ref, "collect", method, thread_id, str(thread.thread_id), body)
        return engine.run(engine.engine.call_graph(graph_call, 20))

    state, history, without_thread = (
        call_graph("state", thread.pk),
        call_graph("history", thread.pk),
        call_graph("state", None),
    )

    thread.refresh_from_db()
    assert json.loads(state.body) == thread.state
    assert [s["metadata"]["step"] for s in json.loads(history.body)] == [1, 0, -1]
    assert (without_thread.succeeded, json.loads(without_thread.body)["error"]) == (
        False,
        "Refused",
    )


def test_a_run_whose_input_cannot_be_decoded_fails(engine, revision, listen):
    """The API rejects input of this depth; such a run must end however it was created."""
    levels = 5_000
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs=ITEM)
    with connection.cursor() as cursor:
        text = '{"a":' * levels + "{}" + "}" * levels
        cursor.execute(
            "UPDATE agent_server_agentrun SET metadata = %s::jsonb WHERE id = %s", [text, run.pk]
        )

    execute(engine, thread)
    list(listen(run.pk))

    ended = AgentRun.unscoped.values("status", "error__error", "lease_owner").get(pk=run.pk)
    assert ended == {"status": "error", "error__error": "RecursionError", "lease_owner": ""}
