"""Graphs that an agent's MCP server offers as prompts and resources, and completions of both."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from apps.agent_server.models import AgentRun
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.models import Revision
from tests.agent_server.asgi import Caller
from tests.agent_server.test_mcp import (
    QUESTION,
    accept,
    begin_session,
    create_assistant,
    list_tools,
    post,
    request,
    set_schemas,
    stateless,
)
from tests.factories.agent_server import ThreadFactory, route_of

__all__ = ["post"]
ARGUMENTS = {
    "type": "object",
    "properties": {
        "tone": {"type": "string", "description": "How it sounds", "enum": ["calm", "cold", "dry"]},
        "words": {"type": "integer"},
        "page": {"$ref": "#/$defs/Page"},
    },
    "required": ["tone"],
    "$defs": {"Page": {"anyOf": [{"const": "home"}, {"const": "help"}, {"const": 3}]}},
}
TEMPLATE = "docs://pages/{page}"


@pytest.fixture
def offer(agent):
    """Return a function that offers the graph `agent`, whose input has `ARGUMENTS`."""

    def offer(**mcp: Any) -> None:
        set_schemas(agent, input_schema=ARGUMENTS)
        Revision.unscoped.filter(deployment=agent).update(config={"mcp": mcp})
        routes.clear_cache()
        route_of(agent)

    return offer


@pytest.fixture
def prompt(offer) -> None:
    offer(prompts=["agent"])


@pytest.fixture
def resource(offer, agent) -> None:
    offer(resources={"docs://all": "agent", TEMPLATE: "agent"})
    set_schemas(agent, input_schema={"type": "object", "properties": {"page": {"type": "string"}}})


def get_result(post: Any, method: str, params: Any = None, **options: Any) -> Any:
    return post(request(method, params), **options).json()["result"]


def get_error(post: Any, method: str, params: Any = None, **options: Any) -> Any:
    return post(request(method, params), **options).json()["error"]["code"]


async def run(
    call: Caller, worker: Any, method: str, outcome: dict[str, Any], **params: Any
) -> tuple[Any, Any]:
    """Make a call and end its run; return the run and the response's body."""
    async with call.open("POST", "/mcp", request(method, params)) as client:
        row = await worker.claim_run()
        await worker.end(row, **outcome)
        return row, (await client.wait_for_end()).json()


def messages(*messages: Any) -> dict[str, Any]:
    return {"values": {"messages": list(messages)}}


def human(content: Any) -> dict[str, Any]:
    return {"type": "human", "content": content}


# Prompts


def test_assistants_of_a_prompts_graph_are_prompts_and_no_tools(post, agent, prompt):
    create_assistant(agent, "Short one", description="Writes little")

    rows = {row["name"]: row for row in get_result(post, "prompts/list")["prompts"]}

    assert [tool["name"] for tool in list_tools(post)] == ["other"]
    assert rows.keys() == {"agent", "Short_one"}
    assert rows["Short_one"] == {
        "name": "Short_one",
        "title": "Short one",
        "description": "Writes little",
        "arguments": [
            {"name": "tone", "description": "How it sounds", "required": True},
            {"name": "page", "required": False},
            {"name": "words", "required": False},
        ],
    }


def test_an_agent_without_prompts_has_none(post, agent):
    assert get_result(post, "prompts/list") == {"prompts": []}
    assert get_error(post, "prompts/get", {"name": "agent"}) == -32602


async def test_a_prompt_has_the_messages_of_its_graph(call, worker, prompt):
    file = {
        "type": "file",
        "base64": "aGk=",
        "mime_type": "text/plain",
        "filename": "docs://a page",
    }
    outcome = messages(
        {"type": "system", "content": "secret"},
        human([{"type": "text", "text": "Read"}, file]),
        {"type": "ai", "content": "Gladly"},
    )

    row, body = await run(
        call, worker, "prompts/get", outcome, name="agent", arguments={"tone": "dry", "words": "7"}
    )

    content = {"uri": "docs://a page", "mimeType": "text/plain", "text": "hi"}
    assert row.kwargs["input"] == {"tone": "dry", "words": 7}
    assert body["result"] == {
        "description": "What agent does",
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Read"}},
            {"role": "user", "content": {"type": "resource", "resource": content}},
            {"role": "assistant", "content": {"type": "text", "text": "Gladly"}},
        ],
    }


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 7},
        {"name": "other"},
        {"name": "agent"},
        {"name": "agent", "arguments": {}},
        {"name": "agent", "arguments": {"tone": 7}},
        {"name": "agent", "arguments": {"tone": "dry", "words": "many"}},
        {"name": "agent", "arguments": ["dry"]},
    ],
)
def test_an_invalid_request_for_a_prompt_creates_no_run(post, prompt, params):
    assert get_error(post, "prompts/get", params) == -32602
    assert not AgentRun.unscoped.exists()


