"""Runs from a database row to their end, on a real graph host."""

from __future__ import annotations

from itertools import pairwise

import pytest
from django.db import connection

from apps.agent_server.models import AgentRun, Checkpoint
from tests.agent_runtime.factories import make_run, make_thread

ITEM = {"input": {"items": ["first"]}}


def execute(engine, thread):
    engine.call(engine.engine.claim_or_queue, thread.pk)


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


def test_a_question_makes_the_run_a_success_and_the_thread_interrupted(engine, revision, listen):
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
    [[asked]] = thread.interrupts.values()
    assert asked["value"] == {"question": "sure?"}
    assert thread.state["interrupts"] == [asked]

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


def test_a_run_that_is_not_yet_due_stays(engine, revision, listen):
    from datetime import timedelta

    from django.utils import timezone

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
def test_tokens_are_streamed_as_they_come(engine, revision, listen, modes, expected):
    thread = make_thread(revision)
    kwargs = {"input": {"messages": [{"role": "user", "content": "hi"}]}, "stream_mode": modes}
    run = make_run(thread, "chat", kwargs=kwargs)

    execute(engine, thread)
    events = list(listen(run.pk))

    assert [name for name, _ in events] == expected


def test_a_graph_that_is_not_there_is_an_error_of_the_run(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "nowhere", kwargs=ITEM)

    execute(engine, thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.error == {
        "error": "KeyError",
        "message": "This revision has no graph `nowhere`.",
    }


def test_the_platform_answers_questions_about_a_graph(engine, revision, listen):
    import json

    from apps.agent_runtime.graph_calls.call_session import GraphCall
    from apps.agent_runtime.hosts.launch import RevisionRef

    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs=ITEM)
    execute(engine, thread)
    list(listen(run.pk))
    ref = RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id)
    params = {"thread_id": str(thread.thread_id), "limit": 10}

    def ask(method, thread_id):
        given = json.dumps(params).encode()
        question = GraphCall(ref, "collect", method, thread_id, str(thread.thread_id), given)
        return engine.wait_for(engine.engine.call_graph(question, 20))

    state, history, stranger = (
        ask("state", thread.pk),
        ask("history", thread.pk),
        ask("state", None),
    )

    thread.refresh_from_db()
    assert json.loads(state.body) == thread.state
    assert [s["metadata"]["step"] for s in json.loads(history.body)] == [1, 0, -1]
    assert (stranger.succeeded, json.loads(stranger.body)["error"]) == (False, "Refused")


def test_a_run_that_cannot_be_given_to_its_graph_ends_with_an_error(engine, revision, listen):
    """Requests as deep as that are refused at the door; whatever comes in another way ends too."""
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
