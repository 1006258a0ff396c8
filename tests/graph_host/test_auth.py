"""Authentication of a project's own, asked as the platform asks it."""

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
    said: list

def tell(state, config, runtime):
    user = config["configurable"].get("langgraph_auth_user")
    told = runtime.server_info.user if runtime.server_info else None
    return {"said": [
        user and user["identity"], user and user.identity, user and user.team,
        told and told.display_name, config["configurable"].get("langgraph_auth_permissions"),
    ]}

graph = StateGraph(State).add_node("tell", tell).add_edge(START, "tell").compile()

def factory(runtime: ServerRuntime):
    who = runtime.user.identity if runtime.user else None
    return (
        StateGraph(State).add_node("tell", lambda state: {"said": [who, runtime.access_context]})
        .add_edge(START, "tell")
    )
"""
AUTH = """
from langgraph_sdk import Auth

auth = Auth()

@auth.authenticate
async def who(authorization, method, path, path_params, query_params, headers, request):
    if authorization is None:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    if authorization == "broken":
        raise KeyError("secret")
    if authorization == "nobody":
        return {"name": "ann"}
    if authorization == "plain":
        return "ann"
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

@auth.on.crons.read
async def studio(ctx, value):
    return isinstance(ctx.user, Auth.types.StudioUser)
"""
STUDIO = {
    "identity": "s", "display_name": "s", "is_authenticated": True, "permissions": [],
    "kind": "StudioUser",
}  # fmt: skip


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
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


def test_the_host_says_where_rules_are(guarded):
    assert guarded.hello["auth"]["rules"] == [
        "*", "crons.read", "store.*", "threads.*", "threads.delete", "threads.read",
        "threads.search", "threads.update",
    ]  # fmt: skip


def test_a_handler_is_told_of_the_request_by_name(guarded):
    user = guarded.ask("", "auth", request=request("ann"))["user"]

    assert user == {
        "identity": "ann", "display_name": "ann", "is_authenticated": True,
        "permissions": ["write"], "path": "/threads/7", "method": "GET", "thread": "7",
        "query": {"a": "1"}, "both": ["red", "red"], "url": "/threads/7",
    }  # fmt: skip


def test_an_id_alone_is_a_user(guarded):
    user = guarded.ask("", "auth", request=request("plain"))["user"]

    assert (user["identity"], user["permissions"], user["is_authenticated"]) == ("ann", [], True)


@pytest.mark.parametrize(
    ("authorization", "status", "detail"),
    [
        (None, 401, "Who are you?"),
        ("broken", 401, "The agent's authentication failed: KeyError"),
        ("nobody", 401, "`@auth.authenticate` must return a user with a text `identity`."),
    ],
)
def test_who_is_not_let_in_hears_why(guarded, authorization, status, detail):
    refused = guarded.ask("", "auth", request=request(authorization))["refused"]

    assert (refused["status"], refused["detail"]) == (status, detail)


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
def test_the_most_specific_rule_decides(guarded, resource, action, filters):
    value = {"thread_id": str(uuid4())}

    said = guarded.ask(
        "", "auth", request=request("ann"), resource=resource, action=action, value=value
    )

    assert said["filters"] == filters


@pytest.mark.parametrize(
    ("action", "status", "detail"),
    [
        ("delete", 403, "Forbidden"),
        ("update", 403, "The agent's authorization failed: RuntimeError"),
        ("search", 402, "Pay first."),
    ],
)
def test_a_rule_may_refuse(guarded, action, status, detail):
    said = guarded.ask(
        "", "auth", request=request("ann"), resource="threads", action=action, value={}
    )

    assert (said["refused"]["status"], said["refused"]["detail"]) == (status, detail)
    assert "filters" not in said


def test_a_rule_may_rewrite_what_is_asked_for(guarded):
    asked = {"request": request("ann"), "value": {"metadata": {"a": 1}, "name": "x"}}
    made = guarded.ask("", "auth", resource="assistants", action="create", **asked)
    put = guarded.ask(
        "", "auth", user=made["user"], resource="store", action="put",
        value={"namespace": ["notes"], "key": "k"},
    )  # fmt: skip

    assert made["value"] == {"metadata": {"a": 1, "owner": "ann"}, "name": "x"}
    assert put["value"]["namespace"] == ["ann", "notes"]


@pytest.mark.parametrize(("user", "refused"), [(STUDIO, False), ({**STUDIO, "kind": "x"}, True)])
def test_people_of_the_platform_are_studio_users(guarded, user, refused):
    said = guarded.ask("", "auth", user=user, resource="crons", action="read", value={})

    assert ("refused" in said) is refused


def test_graphs_know_the_user(guarded):
    user = guarded.ask("", "auth", request=request("ann"))["user"] | {"team": "red"}
    configurable = {"langgraph_auth_user": user, "langgraph_auth_permissions": ["write"]}
    asked = {"input": {}, "config": {"configurable": configurable}}

    events, _ = guarded.run("agent", asked)
    made, _ = guarded.run("factory", asked)

    assert events[-1][1]["said"] == ["ann", "ann", "red", "ann", ["write"]]
    assert made[-1][1]["said"] == ["ann", "threads.create_run"]


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        ("auth = 3", "`auth.path` is a int; it must be a langgraph_sdk.Auth."),
        ("from langgraph_sdk import Auth\nauth = Auth()", "has no handler that is decorated"),
        (
            AUTH.replace("who(authorization,", "who(authorization, body,"),
            "`authenticate` takes `body`; it may take authorization, headers, method,",
        ),
        ("import nothing_like_it", "could not be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_no_authentication_is_a_problem(host, auth, says):
    found = host(
        {"agent.py": GRAPH, "auth.py": auth},
        graphs={"agent": "./agent.py:graph"},
        auth={"path": "./auth.py:auth"},
    )

    assert says in found.hello["problem"]
    assert json.dumps(found.hello)
