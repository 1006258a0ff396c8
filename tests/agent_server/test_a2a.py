"""The Agent2Agent protocol of an agent."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3.types import AgentCard as LegacyCard

from apps.agent_server.models import A2ATask, AgentRun, Thread
from apps.agent_server.services.assistants import system_assistant_id
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.models import Revision, RevisionGraph
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import route_of

AGENT = str(system_assistant_id("agent"))
PATH = f"/a2a/{AGENT}"
VERSION = {"A2A-Version": "1.0"}
TEXT = [{"text": "hello"}]


def rpc(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def message(parts: Any = TEXT, **fields: Any) -> dict[str, Any]:
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts, **fields}


def send_params(parts: Any = TEXT, *, configuration: Any = None, **fields: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"message": message(parts, **fields)}
    return params if configuration is None else {**params, "configuration": configuration}


def set_schemas(agent, **schemas: Any) -> None:
    RevisionGraph.unscoped.filter(revision=agent.active_revision, graph_id="agent").update(
        schemas=schemas
    )


@pytest.fixture
def post(send):
    def post(body: Any, path: str = PATH, **options: Any):
        return send("post", path, body, **{**VERSION, **options})

    return post


@pytest.fixture
def start(post):
    """Return a function that starts a task without waiting for its end."""

    def start(parts: Any = TEXT, *, key: str | None = None, **fields: Any) -> dict[str, Any]:
        params = send_params(parts, configuration={"returnImmediately": True}, **fields)
        options = {"key": key} if key else {}
        task: dict[str, Any] = post(rpc("SendMessage", params), **options).json()["result"]["task"]
        return task

    return start


def error_of(response) -> tuple[int, Any]:
    error = response.json()["error"]
    data = error.get("data")
    return error["code"], data[0]["reason"] if data else None


# Access


def test_anonymous_callers_are_refused(post, send):
    assert post(rpc("GetTask", {"id": "x"}), key=None).status_code == 401
    assert send("get", f"{PATH}/.well-known/agent-card.json", key=None).status_code == 401


def test_outsiders_find_no_agent(post, send, outsider_key):
    assert post(rpc("GetTask"), key=outsider_key).status_code == 404
    card = send("get", "/.well-known/agent-card.json", key=outsider_key)
    assert card.status_code == 404


def test_a_reader_reads_tasks_and_sends_none(post, start, reader_key):
    task = start()
    runs = AgentRun.unscoped.count()

    assert post(rpc("SendMessage", send_params()), key=reader_key).status_code == 403
    assert post(rpc("CancelTask", {"id": task["id"]}), key=reader_key).status_code == 403
    assert AgentRun.unscoped.count() == runs
    response = post(rpc("GetTask", {"id": task["id"]}), key=reader_key)
    assert response.json()["result"]["id"] == task["id"]


@pytest.mark.parametrize("path", [f"/a2a/{UUID(int=7)}", "/a2a/missing"])
@pytest.mark.parametrize("body", [rpc("GetTask", {"id": "x"}), rpc("SendMessage"), [], rpc("x")])
def test_an_unknown_assistant_is_not_found(post, path, body):
    assert post(body, path).status_code == 404


def test_disabled_a2a_is_not_found_and_not_documented(post, send, client, agent):
    Revision.unscoped.filter(deployment=agent).update(config={"http": {"disable_a2a": True}})
    routes.clear_cache()

    document = client.get(f"/agents/{agent.slug}/openapi.json").json()

    assert post(rpc("GetTask")).status_code == 404
    assert send("get", "/.well-known/agent-card.json").status_code == 404
    assert not [path for path in document["paths"] if "a2a" in path or "agent-card" in path]


# The card


def test_the_card_describes_the_assistant(send, agent, settings):
    path = f"/.well-known/agent-card.json?assistant_id={AGENT}"
    response = send("get", path, **{"A2A-Version": "1.0"})

    card = response.json()
    assert card["name"] == "agent"
    assert card["description"] == "What agent does"
    assert card["supportedInterfaces"] == [
        {
            "url": f"{settings.BASE_URL}/agents/{agent.slug}{PATH}",
            "protocolBinding": binding,
            "protocolVersion": "1.0",
        }
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert card["capabilities"] == {
        "streaming": True,
        "pushNotifications": True,
        "extendedAgentCard": False,
    }
    assert card["skills"][0]["tags"] == ["agent"]
    assert card.keys() == {
        *("name", "description", "version", "supportedInterfaces", "capabilities", "skills"),
        *("defaultInputModes", "defaultOutputModes", "securitySchemes", "securityRequirements"),
    }
    assert response["Cache-Control"] == "private, max-age=60"
    assert response["Last-Modified"].endswith("GMT")


def test_an_unchanged_card_is_not_sent_again(send):
    path = f"{PATH}/.well-known/agent-card.json"
    etag = send("get", path)["ETag"]

    response = send("get", path, **{"If-None-Match": f'"x", {etag}'})

    assert (response.status_code, response.content) == (304, b"")
    assert send("get", path, **{"If-None-Match": '"x"'}).status_code == 200


def test_the_card_needs_an_assistant_if_there_are_several(send, agent):
    path = "/.well-known/agent-card.json"

    assert send("get", path).json()["code"] == "assistant_required"
    RevisionGraph.unscoped.filter(revision=agent.active_revision, graph_id="other").delete()
    routes.clear_cache()
    assert send("get", path).json()["name"] == "agent"
    assert send("get", f"{path}?assistant_id={uuid4()}").status_code == 404
    assert send("get", f"{path}?assistant_id=agent").json()["name"] == "agent"


def test_a_client_of_0_3_gets_its_card(send):
    card = send("get", f"{PATH}/.well-known/agent-card.json", **{"A2A-Version": "0.3"}).json()

    assert (card["protocolVersion"], card["preferredTransport"]) == ("0.3.0", "JSONRPC")
    assert card["url"].endswith(PATH)
    assert card["security"] == [{"apiKey": []}]


def test_a_client_of_either_version_reads_the_card_for_no_version(send):
    path = f"{PATH}/.well-known/agent-card.json"
    card = send("get", path).json()
    url = send("get", path, **{"A2A-Version": "0.3"}).json()["url"]

    legacy = LegacyCard.model_validate(card)
    current = parse_agent_card(card)

    assert (legacy.url, legacy.protocol_version) == (url, "0.3.0")
    assert legacy.security == [{"apiKey": []}]
    assert legacy.security_schemes["apiKey"].root.name == "X-Api-Key"
    assert [(one.url, one.protocol_version) for one in current.supported_interfaces] == [
        (url, "1.0"),
        (url, "1.0"),
    ]
    assert current.security_requirements[0].schemes.keys() == {"apiKey"}
    assert current.security_schemes["apiKey"].api_key_security_scheme.name == "X-Api-Key"


# Requests


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{", -32700),
        ("", -32700),
        ("[]", -32600),
        ("7", -32600),
        ('{"id":1,"method":"GetTask"}', -32600),
        ('{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600),
        ('{"jsonrpc":"2.0","id":true,"method":"GetTask"}', -32600),
        ('{"jsonrpc":"2.0","id":1.5,"method":"GetTask"}', -32600),
        ('{"jsonrpc":"2.0","id":{},"method":"GetTask"}', -32600),
        ('{"jsonrpc":"2.0","id":1}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"Unknown"}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"GetTask"}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"SendMessage"}', -32602),
    ],
)
def test_a_malformed_request_is_a_json_rpc_error(client, agent, key, body, code):
    response = client.post(
        f"/agents/{agent.slug}{PATH}",
        body,
        content_type="application/json",
        headers={"X-Api-Key": key, **VERSION},
    )

    assert response.status_code == 200
    assert response.json()["error"]["code"] == code


def test_another_content_type_is_refused_before_parsing(client, agent, key):
    response = client.post(
        f"/agents/{agent.slug}{PATH}",
        "{",
        content_type="text/plain",
        headers={"X-Api-Key": key, **VERSION},
    )

    assert response.json()["id"] is None
    assert error_of(response) == (-32005, "CONTENT_TYPE_NOT_SUPPORTED")


@pytest.mark.parametrize(
    ("version", "method", "code"),
    [
        ("1.0", "GetTask", -32001),
        ("1.0.3", "GetTask", -32001),
        ("0.3", "tasks/get", -32001),
        ("", "tasks/get", -32001),
        ("", "GetTask", -32001),
        ("2.0", "GetTask", -32009),
        ("0.2", "tasks/get", -32009),
        ("1.0", "tasks/get", -32601),
        ("0.3", "GetTask", -32601),
    ],
)
def test_the_version_decides_which_methods_exist(post, version, method, code):
    response = post(rpc(method, {"id": str(uuid4())}), **{"A2A-Version": version})

    assert error_of(response)[0] == code


def test_the_version_may_be_in_the_query(post):
    response = post(
        rpc("GetTask", {"id": str(uuid4())}), f"{PATH}?A2A-Version=3.1", **{"A2A-Version": ""}
    )

    assert error_of(response) == (-32009, "VERSION_NOT_SUPPORTED")


def test_a_trailing_slash_is_accepted(post):
    assert error_of(post(rpc("GetTask", {"id": "x"}), f"{PATH}/")) == (-32001, "TASK_NOT_FOUND")


@pytest.mark.parametrize("request_id", [0, "", "a", None, 2**53])
def test_the_id_of_a_request_is_returned(post, request_id):
    assert post(rpc("GetTask", {"id": "x"}, request_id)).json()["id"] == request_id


def test_what_the_card_does_not_offer_fails_with_its_code(post):
    error = error_of(post(rpc("GetExtendedAgentCard")))

    assert error == (-32004, "UNSUPPORTED_OPERATION")


def test_an_error_of_a2a_has_its_reason(post):
    assert post(rpc("GetTask", {"id": "x"})).json()["error"] == {
        "code": -32001,
        "message": "Task not found",
        "data": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "TASK_NOT_FOUND",
                "domain": "a2a-protocol.org",
                "metadata": {},
            }
        ],
    }


# Messages


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"messageId": ""}, -32602),
        ({"messageId": 7}, -32602),
        ({"role": "ROLE_AGENT"}, -32602),
        ({"role": "ROLE_USERS"}, -32602),
        ({"parts": []}, -32602),
        ({"parts": "hello"}, -32602),
        ({"parts": [7]}, -32602),
        ({"parts": [{}]}, -32602),
        ({"parts": [{"text": "a", "data": 1}]}, -32602),
        ({"parts": [{"text": 7}]}, -32602),
        ({"parts": [{"raw": "not base64!"}]}, -32602),
        ({"parts": [{"url": "file:///etc/passwd"}]}, -32602),
        ({"parts": [{"text": "a", "mediaType": "application/x-unknown"}]}, -32005),
        ({"contextId": 7}, -32602),
        ({"taskId": str(uuid4())}, -32001),
        ({"extensions": "a"}, -32602),
    ],
)
def test_an_invalid_message_creates_no_run(post, changes, code):
    params = {"message": {**message(), **changes}}

    assert error_of(post(rpc("SendMessage", params)))[0] == code
    assert not AgentRun.unscoped.exists()


@pytest.mark.parametrize(
    ("configuration", "code"),
    [
        ({"historyLength": -1}, -32602),
        ({"historyLength": "3"}, -32602),
        ({"returnImmediately": 1}, -32602),
        ({"acceptedOutputModes": ["image/png"]}, -32005),
        ({"taskPushNotificationConfig": {"url": "http://127.0.0.1/"}}, -32602),
        ({"taskPushNotificationConfig": {"url": "/done"}}, -32602),
        ({"taskPushNotificationConfig": {}}, -32602),
    ],
)
def test_an_invalid_configuration_creates_no_run(post, configuration, code):
    params = send_params(configuration=configuration)

    assert error_of(post(rpc("SendMessage", params)))[0] == code
    assert not AgentRun.unscoped.exists()


def test_a_message_starts_a_task_on_a_new_thread(start):
    task = start()

    run = AgentRun.unscoped.get()
    thread = Thread.unscoped.get()
    [own_message] = task["history"]
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert task["status"]["timestamp"].endswith("Z")
    assert task["contextId"] == str(thread.thread_id)
    assert run.kwargs["input"] == {
        "messages": [{"role": "user", "content": "hello", "id": own_message["messageId"]}]
    }
    assert run.metadata["a2a_task"] == task["id"]
    assert own_message.items() >= {"taskId": task["id"], "contextId": task["contextId"]}.items()
    assert task.keys() == {"id", "contextId", "status", "history"}


def test_parts_become_content_blocks(start):
    start(
        [
            {"text": "look"},
            {"raw": "aGk=", "mediaType": "image/png", "filename": "a.png"},
            {"url": "https://example.com/b.pdf", "mediaType": "application/pdf"},
            {"data": {"a": 1}},
        ]
    )

    [sent] = AgentRun.unscoped.get().kwargs["input"]["messages"]
    assert sent["content"] == [
        {"type": "text", "text": "look"},
        {
            "type": "image",
            "base64": "aGk=",
            "mime_type": "image/png",
            "extras": {"filename": "a.png"},
        },
        {"type": "file", "url": "https://example.com/b.pdf", "mime_type": "application/pdf"},
        {"type": "text", "text": '{"a":1}'},
    ]


def test_data_is_the_input_of_a_graph_without_messages(start, post, agent):
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
    set_schemas(
        agent, input_schema={"type": "object", "properties": properties, "required": ["city"]}
    )

    start([{"data": {"city": "Oslo"}}, {"data": {"days": 2}}])
    refused = [
        post(rpc("SendMessage", send_params(parts)))
        for parts in (TEXT, [{"data": 7}], [{"data": {"city": 7}}], [{"data": {"days": 1}}])
    ]

    assert AgentRun.unscoped.get().kwargs["input"] == {"city": "Oslo", "days": 2}
    assert [error_of(response)[0] for response in refused] == [-32602] * 4


def test_snake_case_names_are_accepted(post):
    context = str(uuid4())
    body = rpc(
        "SendMessage",
        {
            "message": {
                "message_id": "m1",
                "role": "ROLE_USER",
                "parts": [{"text": "a", "media_type": "text/plain"}],
                "context_id": context,
            },
            "configuration": {"return_immediately": True},
        },
    )

    assert post(body).json()["result"]["task"]["contextId"] == context


# Contexts


def test_a_context_is_a_thread(start):
    context = str(uuid4())

    first, second = start(contextId=context), start(contextId=context)

    assert first["contextId"] == second["contextId"] == context
    assert first["id"] != second["id"]
    assert str(Thread.unscoped.get().thread_id) == context
    assert AgentRun.unscoped.count() == 2


def test_a_context_may_have_any_name(start):
    first, second = start(contextId="trip to Oslo"), start(contextId="trip to Oslo")
    other = start(contextId="another trip")

    assert first["contextId"] == second["contextId"] == "trip to Oslo"
    assert other["contextId"] == "another trip"
    assert Thread.unscoped.count() == 2


def test_a_repeated_message_id_does_not_replace_the_first_message(start):
    context = str(uuid4())

    for text in ("one", "two"):
        start([{"text": text}], contextId=context, messageId="same")

    first, second = [
        run.kwargs["input"]["messages"][0] for run in AgentRun.unscoped.order_by("sequence")
    ]
    assert first == {"role": "user", "content": "one", "id": "same"}
    assert second == {
        "role": "user",
        "content": "two",
        "additional_kwargs": {"message_id": "same"},
    }


# Reading tasks


def test_a_task_belongs_to_its_assistant(start, post):
    task = start()
    other = f"/a2a/{system_assistant_id('other')}"

    assert error_of(post(rpc("GetTask", {"id": task["id"]}), other)) == (-32001, "TASK_NOT_FOUND")
    assert post(rpc("GetTask", {"id": task["id"]})).json()["result"] == task
    assert post(rpc("GetTask", {"id": task["id"]}), "/a2a/agent").json()["result"] == task


def test_another_agents_key_sees_no_task(start, client, agent, key):
    from tests.factories.agent_server import AgentFactory

    task = start()
    other = AgentFactory(workspace=agent.workspace)

    response = client.post(
        f"/agents/{other.slug}{PATH}",
        rpc("GetTask", {"id": task["id"]}),
        content_type="application/json",
        headers={"X-Api-Key": key, **VERSION},
    )

    assert error_of(response) == (-32001, "TASK_NOT_FOUND")


@pytest.mark.parametrize(("length", "count"), [(None, 1), (0, None), (1, 1), (5, 1)])
def test_the_length_of_a_history_is_limited(start, post, length, count):
    task = start()
    params = {"id": task["id"], **({} if length is None else {"historyLength": length})}

    result = post(rpc("GetTask", params)).json()["result"]

    assert ("history" in result) is (count is not None)
    assert len(result.get("history", ())) == (count or 0)


def test_tasks_are_listed_newest_first_in_pages(start, post):
    context = str(uuid4())
    tasks = [start(contextId=context) for _ in range(3)]
    start()

    def list_page(**params: Any) -> dict[str, Any]:
        result: dict[str, Any] = post(rpc("ListTasks", {"contextId": context, **params})).json()
        return result["result"]

    first = list_page(pageSize=2)
    second = list_page(pageSize=2, pageToken=first["nextPageToken"])

    ids = [task["id"] for page in (first, second) for task in page["tasks"]]
    assert ids == [task["id"] for task in reversed(tasks)]
    assert (first["totalSize"], first["pageSize"], second["nextPageToken"]) == (3, 2, "")
    assert "artifacts" not in first["tasks"][0]


def test_tasks_are_filtered_by_state_and_time(start, post):
    task = start()

    def count(**params: Any) -> int:
        return len(post(rpc("ListTasks", params)).json()["result"]["tasks"])

    assert count(status="TASK_STATE_SUBMITTED") == 1
    assert count(status="TASK_STATE_WORKING") == 0
    assert count(statusTimestampAfter="2020-01-01T00:00:00Z") == 1
    assert count(statusTimestampAfter="2999-01-01T00:00:00Z") == 0
    assert count(contextId="other") == 0
    AgentRun.unscoped.all().delete()
    assert count(status="TASK_STATE_CANCELED") == 1
    state = post(rpc("GetTask", {"id": task["id"]})).json()["result"]["status"]["state"]
    assert state == "TASK_STATE_CANCELED"


@pytest.mark.parametrize(
    "params",
    [
        {"pageSize": 0},
        {"pageSize": 101},
        {"pageSize": "x"},
        {"pageToken": "x"},
        {"pageToken": 7},
        {"status": "TASK_STATE_DONE"},
        {"status": 7},
        {"statusTimestampAfter": "yesterday"},
        {"statusTimestampAfter": "2026-01-01T00:00:00"},
        {"historyLength": -1},
        {"includeArtifacts": "yes"},
    ],
)
def test_an_invalid_list_is_refused(post, params):
    assert error_of(post(rpc("ListTasks", params)))[0] == -32602


# Cancelling


def test_a_submitted_task_is_cancelled_at_once(start, post):
    task = start()

    cancelled = post(rpc("CancelTask", {"id": task["id"]})).json()["result"]
    again = post(rpc("CancelTask", {"id": task["id"]}))

    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    assert AgentRun.unscoped.get().status == "interrupted"
    assert error_of(again) == (-32002, "TASK_NOT_CANCELABLE")
    assert error_of(post(rpc("SubscribeToTask", {"id": task["id"]})))[0] == -32004
    params = send_params(taskId=task["id"])
    assert error_of(post(rpc("SendMessage", params))) == (-32004, "UNSUPPORTED_OPERATION")


def test_a_task_that_does_not_wait_takes_no_message(start, post):
    task = start()

    assert error_of(post(rpc("SendMessage", send_params(taskId=task["id"]))))[0] == -32602
    other = send_params(taskId=task["id"], contextId=str(uuid4()))
    assert error_of(post(rpc("SendMessage", other)))[0] == -32602


# With a worker


async def run_task(
    call: Caller, worker, parts: Any = TEXT, *, method: str = "SendMessage", events=(), **outcome
):
    """Send a message, execute its run and return the answer."""
    fields = outcome.pop("fields", {})
    body = rpc(method, send_params(parts, **fields))
    async with call.open("POST", PATH, body, **VERSION) as client:
        run = await worker.claim_run()
        await worker.publish(run, ("metadata", {}), *events)
        await worker.end(run, **outcome)
        return await client.wait_for_end()


def ai(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "ai", "content": text, "id": "m", **fields}


async def test_the_last_ai_message_is_the_artifact(call, worker):
    messages = [{"type": "human", "content": "hello"}, ai("first"), ai("Hi!")]

    answer = await run_task(call, worker, values={"messages": messages})

    task = answer.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [artifact["parts"] for artifact in task["artifacts"]] == [[{"text": "Hi!"}]]
    assert [(m["role"], m["parts"]) for m in task["history"]] == [
        ("ROLE_USER", TEXT),
        ("ROLE_AGENT", [{"text": "Hi!"}]),
    ]


async def test_a_task_does_not_change_after_its_end(call, worker):
    context = str(uuid4())
    fields = {"contextId": context}
    first = await run_task(call, worker, values={"messages": [ai("one")]}, fields=fields)
    await run_task(call, worker, values={"messages": [ai("two")]}, fields=fields)
    task = first.json()["result"]["task"]

    again = await call("POST", PATH, rpc("GetTask", {"id": task["id"]}), **VERSION)

    assert again.json()["result"] == task


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"answer": 42}, [{"data": {"answer": 42}}]),
        ("done", [{"text": "done"}]),
        ([1, 2], [{"data": [1, 2]}]),
        (
            {"messages": [ai("a")], "structured_response": {"b": 1}},
            [{"text": "a"}, {"data": {"b": 1}}],
        ),
        (
            {
                "messages": [
                    ai(
                        [
                            {"type": "text", "text": "see"},
                            {"type": "reasoning", "text": "hidden"},
                            {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
                        ]
                    )
                ]
            },
            [{"text": "see"}, {"raw": "aGk=", "mediaType": "image/png"}],
        ),
        ({"messages": [ai("before"), {"type": "human", "content": "x"}]}, None),
        ({"messages": [], "report": "long"}, [{"data": {"report": "long"}}]),
        (None, None),
    ],
)
async def test_output_is_expressed_as_parts(call, worker, values, parts):
    answer = await run_task(call, worker, values=values)

    artifacts = answer.json()["result"]["task"].get("artifacts")
    assert (artifacts[0]["parts"] if artifacts else None) == parts


async def test_a_failed_run_is_a_failed_task(call, worker):
    error = {"error": "ValueError", "message": "no such city"}

    answer = await run_task(call, worker, status="error", error=error)

    status = answer.json()["result"]["task"]["status"]
    assert status["state"] == "TASK_STATE_FAILED"
    assert status["message"]["parts"] == [{"text": "ValueError: no such city"}]


PAUSED = {"interrupts": {"t": [{"id": "i1", "value": {"question": "Which city?"}}]}}


async def test_an_interrupt_asks_for_input_and_a_message_answers_it(call, worker):
    answer = await run_task(call, worker, values={}, **PAUSED)
    paused = answer.json()["result"]["task"]
    resumed = await run_task(
        call,
        worker,
        [{"text": "Oslo"}],
        values={"messages": [ai("Sunny")]},
        fields={"taskId": paused["id"]},
    )
    task = resumed.json()["result"]["task"]
    run = await in_thread(lambda: AgentRun.unscoped.order_by("sequence").last())

    assert paused["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert paused["status"]["message"]["parts"] == [
        {"text": "Which city?"},
        {"data": {"id": "i1", "value": {"question": "Which city?"}}},
    ]
    assert run.kwargs["command"]["resume"] == "Oslo"
    assert (task["id"], task["contextId"]) == (paused["id"], paused["contextId"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [m["role"] for m in task["history"]] == [
        *("ROLE_USER", "ROLE_AGENT", "ROLE_USER", "ROLE_AGENT")
    ]
    assert task["history"][1]["messageId"] == paused["status"]["message"]["messageId"]


@pytest.mark.parametrize(
    ("parts", "resume"),
    [
        ([{"text": "yes"}], "yes"),
        ([{"data": {"resume": [1]}}], [1]),
        ([{"data": {"approved": True}}], {"approved": True}),
        ([{"data": None}], None),
    ],
)
async def test_the_form_of_an_answer_decides_its_value(call, worker, parts, resume):
    paused = (await run_task(call, worker, values={}, **PAUSED)).json()["result"]["task"]

    await run_task(call, worker, parts, values={}, fields={"taskId": paused["id"]})

    run = await in_thread(lambda: AgentRun.unscoped.order_by("sequence").last())
    assert run.kwargs["command"]["resume"] == resume


async def test_several_questions_need_answers_by_id(call, worker):
    interrupts = {"t": [{"id": "i1", "value": "a?"}, {"id": "i2", "value": "b?"}]}
    paused = (await run_task(call, worker, values={}, interrupts=interrupts)).json()
    fields = {"taskId": paused["result"]["task"]["id"]}

    refused = await call("POST", PATH, rpc("SendMessage", send_params(**fields)), **VERSION)
    await run_task(call, worker, [{"data": {"i1": 1, "i2": 2}}], values={}, fields=fields)

    run = await in_thread(lambda: AgentRun.unscoped.order_by("sequence").last())
    assert refused.json()["error"]["code"] == -32602
    assert run.kwargs["command"]["resume"] == {"i1": 1, "i2": 2}


async def test_a_superseded_question_cannot_be_answered(call, worker):
    paused = (await run_task(call, worker, values={}, **PAUSED)).json()["result"]["task"]
    await run_task(call, worker, values={}, fields={"contextId": paused["contextId"]})

    body = rpc("SendMessage", send_params(taskId=paused["id"]))
    answer = await call("POST", PATH, body, **VERSION)

    assert answer.json()["error"]["code"] == -32004


async def test_a_paused_task_can_be_cancelled(call, worker):
    paused = (await run_task(call, worker, values={}, **PAUSED)).json()["result"]["task"]

    answer = await call("POST", PATH, rpc("CancelTask", {"id": paused["id"]}), **VERSION)

    assert answer.json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_working_task_is_cancelled_by_its_worker(call, worker):
    body = rpc("SendMessage", send_params(configuration={"returnImmediately": True}))
    task = (await call("POST", PATH, body, **VERSION)).json()["result"]["task"]
    run = await worker.claim_run()

    cancel = rpc("CancelTask", {"id": task["id"]})
    async with call.open("POST", PATH, cancel, **VERSION) as client:
        assert await worker.next_cancelled_run() == run.pk
        await worker.end(run, "interrupted")
        answer = await client.wait_for_end()

    assert answer.json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_task_that_ends_before_its_cancellation_is_not_cancelled(call, worker):
    body = rpc("SendMessage", send_params(configuration={"returnImmediately": True}))
    task = (await call("POST", PATH, body, **VERSION)).json()["result"]["task"]
    run = await worker.claim_run()

    cancel = rpc("CancelTask", {"id": task["id"]})
    async with call.open("POST", PATH, cancel, **VERSION) as client:
        await worker.next_cancelled_run()
        await worker.end(run, values={})
        answer = await client.wait_for_end()

    assert answer.json()["error"]["code"] == -32002


# Streams


def chunk(text: str, message_id: str = "m") -> tuple[str, Any]:
    return ("messages", [{"type": "AIMessageChunk", "content": text, "id": message_id}, {}])


def summarize(answer) -> list[Any]:
    """The events of a stream in short: the state, or the parts of an artifact with its flags."""
    summary: list[Any] = []
    for _, data, _ in answer.events:
        [(kind, value)] = data["result"].items()
        if kind == "artifactUpdate":
            text = "".join(part.get("text", "") for part in value["artifact"]["parts"])
            summary.append((text, value["append"], value["lastChunk"]))
        else:
            summary.append(value["status"]["state"].removeprefix("TASK_STATE_"))
    return summary


async def test_a_stream_has_the_task_its_tokens_and_its_end(call, worker):
    answer = await run_task(
        call,
        worker,
        method="SendStreamingMessage",
        events=[chunk("Hi"), chunk(""), chunk(" there")],
        values={"messages": [ai("Hi there")]},
    )

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert summarize(answer) == [
        "SUBMITTED",
        "WORKING",
        ("Hi", False, False),
        (" there", True, False),
        ("", True, True),
        "COMPLETED",
    ]
    assert {data["id"] for _, data, _ in answer.events} == {1}


async def test_another_message_of_the_model_replaces_the_artifact(call, worker):
    answer = await run_task(
        call,
        worker,
        method="SendStreamingMessage",
        events=[chunk("Let me look", "a"), chunk("Sun", "b")],
        values={"messages": [ai("Sunny")]},
    )

    assert summarize(answer)[2:-1] == [
        ("Let me look", False, False),
        ("Sun", False, False),
        ("Sunny", False, True),
    ]


async def test_a_stream_ends_when_the_task_requires_input(call, worker):
    answer = await run_task(call, worker, method="SendStreamingMessage", values={}, **PAUSED)

    assert summarize(answer) == ["SUBMITTED", "WORKING", "INPUT_REQUIRED"]


async def test_an_error_before_the_first_event_is_no_stream(call):
    body = rpc("SendStreamingMessage", {"message": {}})

    answer = await call("POST", PATH, body, **VERSION)

    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == -32602


async def test_a_subscription_follows_the_task_over_a_resume(call, worker):
    paused = (await run_task(call, worker, values={}, **PAUSED)).json()["result"]["task"]

    body = rpc("SubscribeToTask", {"id": paused["id"]}, "s")
    async with call.open("POST", PATH, body, **VERSION) as client:
        await client.wait_until(lambda answer: answer.events)
        fields = {"taskId": paused["id"]}
        await run_task(call, worker, values={"messages": [ai("done")]}, fields=fields)
        answer = await client.wait_for_end()

    summary = summarize(answer)
    assert (summary[0], summary[-1]) == ("INPUT_REQUIRED", "COMPLETED")
    assert ("done", False, True) in summary


async def test_a_subscriber_of_a_paused_task_misses_no_token(call, worker, monkeypatch):
    # The stream looks at the task at heartbeats alone, so the new run ends before it is seen.
    monkeypatch.setattr("apps.agent_server.endpoints.a2a._ThreadListener.on_message", ignore)
    paused = (await run_task(call, worker, values={}, **PAUSED)).json()["result"]["task"]

    body = rpc("SubscribeToTask", {"id": paused["id"]})
    async with call.open("POST", PATH, body, **VERSION) as client:
        await client.wait_until(lambda answer: answer.events)
        await run_task(
            call,
            worker,
            method="SendStreamingMessage",
            events=[chunk("Sun"), chunk("ny")],
            values={"messages": [ai("Sunny")]},
            fields={"taskId": paused["id"]},
        )
        answer = await client.wait_for_end()

    assert summarize(answer) == [
        "INPUT_REQUIRED",
        "SUBMITTED",
        "WORKING",
        ("Sun", False, False),
        ("ny", True, False),
        ("", True, True),
        "COMPLETED",
    ]


def ignore(*_):
    pass


async def test_a_subscriber_of_a_paused_task_is_woken_by_its_cancellation(
    call, worker, monkeypatch
):
    monkeypatch.setattr("apps.agent_server.web.http_context.HEARTBEAT_SECONDS", 3600)
    paused = (await run_task(call, worker, values={}, **PAUSED)).json()["result"]["task"]

    body = rpc("SubscribeToTask", {"id": paused["id"]})
    async with call.open("POST", PATH, body, **VERSION) as client:
        await client.wait_until(lambda answer: answer.events)
        await call("POST", PATH, rpc("CancelTask", {"id": paused["id"]}), **VERSION)
        answer = await client.wait_for_end()

    assert summarize(answer) == ["INPUT_REQUIRED", "CANCELED"]


async def test_a_subscriber_gets_the_events_from_the_beginning(call, worker):
    body = rpc("SendMessage", send_params(configuration={"returnImmediately": True}))
    task = (await call("POST", PATH, body, **VERSION)).json()["result"]["task"]
    run = await worker.claim_run()
    await worker.publish(run, ("metadata", {}), chunk("Hi"))

    subscribe = rpc("SubscribeToTask", {"id": task["id"]})
    async with call.open("POST", PATH, subscribe, **VERSION) as client:
        await client.wait_until(lambda answer: len(answer.events) == 2)
        await worker.end(run, values={"messages": [ai("Hi")]})
        answer = await client.wait_for_end()

    assert summarize(answer) == ["WORKING", ("Hi", False, False), ("", True, True), "COMPLETED"]


async def test_a_client_that_disconnects_does_not_cancel_its_task(call, worker):
    body = rpc("SendStreamingMessage", send_params())
    async with call.open("POST", PATH, body, **VERSION) as client:
        run = await worker.claim_run()
        await client.wait_until(lambda answer: answer.events)
        client.disconnect()
    await asyncio.sleep(0)

    assert (await in_thread(AgentRun.unscoped.get, pk=run.pk)).cancel_action == ""


# A2A 0.3


async def test_a_client_of_0_3_gets_kinds_and_lower_case_states(call, worker):
    body = rpc(
        "message/send",
        {
            "message": {
                "kind": "message",
                "messageId": "m1",
                "role": "user",
                "parts": [
                    {"kind": "text", "text": "hello"},
                    {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}},
                    {"kind": "data", "data": {"a": 1}},
                ],
            }
        },
    )
    async with call.open("POST", PATH, body) as client:
        await worker.end(await worker.claim_run(), values={"messages": [ai("Hi")]})
        task = (await client.wait_for_end()).json()["result"]

    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["artifacts"][0]["parts"] == [{"kind": "text", "text": "Hi"}]
    assert task["history"][0]["kind"] == "message"
    assert task["history"][0]["role"] == "user"
    assert task["history"][0]["parts"] == body["params"]["message"]["parts"]


async def test_a_stream_of_0_3_marks_its_final_event(call, worker):
    parts = [{"kind": "text", "text": "hello"}]
    body = rpc("message/stream", {"message": {**message(parts), "role": "user"}})
    async with call.open("POST", PATH, body, **{"A2A-Version": "0.3"}) as client:
        run = await worker.claim_run()
        await worker.publish(run, ("metadata", {}), chunk("Hi"))
        await worker.end(run, values={"messages": [ai("Hi")]})
        answer = await client.wait_for_end()

    results = [data["result"] for _, data, _ in answer.events]
    assert [result["kind"] for result in results] == [
        *("task", "status-update", "artifact-update", "artifact-update", "status-update")
    ]
    assert [result.get("final") for result in results] == [None, False, None, None, True]


# Tables


def test_a_deleted_thread_deletes_its_tasks(start, send, agent):
    route_of(agent)
    task = start()

    send("delete", f"/threads/{task['contextId']}")

    assert not A2ATask.unscoped.exists()
