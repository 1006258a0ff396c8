"""Push notifications of A2A tasks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from apps.agent_server.a2a import statements
from apps.agent_server.models import A2APushConfig, A2ATask, AgentRun, Thread
from apps.agent_server.services import a2a_push, webhooks
from apps.core.json import loads
from apps.deployments import routes
from apps.deployments.models import Revision
from apps.webhooks import delivery_queue, delivery_request, resolution
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.models import Delivery
from tests.agent_server.test_a2a import PATH, VERSION, error_of, rpc, send_params
from tests.receiver import Receiver

URL = "https://93.184.216.34/notify"
SECRETS = {
    "token": "t0ken",
    "authentication": {"scheme": "Bearer", "credentials": "s3cret"},
}
LEGACY = {"A2A-Version": "0.3"}
LEGACY_SECRETS = {
    "token": "t0ken",
    "authentication": {"schemes": ["Bearer"], "credentials": "s3cret"},
}


@pytest.fixture
def post(send):
    def post(body: Any, **options: Any):
        return send("post", PATH, body, **{**VERSION, **options})

    return post


@pytest.fixture
def start(post):
    """Return a function that starts a task without waiting for its end."""

    def start(**configuration: Any) -> str:
        params = send_params(configuration={"returnImmediately": True, **configuration})
        task_id: str = post(rpc("SendMessage", params)).json()["result"]["task"]["id"]
        return task_id

    return start


@pytest.fixture
def configure(post):
    """Return a function that adds a configuration to a task."""

    def configure(task_id: str, **fields: Any) -> dict[str, Any]:
        params = {"taskId": task_id, "url": URL, **fields}
        result: dict[str, Any] = post(rpc("CreateTaskPushNotificationConfig", params)).json()
        return result["result"]

    return configure


def end_run(task_id: str, status: str = "success", **thread: Any) -> A2ATask:
    """End the task's run as the engine does."""
    task = A2ATask.unscoped.get(pk=task_id)
    AgentRun.unscoped.filter(pk=task.run_id).update(status=status)
    Thread.unscoped.filter(pk=task.thread_id).update(**thread)
    with connection.cursor() as cursor:
        for statement in (statements.END_TASKS, statements.ADD_PUSHES_OF_ENDED):
            cursor.execute(statement, [[task.run_id]])
    task.refresh_from_db()
    return task


def messages(text: str) -> dict[str, Any]:
    return {"messages": [{"type": "ai", "id": "m", "content": text}]}


def sent() -> list[dict[str, Any]]:
    """The bodies of all deliveries, in the order of their rows."""
    requests = [a2a_push.build_request(row) for row in Delivery.unscoped.order_by("created_at")]
    return [loads(request.body) for request in requests]


def states() -> list[str]:
    return [body["statusUpdate"]["status"]["state"] for body in sent() if "statusUpdate" in body]


# Configurations


def test_a_configuration_is_set_read_listed_and_deleted(post, start, configure):
    task_id = start()

    created = configure(task_id, id="first", **SECRETS)
    named = configure(task_id)
    read = post(rpc("GetTaskPushNotificationConfig", {"taskId": task_id, "id": "first"})).json()
    listed = post(rpc("ListTaskPushNotificationConfigs", {"taskId": task_id})).json()["result"]
    page = {"taskId": task_id, "pageSize": 1}
    first = post(rpc("ListTaskPushNotificationConfigs", page)).json()["result"]
    page["pageToken"] = first["nextPageToken"]
    second = post(rpc("ListTaskPushNotificationConfigs", page)).json()["result"]

    assert created == {"taskId": task_id, "id": "first", "url": URL, **SECRETS}
    assert read["result"] == created
    assert named.keys() == {"taskId", "id", "url"}
    assert listed == {"configs": [created, named], "nextPageToken": ""}
    assert (first["configs"], second) == ([created], {"configs": [named], "nextPageToken": ""})
    delete = rpc("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": "first"})
    assert [post(delete).json()["result"] for _ in range(2)] == [{}, {}]
    missing = post(rpc("GetTaskPushNotificationConfig", {"taskId": task_id, "id": "first"}))
    assert error_of(missing)[0] == -32001


def test_the_same_id_replaces(start, configure):
    task_id = start()
    configure(task_id, id="a", **SECRETS)

    configure(task_id, id="a", url=f"{URL}/2")

    row = A2APushConfig.unscoped.get()
    assert (row.url, row.secrets["token"]) == (f"{URL}/2", "")


