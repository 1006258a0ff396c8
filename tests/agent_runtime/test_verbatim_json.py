"""Inputs reach graphs as they were sent, and states are read as the graph wrote them."""

from __future__ import annotations

import json

import pytest

from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs, checkpoints, threads
from apps.deployments import routes
from apps.deployments.models import RevisionGraph
from tests.agent_runtime.factories import execute
from tests.factories.api_keys import key_for

# Keys out of order, U+0000, integers beyond 64 bits, floats that look like integers.
ITEM = (
    r'{"zebra":1,"a":{"nul":"\u0000","text":"\\u0000"},"long":123456789012345678901234567890,'
    r'"float":1e16,"one":1.0,"minus":-0.0,"":[]}'
)
BODY = '{"assistant_id":"collect","input":{"items":[%s]}}' % ITEM  # noqa: UP031  (braces of JSON)


def parse(text: str | bytes) -> str:
    """The JSON text in a form that keeps order and types apart."""
    return repr(json.loads(text))


@pytest.fixture
def call(client, revision):
    """Return a function that sends a body to the agent of the engine's revision."""
    for graph_id in ("collect", "ask"):
        RevisionGraph.unscoped.create(
            workspace=revision.workspace, revision=revision, graph_id=graph_id
        )
    key = key_for(revision.workspace, "write")

    def call(method, path, body=None):
        response = getattr(client, method)(
            f"/agents/{revision.deployment.slug}{path}",
            data=body,
            content_type="application/json",
            headers={"X-Api-Key": key},
        )
        assert response.status_code < 300, response.content
        return response.content

    yield call
    routes.clear_cache()


@pytest.fixture
def finished(engine, call, listen):
    """The id of a thread whose run has collected the item."""
    thread_id = json.loads(call("post", "/threads", "{}"))["thread_id"]
    run = json.loads(call("post", f"/threads/{thread_id}/runs", BODY))
    thread = Thread.unscoped.get(thread_id=thread_id)
    execute(engine, thread)
    assert list(listen(run["run_id"]))[-1] == ("end", {"status": "success"})
    return thread_id


def test_input_reaches_the_graph_and_the_state_as_it_was_sent(call, finished):
    expected = parse(f'{{"items":[{ITEM}]}}')
    read = {
        "state": json.loads(call("get", f"/threads/{finished}/state"))["values"],
        "selected": json.loads(call("get", f"/threads/{finished}/state?select=values"))["values"],
        "thread": json.loads(call("get", f"/threads/{finished}"))["values"],
        "search": json.loads(call("post", "/threads/search", "{}"))[0]["values"],
        "input": json.loads(call("get", f"/threads/{finished}/runs"))[0]["kwargs"]["input"],
        "copy": json.loads(call("post", f"/threads/{finished}/copy", "{}"))["values"],
    }

    assert {name: repr(value) for name, value in read.items()} == dict.fromkeys(read, expected)


def test_interrupts_answers_and_history_are_read_as_they_were_written(engine, call, listen):
    """A page that asks for an approval shows the arguments in their order after a reload."""
    item = ITEM.replace('"long":123456789012345678901234567890,', "")
    thread_id = json.loads(call("post", "/threads", "{}"))["thread_id"]
    thread = Thread.unscoped.get(thread_id=thread_id)
    for body in (f'"input":{{"question":{item}}}', f'"command":{{"resume":{item}}}'):
        run = json.loads(
            call("post", f"/threads/{thread_id}/runs", f'{{"assistant_id":"ask",{body}}}')
        )
        execute(engine, thread)
        assert list(listen(run["run_id"]))[-1] == ("end", {"status": "success"})
        if "input" in body:
            state = json.loads(call("get", f"/threads/{thread_id}/state"))
            earlier = json.loads(call("get", f"/threads/{thread_id}/history"))[0]
            listed = json.loads(call("get", f"/threads/{thread_id}"))["interrupts"]
            [match] = json.loads(call("post", "/threads/search", '{"status":"interrupted"}'))
    history = json.loads(call("get", f"/threads/{thread_id}/history"))
    answer = json.loads(call("get", f"/threads/{thread_id}/state"))["values"]["answer"]

    read = {
        "state": state["tasks"][0]["interrupts"][0]["value"],
        "thread": next(iter(listed.values()))[0]["value"],
        "search": next(iter(match["interrupts"].values()))[0]["value"],
        "answer": answer,
        "history": history[0]["values"]["answer"],
        "interrupt in history": earlier["tasks"][0]["interrupts"][0]["value"],
        "values in history": earlier["values"]["question"],
    }
    assert {name: repr(value) for name, value in read.items()} == dict.fromkeys(read, parse(item))


def test_state_of_a_copy_has_the_values_and_its_own_id(call, finished):
    copy = json.loads(call("post", f"/threads/{finished}/copy", "{}"))["thread_id"]

    state = json.loads(call("get", f"/threads/{copy}/state"))

    assert repr(state["values"]) == parse(f'{{"items":[{ITEM}]}}')
    assert state["checkpoint"]["thread_id"] == copy


def test_threads_with_such_values_are_searched_and_extracted(call, finished):
    def count(values):
        return len(json.loads(call("post", "/threads/search", json.dumps({"values": values}))))

    assert count({"items": [{"zebra": 1}]}) == 1
    assert count({"items": [{"a": {"nul": "\x00"}}]}) == 1  # both sides have U+FFFD
    assert count({"items": [{"a": {"text": "\\u0000"}}]}) == 1
    assert count({"items": [{"zebra": 2}]}) == 0
    body = json.dumps({"extract": {"text": "values.items[0].a.text"}, "select": ["thread_id"]})
    [row] = json.loads(call("post", "/threads/search", body))
    assert row["extracted"] == {"text": "\\u0000"}


def test_cron_keeps_its_input(call, revision):
    cron = json.loads(
        call("post", "/runs/crons", BODY[:-1] + ',"schedule":"0 0 1 1 *","metadata":{}}')
    )

    assert repr(cron["payload"]["input"]) == parse(f'{{"items":[{ITEM}]}}')


def test_rolled_back_thread_reads_a_state_with_nul(finished, revision):
    # The statement of the rollback converts the state, which `jsonb` would reject.
    scope = Scope(routes.find_route(revision.deployment.slug))
    thread = Thread.unscoped.get(thread_id=finished)
    run = AgentRun.unscoped.get(thread=thread)
    AgentRun.unscoped.filter(pk=run.pk).update(status="pending")

    cancel_runs.cancel(scope, "rollback", thread_id=thread.thread_id)

    assert threads.get(scope, thread.thread_id).status == "idle"
    assert checkpoints.copy(scope, thread.thread_id, {}).values is not None
