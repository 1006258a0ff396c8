"""Custom authentication of a project, called as the platform calls it."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from tests.graph_host.conftest import Host

GRAPH = """
from typing_extensions import TypedDict
from langgraph.graph import START, StateGraph
from langgraph_sdk.runtime import ServerRuntime

class State(TypedDict, total=False):
    seen: list

def report_user(state, config, runtime):
    user = config["configurable"].get("langgraph_auth_user")
    server_user = runtime.server_info.user if runtime.server_info else None
    return {"seen": [
        user and user["identity"], user and user.identity, user and user.team,
        user and [user.dict() == user.model_dump() == dict(user), user.org.name],
        server_user and server_user.display_name,
        config["configurable"].get("langgraph_auth_permissions"),
    ]}

graph = StateGraph(State).add_node("report", report_user).add_edge(START, "report").compile()

def factory(runtime: ServerRuntime):
    identity = runtime.user.identity if runtime.user else None
    return (
        StateGraph(State)
        .add_node("report", lambda state: {"seen": [identity, runtime.access_context]})
        .add_edge(START, "report")
    )
"""
AUTH = """
from langgraph_sdk import Auth

auth = Auth()

@auth.authenticate
async def authenticate(authorization, method, path, path_params, query_params, headers, request):
    if authorization is None:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Send a token.")
    if authorization == "broken":
        raise KeyError("secret")
    if authorization == "without-identity":
        return {"name": "ann"}
    if authorization == "plain":
        return "ann"
    if authorization == "pair":
        return ["read"], {"identity": "ann", "team": "red"}
    if authorization == "triple":
        return ["read"], "ann", "red"
    return {
        "identity": authorization, "permissions": ["write"], "path": path, "method": method,
        "thread": path_params.get("thread_id"), "query": query_params,
        "both": [headers.get(b"x-team", b"").decode(), headers.get("X-Team")],
        "url": str(request.url.path),
    }

@auth.on
async def everything(ctx, value):
    value.setdefault("metadata", {})["owner"] = ctx.user.identity
    return {"owner": ctx.user.identity}

@auth.on.threads
async def threads(ctx, value):
    return {"seen": f"{ctx.resource}.{ctx.action}"}

@auth.on.threads.delete
async def never(ctx, value):
    return False

@auth.on.threads.read
async def typed(ctx, value):
    return {"kind": type(value["thread_id"]).__name__}

@auth.on.threads.update
async def failing(ctx, value):
    raise RuntimeError("internals")

@auth.on.threads.search
async def refusing(ctx, value):
    raise Auth.exceptions.HTTPException(status_code=402, detail="Pay first.")

@auth.on.store
async def scoped(ctx, value):
    assert isinstance(value["namespace"], tuple)
    value["namespace"] = (ctx.user.identity, *value["namespace"])

@auth.on.assistants.delete
async def asserting(ctx, value):
    assert ctx.user.identity == "eve", "Only eve may."
    assert value.get("sure")

@auth.on.crons.read
async def studio(ctx, value):
    return isinstance(ctx.user, Auth.types.StudioUser)
