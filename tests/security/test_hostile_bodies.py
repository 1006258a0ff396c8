"""Every field of a body replaced by every hostile value: each is answered, none with a 500.

The bodies are valid, so that what lies behind the checks of the other fields is reached, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.test import Client

from apps.core.errors import AppError
from apps.core.http.loop_response import LoopResponse
from apps.deployments.models import Deployment
from apps.organizations.models import Workspace
from apps.prompts.models import RepositoryType
from apps.prompts.services.repositories import create_repository
from apps.tracing.services import ensure_project
from tests.console.conftest import create_workspace_user
from tests.experiment_jobs.conftest import agent, clear_caches
from tests.factories.datasets import make_dataset
from tests.playground.conftest import (
    base,
    forget_partitions,
    keys,
    provider,
    read,
    setting,
    shared_connection,
)
from tests.tracing.conftest import api, make_api, objects, page

__all__ = [
    "agent",
    "api",
    "base",
    "clear_caches",
    "forget_partitions",
    "keys",
    "make_api",
    "objects",
    "page",
    "provider",
    "shared_connection",
]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys", "objects")]

MAX_CPU_SECONDS = 3.0
"""Of one request with its database."""
VALUES = {
    "null": "null",
    "minus": "-1",
    "wide": "9" * 400,
    "beyond doubles": "1e400",
    "text": '"x"',
    "nul": r'"a\u0000b"',
    "surrogate": r'"\ud800"',
    "long": json.dumps("x" * 300_000),
    "spaces": json.dumps("{{" + " " * 50_000),
    "braces": '"{a.__class__}{0}{{%s}}"',
    "time": '"9999-12-31T23:59:59-14:00"',
    "early time": '"0001-01-01T00:00:00+14:00"',
    "id": f'"{UUID(int=2**128 - 1)}"',
    "nested": '{"a":' * 150 + "1" + "}" * 150,
    "too deep": "[" * 800 + "]" * 800,
    "many": json.dumps(["x"] * 3000),
    "objects": json.dumps([{"a": None}] * 3),
    "odd keys": r'{"": 1, "\u0000": 2, "__proto__": 3, "a.b": {"$ref": "#"}}',
}
MARK = "\ue000replaced"


class Resources:
    """What the bodies refer to."""

    def __init__(self, workspace: Workspace, agent: Deployment) -> None:
        self.project = ensure_project(workspace.pk, "default").pk
        self.dataset = make_dataset(workspace, {"question": "Why?"}).pk
        self.agent = agent.pk
        self.prompt = create_repository(
            workspace_id=workspace.pk, handle="asker", type=RepositoryType.PROMPT
        ).pk


COLUMN = setting(
    {"role": "system", "content": [{"type": "text", "text": "Be {mood}."}]},
    {"role": "human", "content": "{question}"},
    {"role": "placeholder", "content": "history"},
    name="A",
    tools=[{"name": "f", "description": "d", "schema": {"type": "object"}, "result": "r"}],
    response_schema={"type": "object", "properties": {"a": {"type": "string"}}},
    model={"temperature": 0.5, "max_tokens": 5, "stop": ["x"], "seed": 1, "tool_choice": "f"},
    prompt={"repo": "asker", "commit": "latest"},
)
VARIABLES = {"mood": "kind", "question": "Why?", "history": [{"role": "ai", "content": "Hi"}]}
STATE = {
    "columns": [{"letter": "A", "setting": COLUMN}],
    "variables": VARIABLES,
    "dataset": {"dataset_id": "x", "as_of": "latest", "splits": ["a"], "mapping": {"a": "b"}},
    "view": {"a": 1},
}
RULE = {
    "name": "r", "description": "d", "type": "threshold", "attribute": "error_count",
    "aggregation": "pct", "operator": "gte", "filter": "eq(is_root, true)",
    "denominator_filter": "eq(is_root, true)", "window_minutes": 15, "threshold": 5,
    "warning_threshold": 2, "min_run_count": 1, "is_enabled": True,
}  # fmt: skip
HOOK = "https://93.184.216.34/hook"
PAGES: dict[str, Callable[[Resources], Any]] = {
    "POST stream": lambda _: {
        "setting": COLUMN, "letter": "A", "variables": VARIABLES,
        "history": [{"role": "human", "content": "And?"}],
    },
    "PUT draft": lambda _: STATE,
    "POST shares": lambda _: {"state": STATE, "title": "t"},
    "POST commits": lambda _: {
        "repo": "other", "setting": COLUMN, "parent": None, "message": "m", "tags": ["a"],
        "create": True,
    },
    "POST experiments": lambda known: {
        "dataset_id": known.dataset, "columns": [{"letter": "A", "setting": COLUMN}],
        "as_of": "latest", "splits": [], "mapping": {"question": "question"}, "repetitions": 1,
        "concurrency": 1, "name": "n",
    },
    "POST experiments/estimate": lambda known: {
        "dataset_id": known.dataset, "columns": [{"letter": "A", "setting": COLUMN}],
    },
}  # fmt: skip
API: dict[str, Callable[[Resources], Any]] = {
    "POST /playground-settings": lambda _: {
        "settings": {"a": 1}, "name": "n", "description": "d", "options": {"a": 1},
    },
    "POST /prompts/invoke_prompt": lambda _: {
        "messages": [["human", "{a}"]], "inputs": {"a": "b"}, "template_format": "f-string",
        "model": {"provider": "openai", "model": "m"},
    },
    "POST /prompts/canvas": lambda _: {
        "artifact": "a b", "messages": [["human", "shorter"]], "highlighted": "a",
        "template_format": "f-string",
    },
    "POST /runs/generate-query": lambda _: {"query": "slow runs", "feedback_keys": ["a"]},
    "POST /datasets/playground_experiment/batch": lambda known: {
        "dataset_id": known.dataset, "repo_handle": "asker", "commit": "latest",
        "project_name": "n", "dataset_splits": ["a"], "as_of": "latest",
        "mapping": {"question": "question"}, "repetitions": 1, "batch_size": 1,
    },
    "POST /datasets/studio_experiment": lambda known: {
        "dataset_id": known.dataset, "deployment_id": known.agent, "assistant_id": "agent",
        "project_name": "n", "dataset_splits": [], "as_of": "latest",
        "input_mapping": {"a": "{{question}}"}, "repetitions": 1, "batch_size": 1,
    },
    "POST /v1/platform/alerts": lambda known: {
        "rule": {**RULE, "session_id": known.project},
        "actions": [
            {"target": "webhook", "config": {"url": HOOK, "headers": {"X-A": "b"}, "body": {}}},
            {"target": "pagerduty", "config": {"routing_key": "K"}},
            {"target": "email", "config": {"recipients": ["a@b.example"]}},
        ],
    },
    "POST /v1/platform/alerts/preview": lambda _: {"rule": RULE | {
        "type": "change", "threshold": None, "warning_threshold": None,
        "threshold_window_minutes": 60, "threshold_multiplier": 2, "warning_multiplier": 1.5,
    }},
    "POST /prompt-webhooks": lambda known: {
        "url": HOOK, "headers": {"X-A": "b"}, "triggers": ["commit"],
        "include_prompts": [known.prompt],
    },
    "POST /v1/platform/deployment-webhooks": lambda known: {
        "url": HOOK, "headers": {"X-A": "b"}, "events": ["deployed"], "deployment_id": known.agent,
    },
    "POST /workspaces/current/secrets": lambda _: [{"key": "OPENAI_BASE_URL", "value": "x"}],
    "POST /mcp fetch_runs": lambda _: {
        "project_name": "default", "limit": 1, "filter": "eq(error, true)",
    },
    "POST /mcp get_project_runs_stats": lambda _: {
        "project_name": "default", "start_time": "2026-01-01T00:00:00Z", "is_root": True,
    },
    "POST /mcp get_thread_history": lambda _: {
        "thread_id": "a", "project_name": "default", "cursor": "x", "preview_chars": 10,
    },
    "POST /mcp create_dataset": lambda _: {
        "dataset_name": "n", "description": "d",
        "examples": [{"inputs": {"a": 1}, "outputs": {"b": 1}, "metadata": {"c": 1}, "split": "s"}],
    },
    "POST /mcp list_examples": lambda known: {
        "dataset_id": known.dataset, "filter": 'has(metadata, \'{"a": 1}\')', "metadata": {"a": 1},
        "splits": ["a"], "as_of": "latest", "limit": 1, "offset": 0,
    },
    "POST /mcp push_prompt": lambda _: {
        "prompt_name": "asker", "messages": [{"role": "human", "content": "{a}"}],
        "template_format": "f-string", "parent_commit": "a", "description": "d",
    },
    "POST /mcp run_experiment": lambda known: {
        "dataset_id": known.dataset, "deployment": str(known.agent), "experiment_prefix": "p",
        "metadata": {"a": 1}, "input_mapping": {"a": "{{question}}"}, "splits": ["a"],
    },
    "POST /mcp get_billing_usage": lambda _: {
        "starting_on": "2026-01-01T00:00:00Z", "ending_before": "2026-02-01T00:00:00Z",
    },
    "POST /mcp get_deployment_logs": lambda known: {
        "deployment": str(known.agent), "kind": "server", "level": "INFO", "query": "a",
        "offset": "x",
    },
}  # fmt: skip


def replacements(value: Any) -> Iterator[Any]:
    """Yield the value with each of its parts replaced by the mark."""
    yield MARK
    if isinstance(value, dict):
        for name, member in value.items():
            for changed in replacements(member):
                yield {**value, name: changed}
    elif isinstance(value, list):
        for index, member in enumerate(value):
            for changed in replacements(member):
                yield [*value[:index], changed, *value[index + 1 :]]


def hostile_bodies(body: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the valid body first."""
    yield "valid", json.dumps(body, default=str).encode()
    for changed in replacements(body):
        text = json.dumps(changed, default=str)
        for name, hostile in VALUES.items():
            yield name, text.replace(json.dumps(MARK), hostile).encode()


