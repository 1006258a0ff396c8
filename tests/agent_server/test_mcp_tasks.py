"""Tool calls as tasks, for clients of 2026-07-28 that declare the extension."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from apps.agent_server.mcp import tasks
from apps.agent_server.models import AgentRun, Thread
from apps.core.sync_bridge import in_thread
from tests.agent_server.asgi import Caller
from tests.agent_server.test_mcp import (
    FORM,
    META,
    MODEL_SAYS,
    QUESTION,
    SAMPLE,
    TWO_QUESTIONS,
    accept,
    create_assistant,
    naming,
    stateless,
    user_call,
)
from tests.factories.api_keys import key_for

__all__ = ["user_call"]

EXTENSION = tasks.EXTENSION
UNKNOWN = -32602


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Calls become tasks at once."""
    monkeypatch.setattr(tasks, "TASK_AFTER_SECONDS", 0.05)


def declaring(method: str, *offered: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of a client that knows tasks and offers these capabilities."""
    body, headers = stateless(method, **params)
    capabilities: dict[str, Any] = {name: {} for name in offered}
    capabilities["extensions"] = {EXTENSION: {}}
    body["params"]["_meta"][f"{META}clientCapabilities"] = capabilities
    if "taskId" in params:
        headers["Mcp-Name"] = str(params["taskId"])
    return body, headers


async def create_task(call: Caller, *offered: str, name: str = "agent") -> dict[str, Any]:
    """Call the tool and return its task."""
    body, headers = declaring("tools/call", *offered, name=name)
    answer = await call("POST", "/mcp", body, **headers)
    result: dict[str, Any] = answer.json()["result"]
    assert result["resultType"] == "task"
    return result


async def request_task(call: Caller, method: str, task: dict[str, Any], **params: Any) -> Any:
    """The result of a method of the task, or its error."""
    body, headers = declaring(f"tasks/{method}", taskId=task["taskId"], **params)
    answer = await call("POST", "/mcp", body, **headers)
    assert answer.status == 200
    return answer.json().get("result") or answer.json()["error"]


async def test_a_long_call_is_a_task_that_ends_with_the_result(call, worker):
    created = await create_task(call)
    run = await worker.claim_run()
    working = await request_task(call, "get", created)
    await worker.end(run, values={"a": 1})
    ended_at = datetime.now(UTC) + timedelta(hours=1)
    await in_thread(lambda: AgentRun.unscoped.filter(pk=run.pk).update(updated_at=ended_at))
    completed = await request_task(call, "get", created)

    assert created.keys() == {
        *("resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"),
        *("pollIntervalMs", "_meta"),
    }
    assert (created["status"], working["status"]) == ("working", "working")
    assert (created["ttlMs"], created["pollIntervalMs"]) == (86_400_000, 1000)
    assert datetime.fromisoformat(created["createdAt"]).tzinfo is not None
    assert (completed["resultType"], completed["status"]) == ("complete", "completed")
    assert completed["createdAt"] == created["createdAt"]
    assert completed["lastUpdatedAt"] == ended_at.isoformat()
    assert completed["result"] == {
        "content": [{"type": "text", "text": '{"a":1}'}],
        "structuredContent": {"a": 1},
        "isError": False,
    }


async def test_filters_of_threads_do_not_hide_the_tool(user_call, worker):
    created = await create_task(user_call)
    await worker.end(await worker.claim_run(), values={"a": 1})

    task = await request_task(user_call, "get", created)

    assert task["status"] == "completed"
    assert task["result"]["structuredContent"] == {"a": 1}


async def test_a_call_that_ends_soon_is_answered_with_its_result(call, worker, monkeypatch):
    monkeypatch.setattr(tasks, "TASK_AFTER_SECONDS", 60)
    body, headers = declaring("tools/call", name="agent")

    async with call.open("POST", "/mcp", body, **headers) as client:
        run = await worker.claim_run()
        await worker.end(run, values={"a": 1})
        result = (await client.wait_for_end()).json()["result"]

    assert (result["resultType"], result["structuredContent"]) == ("complete", {"a": 1})
    assert (await in_thread(Thread.unscoped.get, pk=run.thread_id)).temporary  # deleted


@pytest.mark.parametrize("meta", [{}, {f"{META}clientCapabilities": {"extensions": []}}])
async def test_clients_that_do_not_know_tasks_get_none(call, worker, meta):
    body, headers = stateless("tools/call", name="agent")
    body["params"]["_meta"] |= meta

    async with call.open("POST", "/mcp", body, **headers) as client:
        await worker.end(await worker.claim_run(), result={"a": 1})
        result = (await client.wait_for_end()).json()["result"]

    assert result["resultType"] == "complete"


async def test_a_client_that_follows_the_progress_gets_no_task(call, worker):
    body, headers = declaring("tools/call", name="agent")
    body["params"]["_meta"]["progressToken"] = 1

    async with call.open("POST", "/mcp", body, **headers) as client:
        run = await worker.claim_run()
        await worker.publish(run, ("updates", {"plan": {}}))
        await client.wait_until(lambda answer: answer.events)
        await worker.end(run, result={"a": 1})
        events = (await client.wait_for_end()).events

    assert events[-1][1]["result"]["resultType"] == "complete"


async def test_a_failed_run_is_a_completed_task_that_says_so(call, worker):
    created = await create_task(call)
    error = {"error": "ValueError", "message": "no such city"}
    await worker.end(await worker.claim_run(), "error", error=error)

    task = await request_task(call, "get", created)

    assert task["status"] == "completed"
    assert task["result"]["isError"] is True
    assert task["result"]["content"][0]["text"] == "ValueError: no such city"


# Questions


async def test_a_task_asks_and_goes_on_with_the_answer(call, worker):
    created = await create_task(call, "elicitation")
    await worker.end(await worker.claim_run(), **QUESTION)
    asking = await request_task(call, "get", created)
    [(key, asked)] = asking["inputRequests"].items()
    acknowledged = await request_task(call, "update", created, inputResponses={key: accept("Rome")})
    run = await worker.claim_run()
    working = await request_task(call, "get", created)
    await worker.end(run, **QUESTION)
    again = await request_task(call, "get", created)

    assert (asking["status"], asked["params"]["message"]) == ("input_required", "Which city?")
    assert acknowledged.keys() == {"resultType", "_meta"}
    assert acknowledged["resultType"] == "complete"
    assert run.kwargs["command"]["resume"] == "Rome"
    assert (working["status"], "inputRequests" in working) == ("working", False)
    # The key of a question is never used for another one.
    assert again["status"] == "input_required"
    assert not again["inputRequests"].keys() & {key}


async def test_questions_of_a_task_are_answered_one_by_one(call, worker):
    created = await create_task(call, "elicitation")
    await worker.end(await worker.claim_run(), **TWO_QUESTIONS)
    first, second = (await request_task(call, "get", created))["inputRequests"]

    await request_task(call, "update", created, inputResponses={first: accept("Rome"), "x": 7})
    half = await request_task(call, "get", created)
    runs = await in_thread(AgentRun.unscoped.count)
    responses = {first: accept("Oslo"), second: accept("one")}
    await request_task(call, "update", created, inputResponses=responses)
    run = await worker.claim_run()
    await request_task(call, "update", created, inputResponses=responses)

    assert (half["status"], list(half["inputRequests"])) == ("input_required", [second])
    assert runs == 1
    assert run.kwargs["command"]["resume"] == {"i1": "Rome", "i2": "one"}
    assert await in_thread(AgentRun.unscoped.count) == 2


@pytest.mark.parametrize(
    "response", [7, {"action": "accept"}, {"action": "accept", "content": {"answer": 7}}]
)
async def test_a_malformed_answer_is_refused_and_not_stored(call, worker, response):
    created = await create_task(call, "elicitation")
    await worker.end(await worker.claim_run(), **QUESTION)
    [key] = (await request_task(call, "get", created))["inputRequests"]

    refused = await request_task(call, "update", created, inputResponses={key: response})
    task = await request_task(call, "get", created)

    assert refused["code"] == -32602
    assert list(task["inputRequests"]) == [key]


@pytest.mark.parametrize("responses", [[], 7, {"x": "x" * 70_000}])
async def test_responses_that_are_no_object_or_too_long_are_refused(call, worker, responses):
    created = await create_task(call, "elicitation")
    await worker.end(await worker.claim_run(), **QUESTION)
    body, headers = declaring("tasks/update", taskId=created["taskId"], inputResponses=responses)

    refused = await call("POST", "/mcp", body, **headers)

    assert refused.json()["error"]["code"] == -32602


async def test_a_user_who_declines_completes_the_task_with_a_failure(call, worker):
    created = await create_task(call, "elicitation")
    await worker.end(await worker.claim_run(), **QUESTION)
    [key] = (await request_task(call, "get", created))["inputRequests"]

    await request_task(call, "update", created, inputResponses={key: {"action": "decline"}})
    task = await request_task(call, "get", created)

    assert (task["status"], task["result"]["isError"]) == ("completed", True)
    assert await in_thread(AgentRun.unscoped.count) == 1


async def test_a_task_that_asks_for_what_its_client_lacks_has_failed(call, worker):
    created = await create_task(call, "elicitation")
    await worker.end(await worker.claim_run(), **naming(hi=SAMPLE))

    task = await request_task(call, "get", created)

    assert (task["status"], "result" in task) == ("failed", False)
    assert task["error"]["code"] == -32021
    assert task["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_a_task_asks_for_what_its_client_offered_at_first(call, worker):
    created = await create_task(call, "sampling")
    elicit = {
        "method": "elicitation/create",
        "params": {"message": "Name?", "requestedSchema": FORM},
    }
    await worker.end(await worker.claim_run(), **naming(user=elicit, hi=SAMPLE))
    [(key, asked)] = (await request_task(call, "get", created))["inputRequests"].items()
    await request_task(call, "update", created, inputResponses={key: MODEL_SAYS})
    run = await worker.claim_run()

    assert asked == SAMPLE
    assert run.kwargs["command"]["resume"] == {"user": None, "hi": MODEL_SAYS}


async def test_a_call_asks_before_it_becomes_a_task(call, worker, monkeypatch):
    monkeypatch.setattr(tasks, "TASK_AFTER_SECONDS", 60)
    body, headers = declaring("tools/call", "elicitation", name="agent")
    async with call.open("POST", "/mcp", body, **headers) as client:
        await worker.end(await worker.claim_run(), **QUESTION)
        asked = (await client.wait_for_end()).json()["result"]
    monkeypatch.setattr(tasks, "TASK_AFTER_SECONDS", 0.05)
    answers = {"requestState": asked["requestState"], "inputResponses": {"i1": accept("Rome")}}

    body, headers = declaring("tools/call", "elicitation", name="agent", **answers)
    created = (await call("POST", "/mcp", body, **headers)).json()["result"]
    run = await worker.claim_run()
    await worker.end(run, values={"city": "Rome"})
    task = await request_task(call, "get", created)

    assert (asked["resultType"], "taskId" in asked) == ("input_required", False)
    assert (created["resultType"], "requestState" in created) == ("task", False)
    assert run.kwargs["command"]["resume"] == "Rome"
    assert task["result"]["structuredContent"] == {"city": "Rome"}


# Cancellation


async def test_a_running_task_is_cancelled(call, worker):
    created = await create_task(call)
    run = await worker.claim_run()

    acknowledged = await request_task(call, "cancel", created)
    cancelled: UUID = await worker.next_cancelled_run()
    await worker.end(run, "interrupted")
    task = await request_task(call, "get", created)
    again = await request_task(call, "cancel", created)

    assert acknowledged.keys() == again.keys() == {"resultType", "_meta"}
    assert cancelled == run.pk
    assert (task["status"], task.keys() & {"result", "error"}) == ("cancelled", set())


async def test_a_pending_task_is_cancelled(call):
    created = await create_task(call)

    await request_task(call, "cancel", created)

    assert (await request_task(call, "get", created))["status"] == "cancelled"


async def test_a_task_that_asks_is_cancelled_and_takes_no_answer(call, worker):
    created = await create_task(call, "elicitation")
    await worker.end(await worker.claim_run(), **QUESTION)
    [key] = (await request_task(call, "get", created))["inputRequests"]

    await request_task(call, "cancel", created)
    await request_task(call, "update", created, inputResponses={key: accept("Rome")})
    task = await request_task(call, "get", created)

    assert (task["status"], "inputRequests" in task) == ("cancelled", False)
    assert await in_thread(AgentRun.unscoped.count) == 1


async def test_a_completed_task_stays_completed(call, worker):
    created = await create_task(call)
    await worker.end(await worker.claim_run(), values={"a": 1})

    await request_task(call, "cancel", created)

    assert (await request_task(call, "get", created))["status"] == "completed"


# Access


@pytest.mark.parametrize("method", ["get", "update", "cancel"])
async def test_a_task_belongs_to_its_caller(call, agent, method):
    created = await create_task(call)
    other = Caller(agent.slug, await in_thread(key_for, agent.workspace, "write"))

    assert (await request_task(other, method, created))["code"] == UNKNOWN
    assert (await request_task(call, method, {"taskId": created["taskId"] + "x"}))[
        "code"
    ] == UNKNOWN
    assert (await request_task(call, method, {"taskId": "x"}))["code"] == UNKNOWN
    assert (await request_task(call, "get", created))["status"] == "working"


@pytest.mark.parametrize("method", ["get", "update", "cancel"])
async def test_methods_of_tasks_require_the_extension(call, method):
    body, headers = stateless(f"tasks/{method}", taskId="x")

    answer = await call("POST", "/mcp", body, **headers, **{"Mcp-Name": "x"})

    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (400, -32021)
    assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


@pytest.mark.parametrize(("method", "status"), [("get", 200), ("update", 403), ("cancel", 403)])
def test_a_reader_changes_no_task(send, reader_key, method, status):
    body, headers = declaring(f"tasks/{method}", taskId="x")

    assert send("post", "/mcp", body, key=reader_key, **headers).status_code == status


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result", "tasks/new"])
async def test_other_methods_of_tasks_are_unknown(call, method):
    body, headers = declaring(method, taskId="x")

    answer = await call("POST", "/mcp", body, **headers)

    assert (answer.status, answer.json()["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
async def test_clients_with_a_handshake_have_no_tasks(call, method):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": "x"}}

    assert (await call("POST", "/mcp", body)).json()["error"]["code"] == -32601


async def test_the_id_of_a_task_must_be_in_the_header(call):
    created = await create_task(call)
    body, headers = declaring("tasks/get", taskId=created["taskId"])

    answer = await call("POST", "/mcp", body, **{**headers, "Mcp-Name": "other"})

    assert (answer.status, answer.json()["error"]["code"]) == (400, -32020)


async def test_a_task_expires(call, time_machine):
    created = await create_task(call)

    time_machine.move_to(datetime.now(UTC) + timedelta(days=1, seconds=1))

    assert (await request_task(call, "get", created))["code"] == UNKNOWN


async def test_a_task_ends_with_its_thread(call, worker):
    created = await create_task(call)
    run = await worker.claim_run()
    await worker.end(run, values={"a": 1})

    await in_thread(Thread.unscoped.filter(pk=run.thread_id).delete)

    assert (await request_task(call, "get", created))["code"] == UNKNOWN


async def test_a_task_ends_with_its_assistant(call, worker, agent):
    assistant = await in_thread(lambda: create_assistant(agent, "mine"))
    created = await create_task(call, name="mine")
    await worker.end(await worker.claim_run(), values={"a": 1})

    await in_thread(assistant.delete)

    assert (await request_task(call, "get", created))["code"] == UNKNOWN


async def test_the_extension_is_discovered(call):
    body, headers = stateless("server/discover")

    capabilities = (await call("POST", "/mcp", body, **headers)).json()["result"]["capabilities"]

    assert capabilities["extensions"] == {EXTENSION: {}}