def test_clients_of_0_3_have_their_own_form(post, start):
    task_id = start()
    config = {"url": URL, **LEGACY_SECRETS}

    created = post(
        rpc(
            "tasks/pushNotificationConfig/set",
            {"taskId": task_id, "pushNotificationConfig": config},
        ),
        **LEGACY,
    ).json()["result"]
    read = post(rpc("tasks/pushNotificationConfig/get", {"id": task_id}), **LEGACY).json()
    listed = post(rpc("tasks/pushNotificationConfig/list", {"id": task_id}), **LEGACY).json()
    ids = {"id": task_id, "pushNotificationConfigId": task_id}
    deleted = post(rpc("tasks/pushNotificationConfig/delete", ids), **LEGACY).json()

    assert created == {"taskId": task_id, "pushNotificationConfig": {"id": task_id, **config}}
    assert read["result"] == created
    assert listed["result"] == [created]
    assert deleted["result"] is None
    assert not A2APushConfig.unscoped.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://127.0.0.1/"},
        {"url": "http://[::1]/"},
        {"url": "http://169.254.169.254/latest"},
        {"url": "http://0x7f000001/"},
        {"url": "http://2130706433/"},
        {"url": "file:///etc/passwd"},
        {"url": "/own/route"},
        {"url": 7},
        {"token": "a\r\nX-Injected: 1"},
        {"token": "x" * 5000},
        {"token": "é"},
        {"authentication": {"credentials": "s3cret"}},
        {"authentication": {"scheme": "Bear er", "credentials": "s3cret"}},
        {"authentication": {"scheme": "Bearer", "credentials": "a\nb"}},
        {"authentication": "Bearer"},
        {"id": "x" * 256},
    ],
)
def test_invalid_configurations_are_refused(post, start, fields):
    params = {"taskId": start(), "url": URL, **fields}

    assert error_of(post(rpc("CreateTaskPushNotificationConfig", params)))[0] == -32602
    assert not A2APushConfig.unscoped.exists()


def test_secrets_are_stored_encrypted(start, configure):
    configure(start(), **SECRETS)

    row = A2APushConfig.unscoped.values().get()
    assert b"t0ken" not in repr(row).encode()
    assert b"s3cret" not in repr(row).encode()


def test_a_task_has_few_configurations(post, start, configure):
    task_id = start()
    for n in range(a2a_push.MAX_PER_TASK):
        configure(task_id, id=str(n))

    params = {"taskId": task_id, "url": URL}
    assert error_of(post(rpc("CreateTaskPushNotificationConfig", params)))[0] == -32602
    configure(task_id, id="0")  # a replacement is none more


def test_an_organization_has_a_number_of_configurations_of_open_tasks(
    post, start, configure, monkeypatch
):
    monkeypatch.setattr(a2a_push, "MAX_OPEN_PER_ORGANIZATION", 2)
    ended, task_id = start(), start()
    for id_ in (ended, task_id):
        configure(id_)
    params = {"taskId": task_id, "url": URL}

    refused = post(rpc("CreateTaskPushNotificationConfig", params))
    end_run(ended, values=messages("done"))
    configure(task_id)

    assert error_of(refused)[0] == -32602


def test_a_reader_neither_sets_nor_reads_configurations(post, start, configure, reader_key):
    task_id = start()
    configure(task_id, id="a", **SECRETS)

    for method in ("Create", "Get", "List", "Delete"):
        name = f"{method}TaskPushNotificationConfig{'s' if method == 'List' else ''}"
        params = {"taskId": task_id, "id": "a", "url": URL}
        response = post(rpc(name, params), key=reader_key)
        assert response.status_code == 403, method
        assert b"s3cret" not in response.content


def test_tasks_of_others_have_no_configurations(post, start, outsider_key):
    params = {"taskId": start(), "url": URL}
    create = rpc("CreateTaskPushNotificationConfig", params)

    assert post(create, key=outsider_key).status_code == 404
    params["taskId"] = str(uuid4())
    assert error_of(post(create))[0] == -32001


@pytest.mark.parametrize(
    "method",
    [
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    ],
)
def test_an_agent_without_webhooks_offers_none(post, send, agent, method):
    Revision.unscoped.filter(deployment=agent).update(config={"http": {"disable_webhooks": True}})
    routes.clear_cache()
    inline = {"taskPushNotificationConfig": {"url": URL}}

    assert error_of(post(rpc(method)))[0] == -32003
    assert error_of(post(rpc("SendMessage", send_params(configuration=inline))))[0] == -32003
    card = send("get", f"{PATH}/.well-known/agent-card.json").json()
    assert card["capabilities"]["pushNotifications"] is False


# Notifications


def test_each_change_of_a_task_is_told(start):
    task_id = start(taskPushNotificationConfig={"url": URL, "id": "a", **SECRETS})
    task = A2ATask.unscoped.get(pk=task_id)
    with connection.cursor() as cursor:
        for _ in range(2):  # a worker that claims the run again tells nothing new
            cursor.execute(statements.ADD_PUSHES_OF_STARTED, [[task.run_id]])
    end_run(task_id, values=messages("done"))
    end_run(task_id)

    bodies = sent()

    expected = ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    assert states() == expected
    [artifact] = [body["artifactUpdate"] for body in bodies if "artifactUpdate" in body]
    assert artifact["artifact"]["parts"] == [{"text": "done"}]
    assert (artifact["taskId"], artifact["lastChunk"]) == (task_id, True)
    assert len(bodies) == 4
    for body in bodies:
        [update] = body.values()
        assert (update["taskId"], update["contextId"]) == (task_id, task.context_id)


