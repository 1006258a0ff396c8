"""Every route checks the right (resource, action) with the agent's rules before it does anything.

New routes are included automatically: a route fails here until EXPECTED names its right.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.agent_server.auth import custom_auth
from apps.agent_server.endpoints.routes import ENDPOINTS
from apps.deployments import routes
from tests.agent_server.asgi import Caller

PREFIX = "agents/<slug:slug>"
OPEN = {"/ok", "/docs", "/openapi.json", "", "/.well-known/oauth-protected-resource"}
PARAMETERS = {
    "<str:checkpoint_id>": str(uuid4()),
    "<str:namespace>": "sub",
}
BODY = {
    "assistant_id": "agent",
    "graph_id": "agent",
    "namespace": ["a"],
    "key": "k",
    "value": {},
    "schedule": "0 0 1 1 *",
    "version": 1,
    "thread_id": str(uuid4()),
    "run_ids": [str(uuid4())],
    "thread_ids": [str(uuid4())],
    "checkpoint": {"checkpoint_ns": ""},
    "id": 1,
    "method": "run.start",
    "params": {"assistant_id": "agent"},
    "channels": ["values"],
    "values": {},
}
BODIES: dict[str, Any] = {
    "/runs/batch": [{"assistant_id": "agent"}],
    "/assistants": {"graph_id": "agent"},
    "/a2a/<str:assistant_id>": {"jsonrpc": "2.0", "id": 1, "method": "GetTask"},
    "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
}
EMPTY = ("search", "count")
_THREAD = "/threads/<str:thread_id>"
_RUN = f"{_THREAD}/runs/<str:run_id>"
_ASSISTANT = "/assistants/<str:assistant_id>"
_CRON = "/runs/crons/<str:cron_id>"
_A2A = "/a2a/<str:assistant_id>"
_A2A_TASK = f"{_A2A}/tasks/<str:task_id>"
EXPECTED = {
    "assistants.create": ["POST /assistants"],
    "assistants.read": [
        *(f"GET {_ASSISTANT}{end}" for end in ("", "/graph", "/schemas", "/subgraphs")),
        f"GET {_ASSISTANT}/subgraphs/<str:namespace>",
        "GET /.well-known/agent-card.json",
        "GET /a2a/<str:assistant_id>/.well-known/agent-card.json",
        f"POST {_ASSISTANT}/versions",
    ],
    "assistants.update": [f"PATCH {_ASSISTANT}", f"POST {_ASSISTANT}/latest"],
    "assistants.delete": [f"DELETE {_ASSISTANT}"],
    # A tool call also checks the right to create a run.
    "assistants.search": ["POST /assistants/search", "POST /assistants/count", "POST /mcp"],
    # The right to create is checked before the right to read the original.
    "threads.create": ["POST /threads", f"POST {_THREAD}/copy"],
    "threads.read": [
        *(f"GET {_THREAD}{end}" for end in ("", "/runs", "/storage", "/stream")),
        *(f"{method} {_THREAD}/history" for method in ("GET", "POST")),
        f"GET {_THREAD}/state",
        f"GET {_THREAD}/state/<str:checkpoint_id>",
        f"POST {_THREAD}/state/checkpoint",
        *(f"GET {_RUN}{end}" for end in ("", "/join", "/stream", "/webhooks")),
        *(f"GET /runs/<str:run_id>{end}" for end in ("/join", "/stream", "/webhooks")),
        # A command checks its own right after the right to read its thread.
        f"POST {_THREAD}/commands",
        f"POST {_THREAD}/stream/events",
    ],
    "threads.update": [
        *(f"PATCH {_THREAD}{end}" for end in ("", "/state")),
        f"POST {_THREAD}/state",
        f"POST {_RUN}/cancel",
        "POST /runs/cancel",
    ],
    "threads.delete": [f"DELETE {_THREAD}", f"DELETE {_RUN}", "POST /threads/prune"],
    "threads.search": ["POST /threads/search", "POST /threads/count", f"GET {_A2A}/tasks"],
    "threads.create_run": [
        *(f"POST {_THREAD}/runs{end}" for end in ("", "/wait", "/stream", "/crons")),
        *(f"POST /runs{end}" for end in ("", "/wait", "/stream", "/batch")),
    ],
    "crons.create": ["POST /runs/crons"],
    "crons.read": [f"GET {_CRON}"],
    "crons.update": [f"PATCH {_CRON}"],
    "crons.delete": [f"DELETE {_CRON}"],
    "crons.search": ["POST /runs/crons/search", "POST /runs/crons/count"],
    "store.put": ["PUT /store/items"],
    "store.get": ["GET /store/items"],
    "store.delete": ["DELETE /store/items"],
    "store.search": ["POST /store/items/search"],
    "store.list_namespaces": ["POST /store/namespaces"],
    # These need only an authenticated caller; the right of an A2A request follows from its task.
    "None.None": [
        "GET /info",
        "GET /metrics",
        "GET /mcp",  # the stream of a session whose subscriptions were checked one by one
        f"POST {_A2A}",
        *(f"POST {_A2A}/message:{verb}" for verb in ("send", "stream")),
        f"GET {_A2A}/extendedAgentCard",
        *(f"{method} {_A2A_TASK}" for method in ("GET", "POST")),
        *(f"{method} {_A2A_TASK}/pushNotificationConfigs" for method in ("GET", "POST")),
        *(
            f"{method} {_A2A_TASK}/pushNotificationConfigs/<str:config_id>"
            for method in ("GET", "DELETE")
        ),
    ],
}


def list_routes() -> list[tuple[str, str]]:
    """Method and path below the agent's address."""
    return [(endpoint.method, endpoint.route.removeprefix(PREFIX)) for endpoint in ENDPOINTS]