def test_a_reader_lists_prompts_and_resources_and_runs_no_graph(post, prompt, reader_key, offer):
    params = {"name": "agent", "arguments": {"tone": "dry"}}

    assert get_result(post, "prompts/list", key=reader_key)["prompts"]
    assert post(request("prompts/get", params), key=reader_key).status_code == 403
    offer(resources={"docs://all": "agent"})
    read = request("resources/read", {"uri": "docs://all"})
    assert get_result(post, "resources/list", key=reader_key)["resources"]
    assert post(read, key=reader_key).status_code == 403
    assert not AgentRun.unscoped.exists()


FAILED = [
    {"status": "error", "error": {"error": "ValueError", "message": "no such page"}},
    {"status": "interrupted"},
]


@pytest.mark.parametrize("outcome", [messages(), {"values": {"text": "no message"}}, *FAILED])
async def test_a_graph_without_messages_is_an_error(call, worker, prompt, outcome):
    params = {"name": "agent", "arguments": {"tone": "dry"}}

    _, body = await run(call, worker, "prompts/get", outcome, **params)

    assert body["error"]["code"] == -32603


@pytest.mark.parametrize("outcome", FAILED)
async def test_a_graph_that_fails_is_no_content(call, worker, resource, outcome):
    _, body = await run(call, worker, "resources/read", outcome, uri="docs://all")

    assert body["error"]["code"] == -32603


async def test_a_prompt_asks_its_user(call, worker, prompt):
    async def get(outcome: Any, **more: Any) -> Any:
        params = {"name": "agent", "arguments": {"tone": "dry"}, **more}
        body, headers = stateless("prompts/get", **params)
        capabilities = body["params"]["_meta"]
        capabilities["io.modelcontextprotocol/clientCapabilities"] = {"elicitation": {}}
        async with call.open("POST", "/mcp", body, **headers) as client:
            row = await worker.claim_run()
            await worker.end(row, **outcome)
            return row, (await client.wait_for_end()).json()["result"]

    _, asked = await get(QUESTION)
    answers = {"requestState": asked["requestState"], "inputResponses": {"i1": accept("Rome")}}
    row, result = await get(messages(human("About Rome")), **answers)

    assert asked["resultType"] == "input_required"
    assert row.kwargs["command"]["resume"] == "Rome"
    assert result["messages"][0]["content"]["text"] == "About Rome"


async def test_the_state_of_a_tools_call_continues_no_prompt(call, worker, agent, offer):
    body, headers = stateless("tools/call", name="agent")
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"elicitation": {}}
    async with call.open("POST", "/mcp", body, **headers) as client:
        await worker.end(await worker.claim_run(), **QUESTION)
        state = (await client.wait_for_end()).json()["result"]["requestState"]
    await in_thread(partial(offer, prompts=["agent"]))
    repeated = {"name": "agent", "arguments": {"tone": "dry"}, "requestState": state}

    body, headers = stateless("prompts/get", **repeated)
    answer = await call("POST", "/mcp", body, **headers)

    assert answer.json()["error"]["code"] == -32602


def test_stateless_request_names_its_prompt_in_a_header(post, prompt):
    body, headers = stateless("prompts/get", name="agent", arguments={})
    headers["Mcp-Name"] = "other"

    assert post(body, **headers).json()["error"]["code"] == -32020


# Resources


def test_addresses_of_graphs_are_listed_before_threads(post, agent, resource):
    thread = ThreadFactory(deployment=agent)

    rows = get_result(post, "resources/list")["resources"]
    templates = get_result(post, "resources/templates/list")["resourceTemplates"]

    assert [row["uri"] for row in rows] == ["docs://all", f"thread:///{thread.thread_id}"]
    assert (rows[0]["name"], rows[0]["description"]) == ("agent", "What agent does")
    assert [row["uriTemplate"] for row in templates] == [TEMPLATE, "thread:///{thread_id}"]
    assert [tool["name"] for tool in list_tools(post)] == ["other"]


