"""The Model Context Protocol of an agent."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from apps.agent_server.auth import custom_auth
from apps.agent_server.errors import QueueFull
from apps.agent_server.mcp import resources
from apps.agent_server.models import AgentRun, Assistant, Thread
from apps.agent_server.services import dispatch, runs
from apps.agent_server.services.assistants import system_assistant_id
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.models import Revision, RevisionGraph
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import AgentRunFactory, ThreadFactory, route_of
from tests.factories.api_keys import key_for

STATELESS = "2026-07-28"
META = "io.modelcontextprotocol/"


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return body if params is None else {**body, "params": params}


def stateless(method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return body and headers of a request without a handshake."""
    meta = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
    headers = {"Mcp-Protocol-Version": STATELESS, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return request(method, {**params, "_meta": meta}), headers


@pytest.fixture
def post(send):
    return lambda body, **options: send("post", "/mcp", body, **options)


def create_assistant(agent, name: str, **fields: Any) -> Assistant:
    return Assistant.unscoped.create(
        workspace=agent.workspace, deployment=agent, graph_id="agent", name=name, **fields
    )


def set_schemas(agent, **schemas: Any) -> None:
    RevisionGraph.unscoped.filter(revision=agent.active_revision, graph_id="agent").update(
        schemas=schemas
    )


# Access


def test_anonymous_callers_are_refused(post):
    assert post(request("ping"), key=None).status_code == 401
    assert post(request("tools/list"), key=None).status_code == 401


def test_an_outsider_finds_no_agent(post, outsider_key):
    assert post(request("tools/list"), key=outsider_key).status_code == 404


def test_a_reader_lists_tools_and_calls_none(post, reader_key):
    call = request("tools/call", {"name": "agent", "arguments": {}})

    assert post(request("tools/list"), key=reader_key).status_code == 200
    assert post(call, key=reader_key).status_code == 403
    assert not AgentRun.unscoped.exists()


def test_disabled_mcp_is_not_found_and_not_documented(post, client, agent):
    Revision.unscoped.filter(deployment=agent).update(config={"http": {"disable_mcp": True}})
    routes.clear_cache()

    document = client.get(f"/agents/{agent.slug}/openapi.json").json()

    assert post(request("ping")).status_code == 404
    assert "/mcp" not in document["paths"]


@pytest.mark.parametrize(
    ("method", "allowed"), [("get", "POST"), ("delete", "GET, POST"), ("put", "GET, POST")]
)
def test_other_methods_are_not_allowed(send, method, allowed):
    response = send(method, "/mcp")

    assert (response.status_code, response["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://testserver"}, 200),
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, 200),
        ({"Host": "localhost:8000", "Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 400),
    ],
)
def test_foreign_origins_and_hosts_are_refused(post, settings, headers, status):
    settings.ALLOWED_HOSTS = ["testserver"]

    assert post(request("ping"), **headers).status_code == status


def test_page_of_a_rebound_host_is_refused_where_all_hosts_are_allowed(post, settings):
    settings.ALLOWED_HOSTS = ["*"]
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}

    assert post(request("ping"), **rebound).status_code == 403
    assert post(request("ping"), Host="agents.internal").status_code == 200


def test_a_deployment_allows_origins(post, agent):
    cors = {"allow_origins": ["http://app.example"]}
    Revision.unscoped.filter(deployment=agent).update(config={"http": {"cors": cors}})
    routes.clear_cache()

    assert post(request("ping"), Origin="http://app.example").status_code == 200
    assert post(request("ping"), Origin="http://evil.example").status_code == 403


# Messages


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{", -32700),
        ("", -32700),
        ("[" * 300 + "]" * 300, -32700),
        ("[]", -32600),
        ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        ('"ping"', -32600),
        ('{"id":1,"method":"ping"}', -32600),
        ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":1}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
    ],
)
def test_a_malformed_message_is_an_error_of_the_caller(client, agent, key, body, code):
    response = client.post(
        f"/agents/{agent.slug}/mcp",
        body,
        content_type="application/json",
        headers={"X-Api-Key": key},
    )

    assert response.status_code == 400
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "application/json"}, 406),
        ({"Accept": "text/event-stream"}, 406),
        ({"Accept": "application/json, text/event-stream"}, 200),
        ({"Accept": "*/*"}, 200),
        ({"Mcp-Protocol-Version": "2025-06-18"}, 200),
        ({"Mcp-Protocol-Version": "1999-01-01"}, 400),
    ],
)
def test_headers_decide_whether_a_message_is_read(post, headers, status):
    assert post(request("ping"), **headers).status_code == status


def test_a_form_is_an_unsupported_media_type(client, agent, key):
    response = client.post(
        f"/agents/{agent.slug}/mcp", "a=b", content_type="text/plain", headers={"X-Api-Key": key}
    )

    assert response.status_code == 415


def test_an_unknown_version_is_answered_with_the_supported_ones(post):
    response = post(request("ping"), **{"Mcp-Protocol-Version": "1999-01-01"})

    error = response.json()["error"]
    assert (error["code"], error["data"]["requested"]) == (-32022, "1999-01-01")
    assert error["data"]["supported"][:2] == [STATELESS, "2025-11-25"]


@pytest.mark.parametrize("request_id", [0, "", "a", -7, 2**53])
def test_the_id_of_a_request_is_returned(post, request_id):
    assert post(request("ping", request_id=request_id)).json() == {
        "jsonrpc": "2.0",
        "id": request_id,
        "result": {},
    }


@pytest.mark.parametrize("method", ["prompts/delete", "completion/x", "resources/x", "x"])
def test_other_methods_of_the_protocol_are_unknown(post, method):
    response = post(request(method))

    assert response.status_code == 200
    assert response.json()["error"]["code"] == -32601


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}},
        {"jsonrpc": "2.0", "method": "notifications/of-the-future"},
    ],
)
def test_notifications_are_accepted(post, body):
    response = post(body)

    assert (response.status_code, response.content) == (202, b"")


# Versions and sessions


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_initialize_agrees_on_a_version(post, agent, requested, agreed):
    response = post(request("initialize", {"protocolVersion": requested, "capabilities": {}}))

    result = response.json()["result"]
    assert result["protocolVersion"] == agreed
    assert result["capabilities"] == {
        "completions": {},
        "logging": {},
        "prompts": {"listChanged": False},
        "tools": {"listChanged": False},
        "resources": {"listChanged": False, "subscribe": True},
    }
    assert result["serverInfo"]["name"] == agent.name


