"""JSON bodies that parsers accept and that code behind them may not: each is answered, never a 500.

Integers of thousands of digits, nesting beyond the serializer's limit, numbers that no double holds
next to nesting, U+0000 in keys and values, lone surrogates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from tests.live import Live

WIDE = "1" + "0" * 25


def lists(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


def objects(depth: int, inner: str = "1") -> str:
    return '{"a":' * depth + inner + "}" * depth


VALUES = {
    "5,000 digits": "9" * 5000,
    "4,000 digits": "-" + "9" * 4000,
    "wide in 230 lists": lists(230, WIDE),
    "wide in 900 lists": lists(900, WIDE),
    "wide in 450 objects": objects(450, WIDE),
    "1,000 lists": lists(1000),
    "5,000 objects": objects(5000),
    "beyond doubles": "1e400",
    "not a number": "NaN",
    "nul": r'"\u0000"',
    "nul in a key": r'{"\u0000":1}',
    "lone surrogate": r'"\ud800"',
}
# A body with `@` in place of the value.
AGENT_BODIES = {
    "POST /threads": '{"metadata":{"a":@}}',
    "POST /threads/search": '{"metadata":{"a":@},"values":{"a":@}}',
    "POST /threads/count": '{"metadata":{"a":@}}',
    "POST /runs": '{"assistant_id":"agent","input":{"a":@},"metadata":{"b":@}}',
    "PUT /store/items": '{"namespace":["a"],"key":"k","value":{"a":@}}',
    "POST /store/items/search": '{"namespace_prefix":["a"],"filter":{"a":@}}',
    "POST /assistants": '{"graph_id":"agent","config":{"configurable":{"a":@}},"metadata":{"a":@}}',
    "POST /assistants/search": '{"metadata":{"a":@}}',
    "POST /runs/crons": '{"assistant_id":"agent","schedule":"0 0 1 1 *","input":{"a":@}}',
    "POST /a2a/agent": (
        '{"jsonrpc":"2.0","id":@,"method":"message/send","params":{"message":{"role":"user",'
        '"messageId":"a","parts":[{"kind":"data","data":{"a":@}}]}}}'
    ),
    "POST /mcp": (
        '{"jsonrpc":"2.0","id":@,"method":"tools/call",'
        '"params":{"name":"agent","arguments":{"a":@}}}'
    ),
}
PLATFORM_BODIES = {
    "POST /api/v1/runs": (
        '{"id":"$","name":"x","run_type":"llm","inputs":{"a":@},"extra":{"metadata":{"a":@}}}'
    ),
    "POST /api/v1/runs/batch": (
        '{"post":[{"id":"$","name":"x","run_type":"llm","outputs":{"a":@},"extra":{"a":@}}]}'
    ),
    "POST /api/v1/runs/query": '{"session":["$"],"limit":@}',
    "POST /api/v1/feedback": '{"run_id":"$","key":"x","score":@,"value":@,"extra":{"a":@}}',
    "POST /api/v1/feedback-configs": '{"feedback_key":"$","feedback_config":{"type":@}}',
    "POST /api/v1/sessions": '{"name":"$","extra":{"metadata":{"a":@}}}',
    "POST /api/v1/datasets": '{"name":"$","metadata":{"a":@},"extra":{"a":@}}',
    "POST /api/v1/examples": '{"dataset_id":"$","inputs":{"a":@},"metadata":{"a":@}}',
    "POST /api/v1/repos": '{"repo_handle":"p-$","is_public":false,"description":@}',
    "POST /v2/deployments": '{"name":"x","source":@,"source_config":{"a":@}}',
}
FILTERS = ["eq(total_tokens, @)", """has(metadata, '{"a": @}')"""]


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, headers=live.headers, timeout=60) as client:
        yield client


def failures(client: httpx.Client, base: str, bodies: dict[str, str], value: str) -> list[str]:
    """Return the routes that answered with an error of the server."""
    results = []
    for route, body in bodies.items():
        method, path = route.split()
        response = client.request(
            method,
            base + path,
            content=body.replace("$", str(uuid4())).replace("@", value),
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            },
        )
        if response.status_code >= 500:
            results.append(f"{route}: {response.status_code}")
    return results


@pytest.mark.usefixtures("sample_agent")
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_hostile_values_are_answered(client: httpx.Client, live: Live, value: str) -> None:
    found = failures(client, "/agents/sample-agent", AGENT_BODIES, value)
    found += failures(client, "", PLATFORM_BODIES, value)
    queries = {
        f"POST /api/v1/runs/query?{number}": json.dumps(
            {"session": [str(uuid4())], "filter": text.replace("@", value)}
        )
        for number, text in enumerate(FILTERS)
    }
    found += failures(client, "", queries, "")

    assert found == []
