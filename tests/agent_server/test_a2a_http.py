"""The HTTP+JSON binding of A2A 1.0."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.agent_server.models import A2APushConfig, AgentRun
from tests.agent_server.test_a2a import PATH, PAUSED, ai, chunk, message, send_params

URL = "https://93.184.216.34/notify"


@pytest.fixture
def request_http(send):
    """Return a function that sends a request to a path below the agent's A2A address."""

    def request_http(method: str, path: str, body: Any = None, **options: Any):
        return send(method, f"{PATH}{path}", body, **{"A2A-Version": "1.0", **options})

    return request_http


@pytest.fixture
def start(request_http):
    def start() -> dict[str, Any]:
        params = send_params(configuration={"returnImmediately": True})
        task: dict[str, Any] = request_http("post", "/message:send", params).json()["task"]
        return task

    return start


def error_of(response) -> tuple[int, str, str]:
    error = response.json()["error"]
    assert response.status_code == error["code"]
    return error["code"], error["status"], error["details"][0]["reason"]


def test_a_task_is_sent_read_listed_and_cancelled(request_http, start):
    task = start()

    read = request_http("get", f"/tasks/{task['id']}?historyLength=0").json()
    listed = request_http("get", "/tasks?pageSize=1&includeArtifacts=true").json()
    cancelled = request_http("post", f"/tasks/{task['id']}:cancel", {}).json()
    again = request_http("post", f"/tasks/{task['id']}:cancel", {})
    canceled_only = request_http("get", "/tasks?status=TASK_STATE_CANCELED").json()

    assert read["id"] == task["id"]
    assert ("history" in task, "history" in read) == (True, False)
    assert [row["id"] for row in listed["tasks"]] == [task["id"]]
    assert (listed["pageSize"], listed["nextPageToken"]) == (1, "")
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    assert error_of(again) == (409, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")
    assert [row["id"] for row in canceled_only["tasks"]] == [task["id"]]


def test_push_configurations(request_http, start):
    path = f"/tasks/{start()['id']}/pushNotificationConfigs"

    created = request_http("post", path, {"id": "a/b", "url": URL, "token": "t"})
    created = request_http("post", path, {"id": "a", "url": URL, "token": "t"}).json()
    read = request_http("get", f"{path}/a").json()
    listed = request_http("get", path).json()
    deleted = request_http("delete", f"{path}/a")

    assert (created["id"], created["url"], created["token"]) == ("a", URL, "t")
    assert read == created
    assert [row["id"] for row in listed["configs"]] == ["a/b", "a"]
    assert (deleted.status_code, deleted.json()) == (200, {})
    assert A2APushConfig.unscoped.get().config_id == "a/b"


NOT_FOUND = (404, "NOT_FOUND", "TASK_NOT_FOUND")
INVALID = (400, "INVALID_ARGUMENT", "INVALID_PARAMS")


@pytest.mark.parametrize(
    ("method", "path", "body", "error"),
    [
        ("get", f"/tasks/{UUID(int=7)}", None, NOT_FOUND),
        ("post", f"/tasks/{UUID(int=7)}:cancel", {}, NOT_FOUND),
        ("get", f"/tasks/{UUID(int=7)}:subscribe", None, NOT_FOUND),
        ("get", "/tasks?pageSize=0", None, INVALID),
        ("get", "/tasks?pageSize=x", None, INVALID),
        ("get", "/tasks?status=DONE", None, INVALID),
        ("get", "/tasks?includeArtifacts=maybe", None, INVALID),
        ("post", "/message:send", {}, INVALID),
        ("post", "/message:send", {"message": message(parts=[])}, INVALID),
        ("post", "/message:send", [], INVALID),
        ("get", "/extendedAgentCard", None,
         (400, "UNIMPLEMENTED", "UNSUPPORTED_OPERATION")),
        ("post", "/message:send",
         {"message": message(parts=[{"raw": "dGNr", "mediaType": "application/x-unknown"}])},
         (415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")),
    ],
)  # fmt: skip
def test_errors_have_status_and_reason(request_http, method, path, body, error):
    assert error_of(request_http(method, path, body)) == error
    assert not AgentRun.unscoped.exists()


def test_other_versions_and_operations_are_refused(request_http, start):
    task = start()

    other_version = request_http("get", "/tasks", **{"A2A-Version": "0.3"})
    unknown = request_http("post", f"/tasks/{task['id']}:finish", {})

    assert error_of(other_version) == (400, "UNIMPLEMENTED", "VERSION_NOT_SUPPORTED")
    assert unknown.status_code == 404


def test_access_is_that_of_the_other_binding(request_http, start, send, reader_key, outsider_key):
    task = start()
    params = send_params()

    assert request_http("get", f"/tasks/{task['id']}", key=None).status_code == 401
    assert request_http("post", "/message:send", [], key=None).status_code == 401
    assert request_http("get", f"/tasks/{task['id']}", key=outsider_key).status_code == 404
    assert request_http("get", f"/tasks/{task['id']}", key=reader_key).status_code == 200
    for path in ("/message:send", "/message:stream", f"/tasks/{task['id']}:cancel"):
        assert request_http("post", path, params, key=reader_key).status_code == 403
    missing = send("get", f"/a2a/{uuid4()}/tasks", **{"A2A-Version": "1.0"})
    assert missing.status_code == 404


async def test_a_stream_has_bare_events(call, worker):
    async with call.open("POST", f"{PATH}/message:stream", send_params()) as client:
        run = await worker.claim_run()
        await worker.publish(run, ("metadata", {}), chunk("Hi"))
        await worker.end(run, values={"messages": [ai("Hi")]})
        answer = await client.wait_for_end()

    kinds = [next(iter(data)) for _, data, _ in answer.events]
    assert kinds == ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"]


async def test_a_send_waits_for_the_end_and_a_subscription_follows(call, worker):
    async with call.open("POST", f"{PATH}/message:send", send_params()) as client:
        await worker.end(await worker.claim_run(), values={}, **PAUSED)
        task = (await client.wait_for_end()).json()["task"]
    subscribe = f"{PATH}/tasks/{task['id']}:subscribe"
    async with call.open("GET", subscribe) as client:
        await client.wait_until(lambda answer: answer.events)
        await call("POST", f"{PATH}/tasks/{task['id']}:cancel", {})
        answer = await client.wait_for_end()

    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    last = answer.events[-1][1]["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_CANCELED"


async def test_an_error_in_a_stream_is_an_event_of_its_own(call, worker):
    async with call.open("POST", f"{PATH}/message:send", send_params()) as client:
        await worker.end(await worker.claim_run(), values={}, **PAUSED)
        task = (await client.wait_for_end()).json()["task"]
    async with call.open("GET", f"{PATH}/tasks/{task['id']}:subscribe") as client:
        await client.wait_until(lambda answer: answer.events)
        await call("DELETE", f"/threads/{task['contextId']}")
        answer = await client.wait_for_end()

    name, data, _ = answer.events[-1]
    assert (name, data["error"]["status"]) == ("error", "NOT_FOUND")
    assert data["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