def test_initialize_without_a_version_is_invalid(post):
    response = post(request("initialize", {}))

    assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)


def begin_session(post, *offered: str, **options: Any) -> str:
    """Begin a session of a client with these capabilities."""
    capabilities = {name: {} for name in offered}
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
    response = post(request("initialize", params), **options)
    session: str = response["Mcp-Session-Id"]
    return session


def test_a_session_belongs_to_its_caller(post, agent):
    session = begin_session(post)
    other_key = key_for(agent.workspace, "write")

    def ping(session_id: str, **options: Any) -> int:
        status: int = post(request("ping"), **{"Mcp-Session-Id": session_id}, **options).status_code
        return status

    assert session.isascii()
    assert session.isprintable()
    assert ping(session) == 200
    assert ping(session, key=other_key) == 404
    assert ping(f"{session}x") == 404
    assert ping("") == 404
    assert begin_session(post) != session


def test_a_session_expires(post, time_machine):
    session = begin_session(post)

    time_machine.move_to(datetime.now(UTC) + timedelta(days=1, seconds=1))

    assert post(request("ping"), **{"Mcp-Session-Id": session}).status_code == 404


# Without a handshake


def test_discovery_names_versions_and_capabilities(post, agent):
    body, headers = stateless("server/discover")

    result = post(body, **headers).json()["result"]

    assert STATELESS in result["supportedVersions"]
    assert result["capabilities"].keys() == {
        *("completions", "extensions", "logging", "prompts", "resources", "tools")
    }
    assert result["capabilities"]["tools"] == {}
    assert result["capabilities"]["resources"] == {"subscribe": True}
    assert (result["resultType"], result["cacheScope"], result["ttlMs"]) == (
        "complete",
        "private",
        0,
    )
    assert result["_meta"][f"{META}serverInfo"]["name"] == agent.name


@pytest.mark.parametrize("method", ["initialize", "ping", "roots/list", "resources/subscribe"])
def test_unknown_stateless_method_is_not_found(post, method):
    body, headers = stateless(method)

    response = post(body, **headers)

    assert (response.status_code, response.json()["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize(
    ("changes", "headers", "code"),
    [
        ({"_meta": {}}, {}, -32602),
        ({"_meta": {f"{META}protocolVersion": STATELESS}}, {}, -32602),
        ({"_meta": 7}, {}, -32602),
        ({}, {"Mcp-Method": "tools/call"}, -32020),
        ({}, {"Mcp-Method": ""}, -32020),
        (
            {"_meta": {f"{META}protocolVersion": "1999", f"{META}clientCapabilities": {}}},
            {},
            -32020,
        ),
        (
            {"_meta": {f"{META}protocolVersion": "2025-11-25", f"{META}clientCapabilities": {}}},
            {},
            -32020,
        ),
    ],
)
def test_stateless_request_must_describe_itself(post, changes, headers, code):
    body, own_headers = stateless("tools/list")
    body["params"] |= changes

    response = post(body, **{**own_headers, **headers})

    # A malformed `_meta` is an error of the parameters.
    assert response.status_code == (200 if changes.get("_meta") == 7 else 400)
    assert response.json()["error"]["code"] == code


def test_stateless_call_names_its_tool_in_a_header(post):
    body, headers = stateless("tools/call", name="agent")

    response = post(body, **{**headers, "Mcp-Name": "other"})

    assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize(
    ("header", "status"),
    [("=?base64?YWdlbnQ=?=", 200), ("=?base64?YWdlbnQ?=", 400), ("=?base64?Z2VuYQ==?=", 400)],
)
def test_names_in_headers_may_be_in_base64(post, agent, header, status):
    set_schemas(agent, input_schema={"type": "object", "required": ["city"]})
    body, headers = stateless("tools/call", name="agent")

    response = post(body, **{**headers, "Mcp-Name": header})

    assert response.status_code == status
    assert response.json().get("error", {}).get("code") == (-32020 if status == 400 else None)


HEADERS_SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "ratio": {"type": "number", "x-mcp-header": "Ratio"},
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string", "x-mcp-header": "City"}},
        },
        "never": {"type": "string"},
    },
    "required": ["never"],  # so that no call runs
}


@pytest.mark.parametrize(
    ("arguments", "headers", "is_valid"),
    [
        ({}, {}, True),
        ({"region": "us"}, {"Mcp-Param-Region": "us"}, True),
        ({"region": "us"}, {"mcp-param-region": " us "}, True),
        ({"region": "us"}, {"Mcp-Param-Region": "=?base64?dXM=?="}, True),
        ({"region": "=?base64?dXM="}, {"Mcp-Param-Region": "=?base64?dXM="}, True),
        ({"region": "us"}, {"Mcp-Param-Region": "=?base64?dXM?="}, False),
        ({"region": "us"}, {"Mcp-Param-Region": "=?base64?d!!M=?="}, False),
        ({"region": "us"}, {"Mcp-Param-Region": "eu"}, False),
        ({"region": "us"}, {}, False),
        ({"region": None}, {}, True),
        ({}, {"Mcp-Param-Region": "us"}, False),
        ({"count": 42}, {"Mcp-Param-Count": "42.0"}, True),
        ({"count": 42}, {"Mcp-Param-Count": "x"}, False),
        ({"dry": True}, {"Mcp-Param-Dry": "true"}, True),
        ({"dry": True}, {"Mcp-Param-Dry": "True"}, False),
        ({"ratio": 0.5}, {}, True),  # not allowed for numbers
        ({"place": {"city": "Rome"}}, {"Mcp-Param-City": "Rome"}, True),
        ({"place": {"city": "Rome"}}, {}, False),
        ({"place": 7}, {}, True),
        ({}, {"Mcp-Param-Other": "x"}, True),
    ],
)
def test_headers_that_repeat_arguments_must_match_them(post, agent, arguments, headers, is_valid):
    set_schemas(agent, input_schema=HEADERS_SCHEMA)
    body, own_headers = stateless("tools/call", name="agent", arguments=arguments)

    response = post(body, **own_headers, **headers)

    if is_valid:
        assert response.json()["result"]["isError"] is True
    else:
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


# Tools