@pytest.mark.usefixtures("resource")
@pytest.mark.parametrize(
    ("uri", "outcome", "content"),
    [
        (
            "docs://pages/a%20b",
            {"values": {"page": "a b", "rows": 2}},
            {"mimeType": "application/json", "text": '{"page":"a b","rows":2}'},
        ),
        (
            "docs://all",
            messages({"type": "ai", "content": "All pages"}),
            {"mimeType": "text/plain", "text": "All pages"},
        ),
        (
            "docs://all",
            messages(
                {
                    "type": "ai",
                    "content": [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}],
                }
            ),
            {"mimeType": "image/png", "blob": "aGk="},
        ),
    ],
)
async def test_a_graph_returns_the_content(call, worker, uri, outcome, content):
    row, body = await run(call, worker, "resources/read", outcome, uri=uri)

    assert row.kwargs["input"] == ({"page": "a b"} if "%" in uri else {})
    assert body["result"] == {"contents": [{"uri": uri, **content}]}


@pytest.mark.parametrize("uri", ["docs://pages/", "docs://pages/a/b", "docs://allx", "docs://"])
def test_other_addresses_are_not_found(post, resource, uri):
    assert get_error(post, "resources/read", {"uri": uri}) == -32002


def test_resources_of_graphs_stay_without_threads(post, agent, offer):
    offer(resources={"docs://all": "agent"})
    config = {"mcp": {"resources": {"docs://all": "agent"}}, "http": {"disable_threads": True}}
    Revision.unscoped.filter(deployment=agent).update(config=config)
    routes.clear_cache()

    rows = get_result(post, "resources/list")["resources"]

    assert [row["uri"] for row in rows] == ["docs://all"]


# Completions


def complete(argument: str, value: str, /, **reference: Any) -> dict[str, Any]:
    return {"ref": reference, "argument": {"name": argument, "value": value}}


@pytest.mark.parametrize(
    ("name", "value", "values"),
    [
        ("tone", "", ["calm", "cold", "dry"]),
        ("tone", "C", ["calm", "cold"]),
        ("page", "he", ["help"]),
        ("words", "1", []),
    ],
)
def test_arguments_are_completed_from_the_schema(post, prompt, name, value, values):
    params = complete(name, value, type="ref/prompt", name="agent")

    completion = get_result(post, "completion/complete", params)["completion"]

    assert completion == {"values": values, "total": len(values), "hasMore": False}


def test_threads_are_completed_by_their_ids(post, agent):
    thread = ThreadFactory(deployment=agent)
    ThreadFactory()
    reference = {"type": "ref/resource", "uri": "thread:///{thread_id}"}
    prefix = str(thread.thread_id)[:6]

    found = get_result(post, "completion/complete", complete("thread_id", prefix, **reference))
    others = get_result(post, "completion/complete", complete("thread_id", "x", **reference))

    assert found["completion"]["values"] == [str(thread.thread_id)]
    assert others["completion"]["values"] == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": "agent", "argument": {"name": "tone", "value": ""}},
        complete("tone", "", type="ref/prompt"),
        complete("tone", "", type="ref/prompt", name="other"),
        complete("color", "", type="ref/prompt", name="agent"),
        complete("tone", "", type="ref/resource", uri="docs://{x}"),
        complete("tone", "", type="ref/tool", name="agent"),
        {"ref": {"type": "ref/prompt", "name": "agent"}, "argument": {"name": "tone", "value": 7}},
    ],
)
def test_completions_of_what_is_not_there_are_refused(post, prompt, params):
    assert get_error(post, "completion/complete", params) == -32602


def test_completion_of_a_template_of_a_graph(post, agent, offer):
    offer(resources={TEMPLATE: "agent"})
    session = {"Mcp-Session-Id": begin_session(post)}
    params = complete("page", "ho", type="ref/resource", uri=TEMPLATE)

    completion = get_result(post, "completion/complete", params, **session)["completion"]

    assert completion["values"] == ["home"]
