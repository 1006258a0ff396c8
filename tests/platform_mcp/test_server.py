"""The platform's MCP server: access, messages and the list of tools."""

from __future__ import annotations

import pytest

from apps.deployments import routes
from apps.deployments.models import Revision
from apps.platform_mcp.tools import TOOLS
from apps.prompts.models import Commit, Repository
from apps.rate_limits import enforcement
from tests.factories.api_keys import key_for
from tests.factories.prompts import create_prompt

pytestmark = pytest.mark.django_db

STATELESS = "2026-07-28"
META = "io.modelcontextprotocol/"
# The tools of the public `langsmith-mcp-server` 0.1.1, and two of its earlier versions.
PUBLIC = {
    "list_prompts", "get_prompt_by_name", "push_prompt", "get_thread_history", "fetch_runs",
    "list_projects", "get_billing_usage", "list_experiments", "list_datasets", "list_examples",
    "read_dataset", "read_example", "create_dataset", "update_examples", "run_experiment",
    "fetch_trace", "get_project_runs_stats",
}  # fmt: skip
CHANGING = {
    "push_prompt", "create_dataset", "update_examples", "run_experiment", "evaluate_experiment",
}  # fmt: skip


@pytest.fixture
def mcp(connect, workspace):
    return connect(key_for(workspace))


def test_callers_without_a_key_learn_where_to_sign_in(connect):
    client = connect(None)
    refused = client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert refused.status_code == 401
    path = "/.well-known/oauth-protected-resource/mcp"
    assert refused["WWW-Authenticate"] == f'Bearer resource_metadata="http://testserver{path}"'
    document = client.client.get(path).json()
    assert document == {
        "resource": "http://testserver/mcp",
        "authorization_servers": ["http://testserver"],
        "bearer_methods_supported": ["header"],
    }
    server = client.client.get("/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == document["authorization_servers"][0]
    assert client.client.get("/.well-known/oauth-protected-resource").json() == document


def test_agents_say_where_to_sign_in(client, agent, settings):
    path = f"/agents/{agent.slug}"
    refused = client.post(f"{path}/mcp", "{}", content_type="application/json")

    own = f"{settings.API_BASE_URL}{path}/.well-known/oauth-protected-resource"
    assert refused.status_code == 401
    assert refused["WWW-Authenticate"] == f'Bearer resource_metadata="{own}"'
    documents = [
        client.get(address).json()
        for address in (
            f"{path}/.well-known/oauth-protected-resource",
            f"{path}/.well-known/oauth-protected-resource/mcp",
            f"/.well-known/oauth-protected-resource{path}/mcp",
        )
    ]
    for document in documents:
        assert document["resource"] == f"{settings.API_BASE_URL}{path}/mcp"
        assert len(document["authorization_servers"]) == 1


def test_agents_without_mcp_or_with_their_own_users_name_no_sign_in(client, agent):
    paths = [
        f"/agents/{agent.slug}/.well-known/oauth-protected-resource",
        f"/.well-known/oauth-protected-resource/agents/{agent.slug}/mcp",
    ]
    for config in ({"http": {"disable_mcp": True}}, {"auth": {"path": "./auth.py:auth"}}):
        Revision.unscoped.filter(deployment=agent).update(config=config)
        routes.clear_cache()
        assert [client.get(path).status_code for path in paths] == [404, 404], config
    assert client.get(paths[1].replace(agent.slug, "missing")).status_code == 404


def test_keys_without_the_permission_of_any_tool_are_refused(connect, workspace):
    mcp = connect(key_for(workspace, "ingest"))

    assert mcp.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 403


@pytest.mark.parametrize("method", ["get", "delete", "put"])
def test_other_methods_are_not_allowed(mcp, method):
    response = getattr(mcp.client, method)("/mcp")

    assert (response.status_code, response["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "testserver", "Origin": "http://testserver"}, 200),
        ({"Host": "evil.example"}, 400),
    ],
)
def test_foreign_origins_and_hosts_are_refused(mcp, settings, headers, status):
    settings.ALLOWED_HOSTS = ["testserver"]

    response = mcp.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)

    assert response.status_code == status


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [("{", 400, -32700), ("[]", 400, -32600), ('{"jsonrpc":"2.0","id":1}', 400, -32600)],
)
def test_malformed_messages_are_errors_of_the_caller(mcp, body, status, code):
    response = mcp.post(body)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_handshake(mcp):
    result = mcp.request("initialize", protocolVersion="2025-11-25", capabilities={})["result"]
    accepted = mcp.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    assert result["protocolVersion"] == "2025-11-25"
    assert result["serverInfo"]["name"] == "slipway"
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert (accepted.status_code, accepted.content) == (202, b"")
    assert mcp.request("ping")["result"] == {}
    assert mcp.request("resources/list")["error"]["code"] == -32601


