"""Every route asks the agent's own rules for the right (resource, action), before it does anything.

Routes join by themselves: a new one fails here until somebody says what it asks for.
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
OPEN = {"/ok", "/docs", "/openapi.json", ""}
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
}
EMPTY = ("search", "count")
_THREAD = "/threads/<str:thread_id>"
_RUN = f"{_THREAD}/runs/<str:run_id>"
_ASSISTANT = "/assistants/<str:assistant_id>"
_CRON = "/runs/crons/<str:cron_id>"
EXPECTED = {
    "assistants.create": ["POST /assistants"],
    "assistants.read": [
        *(f"GET {_ASSISTANT}{end}" for end in ("", "/graph", "/schemas", "/subgraphs")),
        f"GET {_ASSISTANT}/subgraphs/<str:namespace>",
        f"POST {_ASSISTANT}/versions",
    ],
    "assistants.update": [f"PATCH {_ASSISTANT}", f"POST {_ASSISTANT}/latest"],
    "assistants.delete": [f"DELETE {_ASSISTANT}"],
    "assistants.search": ["POST /assistants/search", "POST /assistants/count"],
    # Making a copy is asked for first, then reading what is copied.
    "threads.create": ["POST /threads", f"POST {_THREAD}/copy"],
    "threads.read": [
        *(f"GET {_THREAD}{end}" for end in ("", "/runs", "/storage", "/stream")),
        *(f"{method} {_THREAD}/history" for method in ("GET", "POST")),
        f"GET {_THREAD}/state",
        f"GET {_THREAD}/state/<str:checkpoint_id>",
        f"POST {_THREAD}/state/checkpoint",
        *(f"GET {_RUN}{end}" for end in ("", "/join", "/stream", "/webhooks")),
        *(f"GET /runs/<str:run_id>{end}" for end in ("/join", "/stream", "/webhooks")),
        # A command asks for what it does once it is known who speaks about which thread.
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
    "threads.search": ["POST /threads/search", "POST /threads/count"],
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
    # Only who it is counts.
    "None.None": ["GET /info", "GET /metrics"],
}


def own_routes() -> list[tuple[str, str]]:
    """Method and path below the agent's address."""
    return [(endpoint.method, endpoint.route.removeprefix(PREFIX)) for endpoint in ENDPOINTS]


@pytest.fixture
def questions(agent, front, monkeypatch) -> list[dict[str, Any]]:
    """What the agent's own code is asked; it refuses everything."""
    revision = agent.active_revision
    revision.config = {"auth": {"path": "./auth.py:auth"}}
    revision.facts = {"auth": {"rules": ["*"]}}
    revision.save()
    routes.clear_cache()
    asked: list[dict[str, Any]] = []

    async def refuse(_: Any, question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question)
        return {"refused": {"status": 418, "detail": "Not today."}}

    monkeypatch.setattr(custom_auth, "_ask", refuse)
    return asked


def sent(method: str, path: str) -> tuple[str, Any]:
    """The address with ids in it, and a body that is good enough for all."""
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
async def test_each_route_checks_its_resource_and_action(agent, questions):
    call = Caller(agent.slug, Authorization="tom")
    found: dict[str, list[str]] = {}
    for method, path in own_routes():
        if path in OPEN:
            continue
        address, body = sent(method, path)
        questions.clear()
        answer = await call(method, address, body)
        assert answer.status == 418, (method, path, answer.body[:200])
        right = "{resource}.{action}".format_map({"resource": None, "action": None, **questions[0]})
        found.setdefault(right, []).append(f"{method} {path}")

    assert {right: sorted(paths) for right, paths in found.items()} == {
        right: sorted(paths) for right, paths in EXPECTED.items()
    }


@pytest.mark.asyncio
async def test_permission_check_takes_one_request(agent, questions, monkeypatch):
    """Who it is and what they may is found out together."""

    async def allow(_: Any, question: dict[str, Any]) -> dict[str, Any]:
        questions.append(question)
        user = {"identity": "tom", "permissions": []}
        return {"user": user, "filters": {"owner": "tom"}, "value": question["value"]}

    monkeypatch.setattr(custom_auth, "_ask", allow)

    answer = await Caller(agent.slug, Authorization="tom")("POST", "/threads/search", {"limit": 3})

    assert (answer.status, answer.json()) == (200, [])
    assert [(q["resource"], q["action"], q["value"]["limit"]) for q in questions] == [
        ("threads", "search", 3)
    ]
    assert questions[0]["request"]["path"] == "/threads/search"