"""
STUDIO = {
    "identity": "s", "display_name": "s", "is_authenticated": True, "permissions": [],
    "kind": "StudioUser",
}  # fmt: skip


@pytest.fixture(scope="module")
def auth_host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    config = {
        "dependencies": ["."],
        "graphs": {"agent": "./agent.py:graph", "factory": "./agent.py:factory"},
        "auth": {"path": "./auth.py:auth"},
    }
    files = {"agent.py": GRAPH, "auth.py": AUTH, "langgraph.json": json.dumps(config)}
    for name, text in files.items():
        (folder / name).write_text(text)
    host = Host(folder)
    yield host
    host.close()


def request(authorization=None, **changes):
    headers = [("X-Team", "red"), *([("Authorization", authorization)] if authorization else [])]
    return {
        "method": "GET", "path": "/threads/7", "query": "a=1", "headers": headers,
        "path_params": {"thread_id": "7"}, **changes,
    }  # fmt: skip


def test_the_hello_frame_lists_the_auth_rules(auth_host):
    assert auth_host.hello["auth"]["rules"] == [
        "*", "assistants.delete", "crons.read", "store.*", "threads.*", "threads.delete",
        "threads.read", "threads.search", "threads.update",
    ]  # fmt: skip


def test_an_auth_handler_gets_the_request_fields_by_name(auth_host):
    user = auth_host.call_graph("", "auth", request=request("ann"))["user"]

    assert user == {
        "identity": "ann", "display_name": "ann", "is_authenticated": True,
        "permissions": ["write"], "path": "/threads/7", "method": "GET", "thread": "7",
        "query": {"a": "1"}, "both": ["red", "red"], "url": "/threads/7",
    }  # fmt: skip


def test_a_text_identity_is_accepted_as_a_user(auth_host):
    user = auth_host.call_graph("", "auth", request=request("plain"))["user"]

    assert (user["identity"], user["permissions"], user["is_authenticated"]) == ("ann", [], True)


def test_a_handler_may_return_a_pair_of_permissions_and_user(auth_host):
    user = auth_host.call_graph("", "auth", request=request("pair"))["user"]

    assert (user["identity"], user["permissions"], user["team"]) == ("ann", ["read"], "red")


@pytest.mark.parametrize(
    ("authorization", "status", "detail"),
    [
        (
            "triple",
            401,
            "`@auth.authenticate` must return a user, or a pair of permissions and user.",
        ),
        (None, 401, "Send a token."),
        ("broken", 401, "The agent's authentication failed: KeyError"),
        (
            "without-identity",
            401,
            "`@auth.authenticate` must return a user with a text `identity`.",
        ),
    ],
)
def test_a_refused_request_gets_the_reason(auth_host, authorization, status, detail):
    refusal = auth_host.call_graph("", "auth", request=request(authorization))["refused"]

    assert (refusal["status"], refusal["detail"]) == (status, detail)


@pytest.mark.parametrize(
    ("resource", "action", "filters"),
    [
        ("threads", "create", {"seen": "threads.create"}),
        ("threads", "create_run", {"seen": "threads.create_run"}),
        ("threads", "read", {"kind": "UUID"}),
        ("assistants", "read", {"owner": "ann"}),
        ("crons", "create", {"owner": "ann"}),
    ],
)
def test_the_most_specific_rule_decides(auth_host, resource, action, filters):
    value = {"thread_id": str(uuid4())}

    result = auth_host.call_graph(
        "", "auth", request=request("ann"), resource=resource, action=action, value=value
    )

    assert result["filters"] == filters


@pytest.mark.parametrize(
    ("action", "status", "detail"),
    [
        ("delete", 403, "Forbidden"),
        ("update", 403, "The agent's authorization failed: RuntimeError"),
        ("search", 402, "Pay first."),
    ],
)
def test_a_refusing_rule_returns_status_and_detail(auth_host, action, status, detail):
    result = auth_host.call_graph(
        "", "auth", request=request("ann"), resource="threads", action=action, value={}
    )

    assert (result["refused"]["status"], result["refused"]["detail"]) == (status, detail)
    assert "filters" not in result


@pytest.mark.parametrize(
    ("authorization", "detail"),
    [("ann", "Only eve may."), ("eve", "The agent's authorization failed: AssertionError")],
)
def test_a_failed_assertion_of_a_rule_refuses_with_its_message(auth_host, authorization, detail):
    result = auth_host.call_graph(
        "", "auth", request=request(authorization), resource="assistants", action="delete", value={}
    )

    assert (result["refused"]["status"], result["refused"]["detail"]) == (403, detail)


def test_an_authentication_handler_may_be_an_ordinary_function(host):
    handler = "import time\nfrom langgraph_sdk import Auth\nauth = Auth()\n@auth.authenticate\n"
    auth = handler + "def authenticate():\n    time.sleep(0.1)\n    return 'ann'\n"
    sync_host = host(
        {"agent.py": GRAPH, "auth.py": auth},
        graphs={"agent": "./agent.py:graph"},
        auth={"path": "./auth.py:auth"},
    )

    assert sync_host.call_graph("", "auth", request=request())["user"]["identity"] == "ann"


def test_a_rule_can_rewrite_the_value_of_a_request(auth_host):
    request_fields = {"request": request("ann"), "value": {"metadata": {"a": 1}, "name": "x"}}
    assistant = auth_host.call_graph(
        "", "auth", resource="assistants", action="create", **request_fields
    )
    put = auth_host.call_graph(
        "", "auth", user=assistant["user"], resource="store", action="put",
        value={"namespace": ["notes"], "key": "k"},
    )  # fmt: skip

    assert assistant["value"] == {"metadata": {"a": 1, "owner": "ann"}, "name": "x"}
    assert put["value"]["namespace"] == ["ann", "notes"]


@pytest.mark.parametrize(("user", "is_refused"), [(STUDIO, False), ({**STUDIO, "kind": "x"}, True)])
def test_a_platform_user_is_a_studio_user(auth_host, user, is_refused):
    result = auth_host.call_graph("", "auth", user=user, resource="crons", action="read", value={})

    assert ("refused" in result) is is_refused


def test_graphs_and_factories_receive_the_user(auth_host):
    user = auth_host.call_graph("", "auth", request=request("ann"))["user"]
    user |= {"team": "red", "org": {"name": "x"}}
    configurable = {"langgraph_auth_user": user, "langgraph_auth_permissions": ["write"]}
    kwargs = {"input": {}, "config": {"configurable": configurable}}

    events, _ = auth_host.run("agent", kwargs)
    factory_events, _ = auth_host.run("factory", kwargs)

    assert events[-1][1]["seen"] == ["ann", "ann", "red", [True, "x"], "ann", ["write"]]
    assert factory_events[-1][1]["seen"] == ["ann", "threads.create_run"]


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ("auth = 3", "`auth.path` is a int; it must be a langgraph_sdk.Auth."),
        ("from langgraph_sdk import Auth\nauth = Auth()", "has no handler that is decorated"),
        (
            AUTH.replace("authenticate(authorization,", "authenticate(authorization, body,"),
            "`authenticate` takes `body`; it may take authorization, headers, method,",
        ),
        ("import nothing_like_it", "could not be imported: ModuleNotFoundError"),
    ],
)
def test_an_invalid_auth_module_is_reported_as_a_problem(host, auth, message):
    failed_host = host(
        {"agent.py": GRAPH, "auth.py": auth},
        graphs={"agent": "./agent.py:graph"},
        auth={"path": "./auth.py:auth"},
    )

    assert message in failed_host.hello["problem"]
    assert json.dumps(failed_host.hello)