def test_requests_without_a_handshake(mcp):
    meta = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = {"Mcp_Protocol_Version": STATELESS, "Mcp_Method": "tools/list"}

    listed = mcp.post(body, **headers).json()["result"]
    mismatch = mcp.post(body, **{**headers, "Mcp_Method": "tools/call"})

    assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
    assert len(listed["tools"]) == len(TOOLS)
    assert (mismatch.status_code, mismatch.json()["error"]["code"]) == (400, -32020)


def test_tools_have_the_public_names_and_say_whether_they_change_anything(mcp):
    tools = mcp.list_tools()

    assert set(tools) >= PUBLIC
    for name, tool in tools.items():
        assert tool["description"], name
        assert tool["inputSchema"]["type"] == "object", name
        assert tool["annotations"]["readOnlyHint"] == (name not in CHANGING), name


def test_a_reader_sees_and_calls_reading_tools_alone(connect, workspace):
    reader = connect(key_for(workspace, "read"))

    assert set(reader.list_tools()) == set(TOOLS) - CHANGING
    text = reader.failure("push_prompt", prompt_name="p", messages=[])
    assert text == "Permission prompts:write is required."
    assert not Repository.unscoped.exists()


def test_routes_check_permissions_again(connect, workspace, monkeypatch):
    tool = TOOLS["push_prompt"]
    monkeypatch.setattr(type(tool), "may_be_called_by", lambda *_: True)
    monkeypatch.setitem(TOOLS, "push_prompt", type(tool)(
        tool.function, tool.arguments, tool.title, (), tool.is_read_only
    ))  # fmt: skip
    create_prompt(workspace, "p")
    messages = [{"role": "user", "content": "hi"}]

    text = connect(key_for(workspace, "read")).failure(
        "push_prompt", prompt_name="p", messages=messages
    )

    assert text == "Permission prompts:write is required."
    assert not Commit.unscoped.exists()


def test_unknown_tools_and_arguments_are_refused(mcp):
    unknown = mcp.request("tools/call", name="missing", arguments={})

    assert unknown["error"]["code"] == -32602
    assert "nme" in mcp.failure("list_projects", nme="x")
    assert "run_id" in mcp.failure("read_run", run_id="no uuid")
    assert "examples.0" in mcp.failure("create_dataset", dataset_name="d", examples=["text"])


def test_each_request_of_a_tool_counts_on_the_row_of_its_route(mcp, monkeypatch):
    counted = []

    def check(**request):
        counted.append((request["method"], request["path"]))

    monkeypatch.setattr(enforcement, "check", check)

    mcp.failure("fetch_runs", project_name="missing", limit=1)
    mcp.call("list_datasets")

    assert ("GET", "/sessions") in counted
    assert ("GET", "/datasets") in counted
    assert counted.count(("POST", "/mcp")) == 2


def test_a_reached_limit_fails_the_call_not_the_connection(mcp, monkeypatch):
    def check(**request):
        if request["path"] != "/mcp":
            count = enforcement.RequestCount("default", limit=1, seconds=10, count=2, reset_at=0)
            raise enforcement.LimitReached(count)

    monkeypatch.setattr(enforcement, "check", check)

    assert mcp.failure("list_datasets").startswith("Rate limit exceeded for default")