def test_questions_answers_and_cancellations_are_told(post, start, configure):
    task_id = start()
    configure(task_id)
    question = {"task": [{"id": "i1", "value": "sure?"}]}
    end_run(task_id, values={}, interrupts=question)

    answer = send_params([{"text": "yes"}], taskId=task_id, configuration={
        "returnImmediately": True,
    })  # fmt: skip
    assert "result" in post(rpc("SendMessage", answer)).json()
    end_run(task_id, values={}, interrupts=question)
    assert "result" in post(rpc("CancelTask", {"id": task_id})).json()

    told = ["INPUT_REQUIRED", "SUBMITTED", "INPUT_REQUIRED", "CANCELED"]
    assert states() == [f"TASK_STATE_{name}" for name in told]
    asked = sent()[0]["statusUpdate"]["status"]["message"]
    assert asked["parts"][0] == {"text": "sure?"}


def test_clients_of_0_3_get_the_whole_task(post, start):
    task_id = start()
    params = {"taskId": task_id, "pushNotificationConfig": {"url": URL, **LEGACY_SECRETS}}
    post(rpc("tasks/pushNotificationConfig/set", params), **LEGACY)

    end_run(task_id, values=messages("done"))

    [body] = sent()
    assert (body["kind"], body["id"], body["status"]["state"]) == ("task", task_id, "completed")
    assert body["artifacts"][0]["parts"] == [{"kind": "text", "text": "done"}]


def test_a_cancelled_run_is_told(post, start, configure):
    task_id = start()
    configure(task_id)

    assert "result" in post(rpc("CancelTask", {"id": task_id})).json()

    assert states() == ["TASK_STATE_CANCELED"]


def test_tasks_without_configurations_cost_no_delivery(start, configure):
    told, untold = start(), start()
    configure(told)

    end_run(untold, values=messages("done"))

    assert not Delivery.unscoped.exists()


def test_the_receiver_knows_the_sender(agent, start, configure, monkeypatch, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = True
    task_id = start()
    with Receiver(500, 200) as receiver:
        configure(task_id, url=f"http://127.0.0.1:{receiver.port}/n?x=1", **SECRETS)
        end_run(task_id, status="error")
        first = deliver()
        Delivery.unscoped.update(due_at=datetime.now(UTC))
        second = deliver()
        requests = [receiver.next(), receiver.next()]

    assert [(result.status, result.is_delivered) for result in first + second] == [
        (500, False),
        (200, True),
    ]
    for request in requests:
        assert request.path == "/n?x=1"
        assert request.headers["authorization"] == "Bearer s3cret"
        assert request.headers["x-a2a-notification-token"] == "t0ken"
        assert request.headers["content-type"] == "application/json"
        [secret] = webhooks.signing_keys(agent.workspace_id, agent.pk)
        assert request.is_signed_with(secret)
        assert request.json()["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"
    row = Delivery.unscoped.get()
    assert (row.status, row.attempts) == ("delivered", 2)
    assert "s3cret" not in str(row.log) + str(row.payload)


def deliver() -> list[DeliveryResult]:
    """Claim the due deliveries, send them once and record the results."""
    results = []
    for claimed in delivery_queue.claim(10):
        result = claimed.request
        if not isinstance(result, DeliveryResult):
            request = claimed.request
            result = asyncio.run(delivery_request.send(request, owner_id=claimed.owner_id))
        delivery_queue.record(claimed, result, 0.1)
        results.append(result)
    return results


def test_addresses_are_checked_again_when_they_are_sent_to(start, configure, monkeypatch):
    monkeypatch.setattr(resolution, "resolve_async", resolve_to_loopback)
    monkeypatch.setattr(a2a_push.rules, "validate", lambda url, _: url)
    for url in ("https://rebound.example/", "http://127.0.0.1:1/"):
        task_id = start()
        configure(task_id, url=url)
        end_run(task_id, status="error")

    results = deliver()

    assert [result.status for result in results] == [None, None]
    assert all(result.is_final and result.error for result in results)


async def resolve_to_loopback(host: str, owner_id: UUID | None):
    return [resolution.parse_address("127.0.0.1")]


def test_deleted_configurations_and_agents_get_nothing(agent, post, start, configure):
    task_id = start()
    configure(task_id, id="a")
    configure(task_id, id="b")
    end_run(task_id, status="error")
    post(rpc("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": "a"}))
    Revision.unscoped.filter(deployment=agent).update(config={"http": {"disable_webhooks": True}})

    results = deliver()

    assert all(result.is_final and not result.is_delivered for result in results)
    assert {result.error for result in results} == {
        "The push configuration was deleted.",
        "The agent's langgraph.json disables webhooks.",
    }


def test_configurations_are_deleted_with_their_thread(send, start, configure):
    task_id = start()
    configure(task_id)
    thread_id = A2ATask.unscoped.get(pk=task_id).thread.thread_id

    assert send("delete", f"/threads/{thread_id}").status_code < 300

    assert not A2APushConfig.unscoped.exists()