@pytest.fixture
def known(workspace: Workspace, agent: Deployment) -> Resources:
    return Resources(workspace, agent)


def sweep(client: Client, method: str, path: str, bodies: Iterator[tuple[str, bytes]]) -> None:
    """Send the bodies, each in a transaction that is rolled back."""
    client.raise_request_exception = False
    failures, count = [], 0
    _, valid = next(bodies)
    response = client.generic(method, path, valid, content_type="application/json")
    assert response.status_code < 300, (response.status_code, response.content[:500])
    for name, body in bodies:
        start = time.process_time()
        savepoint = transaction.savepoint()
        response = client.generic(method, path, body, content_type="application/json")
        status = response.status_code
        if isinstance(response, LoopResponse) and status == 200:
            status = _read_status(response)
        transaction.savepoint_rollback(savepoint)
        count += 1
        seconds = time.process_time() - start
        # 502 and 504 are those of a model's provider.
        if status in {500, 501, 503} or seconds > MAX_CPU_SECONDS:
            failures.append((name, status, round(seconds, 1), body[:300]))
    assert not failures, f"{len(failures)} of {count}: {failures[:5]}"


def _read_status(response: Any) -> int:
    try:
        read(response)
    except AppError as error:
        return error.status
    except Exception:  # noqa: BLE001  (a status like that of other errors)
        return 500
    return 200


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("route", PAGES)
def test_no_field_of_a_page_s_request_is_a_500(workspace, base, known, route):
    client = Client()
    client.force_login(create_workspace_user(workspace, "admin"))
    method, _, path = route.partition(" ")

    sweep(client, method, f"{base}/{path}", hostile_bodies(PAGES[route](known)))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("route", API)
def test_no_field_of_an_api_request_is_a_500(api, known, route):
    method, path, *tool = route.split(" ")
    bodies = hostile_bodies(API[route](known))
    if tool:
        head = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%b",' % (
            tool[0].encode()
        )
        bodies = ((name, head + b'"arguments": %b}}' % body) for name, body in bodies)

    sweep(api.client, method, path, bodies)