def list_tools(post, **options: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = post(request("tools/list"), **options).json()["result"]["tools"]
    return tools


def test_each_assistant_is_a_tool(post, agent):
    set_schemas(agent, input_schema={"type": "object", "properties": {"city": {"type": "string"}}})
    route_of(agent)
    create_assistant(agent, "Weather: Oslo", description="Tells the weather")

    tools = {tool["name"]: tool for tool in list_tools(post)}

    assert sorted(tools) == ["Weather__Oslo", "agent", "other"]
    assert tools["agent"]["description"] == "What agent does"
    assert tools["Weather__Oslo"] == {
        "name": "Weather__Oslo",
        "title": "Weather: Oslo",
        "description": "Tells the weather",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "annotations": {"title": "Weather: Oslo", "openWorldHint": True},
    }
    assert tools["other"]["inputSchema"] == {"title": "other", "type": "object"}


def test_names_of_tools_are_unique_and_stable(post, agent):
    route_of(agent)
    first, second = (create_assistant(agent, name) for name in ("a b", "a:b"))
    suffixed = create_assistant(agent, "x_0123abcd")
    long, unnamed = create_assistant(agent, "n" * 200), create_assistant(agent, "")

    names = {tool["name"] for tool in list_tools(post)}
    first.delete()
    names_without_first = {tool["name"] for tool in list_tools(post)}

    suffix = str(second.assistant_id)[:8]
    assert names == {
        *("agent", "other", "a_b", f"a_b_{suffix}", "assistant", "n" * 64),
        f"x_0123abcd_{str(suffixed.assistant_id)[:8]}",
    }
    assert "a_b" in names_without_first
    assert len(str(long.assistant_id)) == len(str(unnamed.assistant_id))


def test_tools_are_listed_in_pages(post, agent, monkeypatch):
    monkeypatch.setattr("apps.agent_server.mcp.tools.PAGE_SIZE", 2)
    route_of(agent)
    for number in range(3):
        create_assistant(agent, f"a{number}")

    names, cursor = [], None
    for _ in range(3):
        params = {} if cursor is None else {"cursor": cursor}
        result = post(request("tools/list", params)).json()["result"]
        names.append([tool["name"] for tool in result["tools"]])
        cursor = result.get("nextCursor")

    assert [len(page) for page in names] == [2, 2, 1]
    assert sorted(name for page in names for name in page) == ["a0", "a1", "a2", "agent", "other"]
    assert cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "bm90IGEgY3Vyc29y", 7, "MjAyNi0wMS0wMSB4", "\u00e9"])
def test_an_invalid_cursor_is_refused(post, cursor):
    assert post(request("tools/list", {"cursor": cursor})).json()["error"]["code"] == -32602


def test_listing_takes_the_same_number_of_queries_for_more_tools(
    post, agent, django_assert_num_queries
):
    route_of(agent)
    list_tools(post)
    with django_assert_num_queries(1):
        list_tools(post)
    for number in range(5):
        create_assistant(agent, f"a{number}")

    with django_assert_num_queries(1):
        list_tools(post)


@pytest.mark.parametrize(
    "params",
    [
        {"name": "missing"},
        {"name": 7},
        {},
        {"name": "agent", "arguments": []},
        {"name": "agent", "_meta": {"progressToken": []}},
        {"name": "agent", "_meta": []},
    ],
)
def test_an_invalid_call_creates_no_run(post, params):
    response = post(request("tools/call", params))

    assert (response.status_code, response.json()["error"]["code"]) == (200, -32602)
    assert not AgentRun.unscoped.exists()


def test_arguments_that_do_not_match_the_schema_are_a_failed_result(post, agent):
    properties = {"city": {"type": "string"}}
    set_schemas(
        agent, input_schema={"type": "object", "properties": properties, "required": ["city"]}
    )

    result = post(request("tools/call", {"name": "agent", "arguments": {"city": 7}})).json()

    assert result["result"] == {
        "content": [
            {
                "type": "text",
                "text": "Invalid arguments: `city` must be of type string, not integer.",
            }
        ],
        "isError": True,
    }
    assert not AgentRun.unscoped.exists()


# Calls


async def call_tool(call: Caller, worker, outcome: dict[str, Any], *, run_events=(), **params: Any):
    """Call the tool `agent` and end its run; return the run and the response."""
    body = request("tools/call", {"name": "agent", **params})
    async with call.open("POST", "/mcp", body) as client:
        run = await worker.claim_run()
        await worker.publish(run, ("metadata", {}), *run_events)
        await worker.end(run, **outcome)
        return run, await client.wait_for_end()


async def test_a_call_runs_the_assistant_without_a_thread(call, worker, agent):
    outcome = {"values": {"answer": 42}, "result": {"answer": 42}}

    run, answer = await call_tool(call, worker, outcome, arguments={"question": "?"})

    assert run.assistant_id == system_assistant_id("agent")
    assert run.kwargs["input"] == {"question": "?"}
    assert (await in_thread(Thread.unscoped.get, pk=run.thread_id)).temporary
    assert answer.json() == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "content": [{"type": "text", "text": '{"answer":42}'}],
            "structuredContent": {"answer": 42},
            "isError": False,
        },
    }


async def test_a_large_result_is_read_from_the_database(call, worker):
    values = {"answer": "x" * 100}

    _, answer = await call_tool(call, worker, {"values": values})

    assert answer.json()["result"]["structuredContent"] == values


ASKS = (
    "The assistant asks for input, and the client does not offer elicitation. Run it on a thread,"
    ' or use A2A. It asks: ["Which city?"]'
)


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (
            {"status": "error", "error": {"error": "ValueError", "message": "no such city"}},
            "ValueError: no such city",
        ),
        ({"status": "interrupted"}, "The run was cancelled."),
        (
            {"result": {"__interrupt__": [{"id": "a", "value": "Which city?"}]}},
            ASKS,
        ),
    ],
)
async def test_a_run_without_output_is_a_failed_result(call, worker, outcome, text):
    _, answer = await call_tool(call, worker, outcome)

    assert answer.status == 200
    assert answer.json()["result"] == {"content": [{"type": "text", "text": text}], "isError": True}


async def test_output_of_another_type_than_the_schemas_is_a_failed_result(call, worker, agent):
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    await in_thread(lambda: set_schemas(agent, output_schema=schema))

    _, answer = await call_tool(call, worker, {"result": {"answer": 42}})

    assert answer.json()["result"]["isError"] is True
    assert "`answer` must be of type" in answer.json()["result"]["content"][0]["text"]


