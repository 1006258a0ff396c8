"""No generated request, valid or nearly valid, gets a server error."""

from __future__ import annotations

import asyncio

import pytest

from apps.agent_server.endpoints.openapi import describe
from apps.agent_server.endpoints.routes import ENDPOINTS
from apps.core.sync_bridge import in_thread
from tests.agent_server.request_generator import ValueGenerator
from tests.examples import EXAMPLES
from tests.factories.agent_server import AgentRunFactory, CronFactory, ThreadFactory, route_of

pytestmark = pytest.mark.exhaustive

DOCUMENT = describe(ENDPOINTS)
ROUNDS = 4 * EXAMPLES
# These operations call a graph, and no worker runs in this test.
GRAPH_CALLS = {
    "GET /assistants/{assistant_id}/graph",
    "GET /assistants/{assistant_id}/schemas",
    "GET /assistants/{assistant_id}/subgraphs",
    "GET /assistants/{assistant_id}/subgraphs/{namespace}",
    "GET /threads/{thread_id}/history",
    "POST /threads/{thread_id}/history",
    "GET /threads/{thread_id}/state",
    "POST /threads/{thread_id}/state",
    "GET /threads/{thread_id}/state/{checkpoint_id}",
    "POST /threads/{thread_id}/state/checkpoint",
    "POST /threads",
    "POST /threads/{thread_id}/commands",
    "DELETE /threads/{thread_id}/runs/{run_id}",
}
OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if f"{method.upper()} {path}" not in GRAPH_CALLS
]


def create_rows(agent):
    route_of(agent)
    thread = ThreadFactory(deployment=agent)
    return {
        "assistant_id": "fe096781-5601-53d2-b2f6-0d3403f7e9ca",
        "thread_id": str(thread.thread_id),
        "run_id": str(AgentRunFactory(thread=thread, status="success").pk),
        "cron_id": str(CronFactory(deployment=agent).pk),
    }


@pytest.mark.parametrize(
    ("method", "path", "operation"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS]
)
async def test_generated_requests_never_get_a_server_error(call, agent, method, path, operation):
    row_ids = await in_thread(create_rows, agent)
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    success = {int(status) for status in operation["responses"] if status != "default"}

    for seed in range(ROUNDS):
        generator = ValueGenerator(DOCUMENT, seed)
        address = generator.path(path, operation["parameters"], row_ids)
        payload = generator.value(body["schema"]) if body else None
        async with call.open(method, address, payload) as request, asyncio.timeout(120):
            answer = await request.wait_for_start()
        details = (seed, address, payload, answer.status, answer.body)
        assert answer.status in success or 400 <= answer.status < 500, details