@pytest.fixture
def auth_requests(agent, asgi_app, monkeypatch) -> list[dict[str, Any]]:
    """The requests to the agent's auth code, which refuses everything."""
    revision = agent.active_revision
    revision.config = {"auth": {"path": "./auth.py:auth"}}
    revision.facts = {"auth": {"rules": ["*"]}}
    revision.save()
    routes.clear_cache()
    requests: list[dict[str, Any]] = []

    async def refuse(_: Any, auth_request: dict[str, Any]) -> dict[str, Any]:
        requests.append(auth_request)
        return {"refused": {"status": 418, "detail": "Not today."}}

    monkeypatch.setattr(custom_auth, "_call_auth_code", refuse)
    return requests


def build_request(method: str, path: str) -> tuple[str, Any]:
    """Return the path with ids filled in, and a body that every route accepts."""
    address = path
    for name, value in PARAMETERS.items():
        address = address.replace(name, value)
    while "<" in address:
        before, _, rest = address.partition("<")
        address = f"{before}{uuid4()}{rest.partition('>')[2]}"
    if method == "GET":
        return f"{address}?namespace=a&key=k", None
    body = BODIES.get(path, {} if path.endswith(EMPTY) else BODY)
    return address, body


@pytest.mark.asyncio
async def test_each_route_checks_its_resource_and_action(agent, auth_requests):
    call = Caller(agent.slug, Authorization="tom")
    paths_by_right: dict[str, list[str]] = {}
    for method, path in list_routes():
        if path in OPEN:
            continue
        address, body = build_request(method, path)
        auth_requests.clear()
        answer = await call(method, address, body)
        assert answer.status == 418, (method, path, answer.body[:200])
        right = "{resource}.{action}".format_map(
            {"resource": None, "action": None, **auth_requests[0]}
        )
        paths_by_right.setdefault(right, []).append(f"{method} {path}")

    assert {right: sorted(paths) for right, paths in paths_by_right.items()} == {
        right: sorted(paths) for right, paths in EXPECTED.items()
    }


@pytest.mark.asyncio
async def test_permission_check_takes_one_request(agent, auth_requests, monkeypatch):
    """Authentication and authorization share one request to the agent."""

    async def allow(_: Any, auth_request: dict[str, Any]) -> dict[str, Any]:
        auth_requests.append(auth_request)
        user = {"identity": "tom", "permissions": []}
        return {"user": user, "filters": {"owner": "tom"}, "value": auth_request["value"]}

    monkeypatch.setattr(custom_auth, "_call_auth_code", allow)

    answer = await Caller(agent.slug, Authorization="tom")("POST", "/threads/search", {"limit": 3})

    assert (answer.status, answer.json()) == (200, [])
    assert [(q["resource"], q["action"], q["value"]["limit"]) for q in auth_requests] == [
        ("threads", "search", 3)
    ]
    assert auth_requests[0]["request"]["path"] == "/threads/search"