async def test_output_that_is_no_object_is_wrapped(call, worker, agent):
    schema = {"type": "string"}
    await in_thread(lambda: set_schemas(agent, input_schema=schema, output_schema=schema))

    run, answer = await call_tool(
        call, worker, {"result": {"values": "done"}}, arguments={"input": "go"}
    )

    assert run.kwargs["input"] == "go"
    assert answer.json()["result"]["structuredContent"] == {"result": "done"}


async def test_progress_is_notified_for_each_step(call, worker):
    events = [("updates", {"plan": {}}), ("updates", {"write": {}}), ("values", {})]

    _, answer = await call_tool(
        call, worker, {"result": {"a": 1}}, run_events=events, _meta={"progressToken": "t"}
    )

    assert answer.headers["content-type"].startswith("text/event-stream")
    sent = [data for _, data, _ in answer.events]
    assert [message["params"] for message in sent[:-1]] == [
        {"progressToken": "t", "progress": 1, "message": "plan"},
        {"progressToken": "t", "progress": 2, "message": "write"},
    ]
    assert sent[-1]["result"]["structuredContent"] == {"a": 1}


async def test_a_client_cancels_its_own_request(call, worker):
    answer = await call("POST", "/mcp", request("initialize", {"protocolVersion": "2025-11-25"}))
    own = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
    answer = await call("POST", "/mcp", request("initialize", {"protocolVersion": "2025-11-25"}))
    other = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
    body = request("tools/call", {"name": "agent"}, request_id=5)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}

    async with call.open("POST", "/mcp", body, **own) as client:
        run = await worker.claim_run()
        for headers in (other, {}):
            assert (await call("POST", "/mcp", cancel, **headers)).status == 202
        before = await in_thread(AgentRun.unscoped.get, pk=run.pk)
        assert (await call("POST", "/mcp", cancel, **own)).status == 202
        cancelled = await worker.next_cancelled_run()
        await worker.end(run, "interrupted")
        result = (await client.wait_for_end()).json()["result"]

    assert (before.cancel_action, cancelled) == ("", run.pk)
    assert result["isError"] is True


async def test_a_stateless_client_cancels_by_closing_the_response(call, worker):
    body, headers = stateless("tools/call", name="agent")

    async with call.open("POST", "/mcp", body, **headers) as client:
        run = await worker.claim_run()
        client.disconnect()
        cancelled: UUID = await worker.next_cancelled_run()
        await worker.end(run, "interrupted")

    assert cancelled == run.pk


async def test_stateless_result_is_complete(call, worker):
    body, headers = stateless("tools/call", name="agent")

    async with call.open("POST", "/mcp", body, **headers) as client:
        await worker.end(await worker.claim_run(), result={"a": 1})
        result = (await client.wait_for_end()).json()["result"]

    assert result["resultType"] == "complete"
    assert json.loads(result["content"][0]["text"]) == {"a": 1}


# Questions to the user

QUESTION = {
    "values": {},
    "interrupts": {"t": [{"id": "i1", "value": {"question": "Which city?"}}]},
}
TWO_QUESTIONS = {
    "values": {},
    "interrupts": {"t": [{"id": "i1", "value": "City?"}], "u": [{"id": "i2", "value": {"n": 1}}]},
}
ASKED = {
    "message": "Which city?",
    "requestedSchema": {
        "type": "object",
        "properties": {"answer": {"type": "string", "title": "Answer"}},
        "required": ["answer"],
    },
}


def accept(answer: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"answer": answer}}


def asking(**params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A call of a client without a session that offers elicitation."""
    body, headers = stateless("tools/call", name="agent", **params)
    body["params"]["_meta"][f"{META}clientCapabilities"] = {"elicitation": {}}
    return body, headers


async def run_call(call: Caller, worker, outcome: dict[str, Any], **params: Any):
    """Call the tool, end its run and return the run and the result."""
    body, headers = asking(**params)
    async with call.open("POST", "/mcp", body, **headers) as client:
        run = await worker.claim_run()
        await worker.end(run, **outcome)
        return run, (await client.wait_for_end()).json()["result"]


async def test_a_question_is_the_result_and_the_repeated_call_answers_it(call, worker):
    first, asked = await run_call(call, worker, QUESTION)
    state = asked["requestState"]

    second, result = await run_call(
        call,
        worker,
        {"values": {"city": "Rome"}},
        requestState=state,
        inputResponses={"i1": accept("Rome")},
    )

    assert (asked["resultType"], "content" in asked) == ("input_required", False)
    assert asked["inputRequests"] == {"i1": {"method": "elicitation/create", "params": ASKED}}
    assert second.thread_id == first.thread_id
    assert second.kwargs["command"]["resume"] == "Rome"
    assert result["resultType"] == "complete"
    assert result["structuredContent"] == {"city": "Rome"}
    thread = await in_thread(Thread.unscoped.get, pk=first.thread_id)
    assert thread.temporary  # deleted


async def test_several_questions_are_answered_by_their_ids(call, worker):
    _, asked = await run_call(call, worker, TWO_QUESTIONS)

    run, _ = await run_call(
        call,
        worker,
        {"values": {}},
        requestState=asked["requestState"],
        inputResponses={"i1": accept("Rome"), "i2": accept("one")},
    )

    assert [request["params"]["message"] for request in asked["inputRequests"].values()] == [
        "City?",
        '{"n":1}',
    ]
    assert run.kwargs["command"]["resume"] == {"i1": "Rome", "i2": "one"}


FORM = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "default": 2}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("schema", "is_shown"),
    [
        (FORM, True),
        ({"type": "string"}, False),
        ({**FORM, "required": "city"}, False),
        ({**FORM, "properties": {"city": {"type": "object"}}}, False),
        ({**FORM, "properties": {"city": {"type": "string", "title": "x" * 20_000}}}, False),
    ],
)
async def test_a_graph_names_the_fields_of_its_form(call, worker, schema, is_shown):
    value = {"message": "Where?", "requestedSchema": schema}
    question = {"values": {}, "interrupts": {"t": [{"id": "i1", "value": value}]}}
    _, asked = await run_call(call, worker, question)
    state = {"requestState": asked["requestState"]}
    content = {"city": "Rome", "nights": 3} if is_shown else {"answer": "Rome"}
    body, headers = asking(**state, inputResponses={"i1": {"action": "accept", "content": {}}})

    refused = await call("POST", "/mcp", body, **headers)
    responses = {"i1": {"action": "accept", "content": content}}
    run, _ = await run_call(call, worker, {"values": {}}, **state, inputResponses=responses)

    params = asked["inputRequests"]["i1"]["params"]
    assert params["message"] == "Where?"
    assert params["requestedSchema"] == (schema if is_shown else ASKED["requestedSchema"])
    assert refused.json()["error"]["code"] == -32602
    assert run.kwargs["command"]["resume"] == (content if is_shown else "Rome")


async def test_a_user_who_declines_ends_the_call(call, worker):
    run, asked = await run_call(call, worker, QUESTION)
    body, headers = asking(
        requestState=asked["requestState"], inputResponses={"i1": {"action": "decline"}}
    )

    answer = await call("POST", "/mcp", body, **headers)
    again = await call("POST", "/mcp", body, **headers)

    assert answer.json()["result"]["isError"] is True
    assert "did not answer" in answer.json()["result"]["content"][0]["text"]
    assert again.json()["error"]["code"] == -32602
    assert await in_thread(AgentRun.unscoped.filter(thread=run.thread_id).count) == 0


@pytest.mark.parametrize(
    "responses",
    [[], 7, {"i1": {}}, {"i1": None}, {"i1": {"action": "accept"}}, {"i1": {"action": "accept",
     "content": {"answer": 7}}}, {"i1": {"action": "accept", "content": {"other": "x"}}}],
)  # fmt: skip
async def test_malformed_answers_are_refused_and_can_be_given_later(call, worker, responses):
    _, asked = await run_call(call, worker, QUESTION)
    body, headers = asking(requestState=asked["requestState"], inputResponses=responses)

    refused = await call("POST", "/mcp", body, **headers)
    _, result = await run_call(
        call,
        worker,
        {"values": {"a": 1}},
        requestState=asked["requestState"],
        inputResponses={"i1": accept("Rome")},
    )

    assert refused.json()["error"]["code"] == -32602
    assert result["structuredContent"] == {"a": 1}


@pytest.mark.parametrize("responses", [None, {}, {"i1": accept("Rome")}, {"x": accept("Rome")}])
async def test_missing_answers_are_asked_for_again(call, worker, responses):
    _, asked = await run_call(call, worker, TWO_QUESTIONS)
    body, headers = asking(requestState=asked["requestState"], inputResponses=responses)

    again = (await call("POST", "/mcp", body, **headers)).json()["result"]
    run, _ = await run_call(
        call,
        worker,
        {"values": {}},
        requestState=again["requestState"],
        inputResponses={"i1": accept("Rome"), "i2": accept("one"), "unknown": {"other": 1}},
    )

    assert again["resultType"] == "input_required"
    assert again["inputRequests"] == asked["inputRequests"]
    assert run.kwargs["command"]["resume"] == {"i1": "Rome", "i2": "one"}


async def test_each_round_of_questions_has_a_state_that_is_answered_once(call, worker):
    _, first = await run_call(call, worker, QUESTION)
    answers = {"i1": accept("Rome")}
    _, second = await run_call(
        call, worker, QUESTION, requestState=first["requestState"], inputResponses=answers
    )
    body, headers = asking(requestState=first["requestState"], inputResponses=answers)

    replayed = await call("POST", "/mcp", body, **headers)
    _, result = await run_call(
        call,
        worker,
        {"values": {"a": 1}},
        requestState=second["requestState"],
        inputResponses=answers,
    )

    assert first["requestState"] != second["requestState"]
    assert replayed.json()["error"]["code"] == -32602
    assert result["structuredContent"] == {"a": 1}
    assert await in_thread(AgentRun.unscoped.count) == 0  # deleted with their thread


async def test_a_state_belongs_to_its_caller_and_its_tool(call, worker, agent, asgi_app):
    _, asked = await run_call(call, worker, QUESTION)
    await in_thread(lambda: create_assistant(agent, "other"))
    other_key = await in_thread(key_for, agent.workspace, "write")
    fields = {"requestState": asked["requestState"], "inputResponses": {"i1": accept("Rome")}}
    body, headers = asking(**fields)

    of_others = await Caller(agent.slug, other_key)("POST", "/mcp", body, **headers)
    body["params"]["requestState"] += "x"
    forged = await call("POST", "/mcp", body, **headers)
    body, headers = asking(**fields)
    body["params"]["name"] = headers["Mcp-Name"] = "other"
    of_another_tool = await call("POST", "/mcp", body, **headers)

    for answer in (of_others, forged, of_another_tool):
        assert answer.json()["error"]["code"] == -32602
    assert await in_thread(AgentRun.unscoped.count) == 1


async def test_a_client_without_the_capability_learns_which_one_is_required(call, worker):
    body, headers = stateless("tools/call", name="agent")
    async with call.open("POST", "/mcp", body, **headers) as client:
        outcome = {"result": {"__interrupt__": [{"id": "a", "value": "Which city?"}]}}
        await worker.end(await worker.claim_run(), **outcome)
        answer = await client.wait_for_end()

    assert (answer.status, answer.json()["id"]) == (400, 1)
    error = answer.json()["error"]
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {}}})
    assert "Which city?" in error["message"]


async def test_an_empty_list_of_interrupts_asks_nothing(call, worker):
    body, headers = stateless("tools/call", name="agent")
    async with call.open("POST", "/mcp", body, **headers) as client:
        await worker.end(await worker.claim_run(), result={"a": 1, "__interrupt__": []})
        answer = await client.wait_for_end()

    assert (answer.status, answer.json()["result"]["isError"]) == (200, False)


# Requests that graphs name

SAMPLE = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Greet"}}],
        "maxTokens": 50,
    },
}
ELICIT = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": FORM}}
ROOTS = {"method": "roots/list"}
MODEL_SAYS = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"}


def naming(**requests: Any) -> dict[str, Any]:
    """The outcome of a run whose interrupt names these requests."""
    interrupt = {"id": "i1", "value": {"inputRequests": requests}}
    return {"values": {}, "interrupts": {"t": [interrupt]}}


async def call_offering(call: Caller, worker, capabilities, outcome: dict[str, Any], **params: Any):
    """Call the tool as a client with these capabilities; return the run and the response."""
    body, headers = stateless("tools/call", name="agent", **params)
    body["params"]["_meta"][f"{META}clientCapabilities"] = {name: {} for name in capabilities}
    async with call.open("POST", "/mcp", body, **headers) as client:
        run = await worker.claim_run()
        await worker.end(run, **outcome)
        return run, (await client.wait_for_end()).json()


async def test_a_graph_names_requests_of_all_kinds(call, worker):
    offered = ("elicitation", "sampling", "roots")
    outcome = naming(user=ELICIT, greeting=SAMPLE, folders=ROOTS)
    roots = {"roots": [{"uri": "file:///a"}]}
    responses = {
        "user": {"action": "accept", "content": {"city": "Rome"}},
        "greeting": MODEL_SAYS,
        "folders": roots,
    }

    _, answer = await call_offering(call, worker, offered, outcome)
    asked = answer["result"]
    run, _ = await call_offering(
        call,
        worker,
        offered,
        {"values": {}},
        requestState=asked["requestState"],
        inputResponses=responses,
    )

    assert asked["inputRequests"] == {
        "user": ELICIT,
        "greeting": SAMPLE,
        "folders": {**ROOTS, "params": {}},
    }
    assert run.kwargs["command"]["resume"] == {
        "user": {"city": "Rome"},
        "greeting": MODEL_SAYS,
        "folders": roots,
    }


async def test_a_client_is_asked_only_for_what_it_offers(call, worker):
    _, answer = await call_offering(call, worker, ["sampling"], naming(user=ELICIT, hi=SAMPLE))
    asked = answer["result"]
    run, _ = await call_offering(
        call,
        worker,
        ["sampling"],
        {"values": {}},
        requestState=asked["requestState"],
        inputResponses={"hi": MODEL_SAYS, "user": {"action": "accept", "content": {"city": "x"}}},
    )

    assert asked["inputRequests"] == {"hi": SAMPLE}
    assert run.kwargs["command"]["resume"] == {"user": None, "hi": MODEL_SAYS}


@pytest.mark.parametrize(
    ("modes", "is_asked"), [({}, True), ({"form": {}, "url": {}}, True), ({"url": {}}, False)]
)
async def test_a_client_is_asked_by_a_form_only_if_it_shows_forms(call, worker, modes, is_asked):
    body, headers = stateless("tools/call", name="agent")
    body["params"]["_meta"][f"{META}clientCapabilities"] = {"elicitation": modes}

    async with call.open("POST", "/mcp", body, **headers) as client:
        await worker.end(await worker.claim_run(), **naming(user=ELICIT))
        answer = await client.wait_for_end()

    assert answer.status == (200 if is_asked else 400)
    assert ("result" in answer.json()) == is_asked


async def test_a_call_that_needs_what_the_client_lacks_leaves_no_thread(call, worker):
    run, answer = await call_offering(call, worker, ["elicitation"], naming(hi=SAMPLE))

    required = {"requiredCapabilities": {"sampling": {}}}
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32021, required)
    assert (await in_thread(Thread.unscoped.get, pk=run.thread_id)).temporary  # deleted


@pytest.mark.parametrize(
    "requests",
    [
        {},
        {"a": {"method": "tools/call", "params": {}}},
        {"a": {**ELICIT, "params": {"message": "no form"}}},
        {"a": {**SAMPLE, "params": {"messages": []}}},
        {"a": {**SAMPLE, "params": {**SAMPLE["params"], "maxTokens": True}}},
        {"a": 7},
        {"": ROOTS},
        {"x" * 65: ROOTS},
        {f"r{number}": ROOTS for number in range(17)},
        {"a": {**SAMPLE, "params": {"messages": ["x" * 70_000], "maxTokens": 1}}},
    ],
)
async def test_requests_that_are_not_valid_are_a_question_with_text(call, worker, requests):
    _, answer = await call_offering(call, worker, ["elicitation"], naming(**requests))

    [(key, asked)] = answer["result"]["inputRequests"].items()
    assert (key, asked["method"]) == ("i1", "elicitation/create")
    assert asked["params"]["requestedSchema"] == ASKED["requestedSchema"]


@pytest.mark.parametrize(
    ("request_", "response"),
    [(SAMPLE, {"role": "assistant"}), (SAMPLE, 7), (ROOTS, {"roots": {}}), (ROOTS, None)],
)
async def test_malformed_answers_to_named_requests_are_refused(call, worker, request_, response):
    offered = ["sampling", "roots"]
    _, answer = await call_offering(call, worker, offered, naming(a=request_))
    body, headers = stateless(
        "tools/call",
        name="agent",
        requestState=answer["result"]["requestState"],
        inputResponses={"a": response},
    )
    body["params"]["_meta"][f"{META}clientCapabilities"] = {name: {} for name in offered}

    refused = await call("POST", "/mcp", body, **headers)

    assert refused.json()["error"]["code"] == -32602


async def test_a_session_is_asked_for_its_model(call, worker):
    params = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}}
    answer = await call("POST", "/mcp", request("initialize", params))
    session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}

    async with call.open("POST", "/mcp", request("tools/call", {"name": "agent"}), **session) as (
        client
    ):
        await worker.end(await worker.claim_run(), **naming(user=ELICIT, hi=SAMPLE))
        await client.wait_until(lambda answer: answer.events)
        [(_, asked, _)] = client.answer.events
        await call("POST", "/mcp", respond(asked["id"], MODEL_SAYS), **session)
        run = await worker.claim_run()
        await worker.end(run, values={"text": "Hi"})
        events = (await client.wait_for_end()).events

    assert (asked["method"], asked["params"]) == (SAMPLE["method"], SAMPLE["params"])
    assert run.kwargs["command"]["resume"] == {"user": None, "hi": MODEL_SAYS}
    assert events[-1][1]["result"]["structuredContent"] == {"text": "Hi"}


async def test_a_session_that_cannot_answer_gets_a_failed_result(call, worker):
    session = await begin_asking_session(call)

    async with call.open("POST", "/mcp", request("tools/call", {"name": "agent"}), **session) as (
        client
    ):
        await worker.end(await worker.claim_run(), **naming(hi=SAMPLE))
        events = (await client.wait_for_end()).events

    assert events[-1][1]["result"]["isError"] is True
    assert "sampling/createMessage" in events[-1][1]["result"]["content"][0]["text"]


# Questions to a client with a session


async def begin_asking_session(call: Caller) -> dict[str, str]:
    params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
    answer = await call("POST", "/mcp", request("initialize", params))
    return {"Mcp-Session-Id": answer.headers["mcp-session-id"]}


def respond(request_id: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


async def test_a_client_with_a_session_is_asked_on_the_stream_of_its_call(call, worker):
    session = await begin_asking_session(call)
    stranger = await begin_asking_session(call)
    body = request("tools/call", {"name": "agent"}, request_id=5)

    async with call.open("POST", "/mcp", body, **session) as client:
        await worker.end(await worker.claim_run(), **QUESTION)
        await client.wait_until(lambda answer: answer.events)
        [(_, asked, _)] = client.answer.events
        for headers in (stranger, {}):
            refused = await call("POST", "/mcp", respond(asked["id"], accept("Oslo")), **headers)
            assert (refused.status, refused.json()["error"]["code"]) == (400, -32600)
        answer = respond(asked["id"], accept("Rome"))
        assert (await call("POST", "/mcp", answer, **session)).status == 202
        run = await worker.claim_run()
        await worker.end(run, values={"city": "Rome"})
        events = (await client.wait_for_end()).events

    assert (asked["method"], asked["params"]) == ("elicitation/create", ASKED)
    assert run.kwargs["command"]["resume"] == "Rome"
    assert events[-1][1]["id"] == 5
    assert events[-1][1]["result"]["structuredContent"] == {"city": "Rome"}
    assert "resultType" not in events[-1][1]["result"]
    assert (await in_thread(Thread.unscoped.get, pk=run.thread_id)).temporary


@pytest.fixture
def user_call(agent, asgi_app, monkeypatch) -> Caller:
    """A user of an agent whose own code lets users see their own threads, and all assistants."""
    revision = agent.active_revision
    revision.config = {"auth": {"path": "./auth.py:auth"}}
    revision.facts = {"auth": {"rules": ["threads.*"]}}
    revision.save()
    routes.clear_cache()

    async def answer(_: Any, auth_request: dict[str, Any]) -> dict[str, Any]:
        user = {"identity": "tom", "permissions": []}
        return {"user": user, "filters": {"owner": "tom"}, "value": auth_request.get("value")}

    monkeypatch.setattr(custom_auth, "_call_auth_code", answer)
    return Caller(agent.slug, Authorization="tom")


async def test_the_agents_own_code_authorizes_the_run_with_the_answer(user_call, worker):
    session = await begin_asking_session(user_call)
    body = request("tools/call", {"name": "agent"})

    async with user_call.open("POST", "/mcp", body, **session) as client:
        await worker.end(await worker.claim_run(), **QUESTION)
        await client.wait_until(lambda answer: answer.events)
        [(_, asked, _)] = client.answer.events
        await user_call("POST", "/mcp", respond(asked["id"], accept("Rome")), **session)
        await worker.end(await worker.claim_run(), values={"city": "Rome"})
        events = (await client.wait_for_end()).events

    assert events[-1][1]["result"]["structuredContent"] == {"city": "Rome"}


async def test_an_answer_outlives_a_lost_message(call, worker, monkeypatch):
    """Redis restarts between the answer and the call that waits for it."""
    monkeypatch.setattr("apps.agent_server.web.http_context.HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(dispatch, "publish", lambda *_: None)
    session = await begin_asking_session(call)

    async with call.open("POST", "/mcp", request("tools/call", {"name": "agent"}), **session) as (
        client
    ):
        await worker.end(await worker.claim_run(), **QUESTION)
        await client.wait_until(lambda answer: answer.events)
        [(_, asked, _)] = client.answer.events
        await call("POST", "/mcp", respond(asked["id"], accept("Rome")), **session)
        await worker.end(await worker.claim_run(), values={"city": "Rome"})
        events = (await client.wait_for_end()).events

    assert events[-1][1]["result"]["structuredContent"] == {"city": "Rome"}


async def test_a_session_answers_several_questions_each_once(call, worker):
    session = await begin_asking_session(call)

    async with call.open("POST", "/mcp", request("tools/call", {"name": "agent"}), **session) as (
        client
    ):
        await worker.end(await worker.claim_run(), **TWO_QUESTIONS)
        await client.wait_until(lambda answer: len(answer.events) == 2)
        first, second = (event["id"] for _, event, _ in client.answer.events)
        for request_id, text in ((second, "one"), (second, "two"), (first, "Rome")):
            answer = respond(request_id, accept(text))
            assert (await call("POST", "/mcp", answer, **session)).status == 202
        run = await worker.claim_run()
        await worker.end(run, values={})
        await client.wait_for_end()

    assert run.kwargs["command"]["resume"] == {"i1": "Rome", "i2": "one"}


@pytest.fixture
def asking_run(agent):
    """A function that makes a run of a session whose call's web process died after it asked."""

    def make(session: dict[str, str]) -> AgentRun:
        interrupts = {"t": [{"id": "i1", "value": "City?"}]}
        state = {"values": {}, "interrupts": interrupts, "status": "interrupted"}
        thread = create_thread(agent, **state, runs_received=1)
        token = session["Mcp-Session-Id"].partition(".")[0]
        run: AgentRun = AgentRunFactory(
            thread=thread,
            sequence=1,
            status="success",
            metadata={"mcp_session": token, "mcp_request_id": 5},
            kwargs={"stream_mode": ["updates"]},
        )
        return run

    return make


def test_an_answer_continues_the_run_although_the_web_process_of_its_call_died(post, asking_run):
    session = {"Mcp-Session-Id": begin_session(post, "elicitation")}
    asked = asking_run(session)
    answer = respond(f"{asked.pk}:i1", accept("Rome"))

    assert [post(answer, **session).status_code for _ in range(2)] == [202, 202]

    [run] = AgentRun.unscoped.exclude(pk=asked.pk)
    assert (run.thread_id, run.assistant_id) == (asked.thread_id, asked.assistant_id)
    assert (run.kwargs["command"]["resume"], run.kwargs["stream_mode"]) == ("Rome", ["updates"])
    assert run.metadata["mcp_request_id"] == 5
    late = post(respond(f"{asked.pk}:i2", accept("Oslo")), **session)
    assert (late.status_code, late.json()["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("request_id", [7, "x", f"{UUID(int=7)}:i1", f"{UUID(int=7)}"])
def test_answers_that_nobody_asked_for_are_refused(post, request_id):
    session = {"Mcp-Session-Id": begin_session(post)}

    response = post(respond(request_id, accept("x")), **session)

    assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
    assert response.json()["id"] == request_id


@pytest.mark.parametrize(
    "forged",
    [
        {"mcp_next_run": "x"},
        {"mcp_next_run": {"a": 1}},
        {"mcp_answers": 5},
        {"mcp_answers": ["i1"]},
        {"mcp_problem": {"a": 1}},
        {"mcp_session": ["x"]},
    ],
)
def test_metadata_of_a_client_that_looks_like_ours_is_no_server_error(post, asking_run, forged):
    session = {"Mcp-Session-Id": begin_session(post, "elicitation")}
    asked = asking_run(session)
    AgentRun.unscoped.filter(pk=asked.pk).update(metadata={**asked.metadata, **forged})

    response = post(respond(f"{asked.pk}:i1", accept("Rome")), **session)

    assert response.status_code in {202, 400}


@pytest.mark.parametrize("request_id", ["\0", {"a": "\0"}, ["\0"], 10**30, "x" * 100_000])
def test_odd_ids_of_cancelled_requests_are_no_server_errors(post, request_id):
    session = {"Mcp-Session-Id": begin_session(post)}
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled"}

    response = post({**body, "params": {"requestId": request_id}}, **session)

    assert response.status_code in {202, 400}


async def test_an_answer_that_starts_no_run_ends_the_call(call, worker, monkeypatch):
    session = await begin_asking_session(call)

    async with call.open("POST", "/mcp", request("tools/call", {"name": "agent"}), **session) as (
        client
    ):
        await worker.end(await worker.claim_run(), **QUESTION)
        await client.wait_until(lambda answer: answer.events)
        [(_, asked, _)] = client.answer.events

        def refuse(*_: Any) -> None:
            raise QueueFull("organization", 1)

        monkeypatch.setattr(runs, "create_on_thread", refuse)
        assert (
            await call("POST", "/mcp", respond(asked["id"], accept("Rome")), **session)
        ).status == 202
        events = (await client.wait_for_end()).events

    assert events[-1][1]["result"]["isError"] is True


@pytest.mark.parametrize(
    "outcome", [{"result": {"action": "cancel"}}, {"error": {"code": -1, "message": "no"}}]
)
async def test_a_session_whose_user_does_not_answer_gets_a_failed_result(call, worker, outcome):
    session = await begin_asking_session(call)

    async with call.open("POST", "/mcp", request("tools/call", {"name": "agent"}), **session) as (
        client
    ):
        await worker.end(await worker.claim_run(), **QUESTION)
        await client.wait_until(lambda answer: answer.events)
        [(_, asked, _)] = client.answer.events
        await call("POST", "/mcp", {"jsonrpc": "2.0", "id": asked["id"], **outcome}, **session)
        events = (await client.wait_for_end()).events

    assert events[-1][1]["result"]["isError"] is True


async def test_long_answers_are_refused(call):
    session = await begin_asking_session(call)

    answer = await call("POST", "/mcp", respond("x", accept("x" * 70_000)), **session)

    assert (answer.status, answer.json()["error"]["code"]) == (400, -32602)


def test_a_reader_answers_nothing(post, reader_key):
    session = begin_session(post, key=reader_key)

    response = post(respond("x", accept("y")), key=reader_key, **{"Mcp-Session-Id": session})

    assert response.status_code == 403


# Threads as resources


def create_thread(agent, **fields: Any) -> Thread:
    thread: Thread = ThreadFactory(deployment=agent, **fields)
    return thread


def test_threads_are_resources(post, agent):
    thread = create_thread(agent, values={"messages": ["hi"]}, interrupts={"t": [{"id": "i"}]})
    uri = f"thread:///{thread.thread_id}"

    [listed] = post(request("resources/list")).json()["result"]["resources"]
    [content] = post(request("resources/read", {"uri": uri})).json()["result"]["contents"]
    templates = post(request("resources/templates/list")).json()["result"]

    assert (listed["uri"], listed["mimeType"]) == (uri, "application/json")
    assert content["uri"] == uri
    read = json.loads(content["text"])
    assert (read["thread_id"], read["status"]) == (str(thread.thread_id), thread.status)
    assert (read["values"], read["interrupts"]) == ({"messages": ["hi"]}, {"t": [{"id": "i"}]})
    assert templates["resourceTemplates"][0]["uriTemplate"] == "thread:///{thread_id}"


def test_resources_have_pages(post, agent, monkeypatch):
    monkeypatch.setattr(resources, "PAGE_SIZE", 2)
    for _ in range(3):
        create_thread(agent)

    first = post(request("resources/list")).json()["result"]
    second = post(request("resources/list", {"cursor": first["nextCursor"]})).json()["result"]

    uris = [row["uri"] for page in (first, second) for row in page["resources"]]
    assert len(set(uris)) == 3
    assert "nextCursor" not in second


@pytest.mark.parametrize("cursor", ["x", "-1", "99999999", "²", 7])
def test_invalid_cursors_of_resources_are_refused(post, cursor):
    response = post(request("resources/list", {"cursor": cursor}))

    assert response.json()["error"]["code"] == -32602


@pytest.mark.parametrize(
    "uri", ["thread:///x", "file:///etc/passwd", "", f"thread:///{UUID(int=7)}"]
)
def test_unknown_resources_are_not_found(post, uri):
    body, headers = stateless("resources/read", uri=uri)
    headers["Mcp-Name"] = uri

    assert post(request("resources/read", {"uri": uri})).json()["error"]["code"] == -32002
    assert post(body, **headers).json()["error"]["code"] == -32602
    headers["Mcp-Name"] = "thread:///y"
    assert post(body, **headers).json()["error"]["code"] == -32020


def test_resources_of_others_are_not_found(post, agent, outsider_key):
    other = ThreadFactory(values={"a": "sentinel"})
    params = {"uri": f"thread:///{other.thread_id}"}

    assert post(request("resources/read", params)).json()["error"]["code"] == -32002
    assert post(request("resources/list")).json()["result"]["resources"] == []
    assert post(request("resources/list"), key=outsider_key).status_code == 404


def test_disabled_threads_are_no_resources(post, agent):
    thread = create_thread(agent)
    Revision.unscoped.filter(deployment=agent).update(config={"http": {"disable_threads": True}})
    routes.clear_cache()
    params = {"uri": f"thread:///{thread.thread_id}"}

    assert post(request("resources/list")).json()["result"]["resources"] == []
    assert post(request("resources/templates/list")).json()["result"]["resourceTemplates"] == []
    assert post(request("resources/read", params)).json()["error"]["code"] == -32002
