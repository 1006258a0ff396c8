"""The description of an Agent Server says what is true: it is held against routes and answers."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import URLPattern
from jsonschema import Draft202012Validator

from apps.agent_server.api import urls
from apps.agent_server.openapi import answers
from apps.agent_server.openapi.document import described, document
from apps.agent_server.routing import http_routes
from tests.factories.agent_server import CronFactory, ThreadFactory, route_of

DOCUMENT = json.loads(document("x"))
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
METHODS = ("get", "post", "put", "patch", "delete")


def path_of(route: URLPattern) -> str | None:
    address = str(route.pattern)
    if not address.startswith("agents/<slug:slug>"):
        return None
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", address.removeprefix("agents/<slug:slug>")) or "/"


def routed() -> set[str]:
    """Every method of every route, as the route tables have them."""
    found = set()
    for route in urls.urlpatterns:
        view = getattr(route.callback, "view_class", None)
        if view is not None and path_of(route) is not None:
            found |= {f"{m.upper()} {path_of(route)}" for m in METHODS if hasattr(view, m)}
    for route in http_routes:
        found |= {f"{m} {path_of(route)}" for m in route.default_args["methods"]}
    return found


def test_every_route_is_described_and_nothing_else():
    assert set(OPERATIONS) == routed() - answers.HIDDEN


def test_nothing_is_told_of_routes_that_are_not_there():
    assert set(answers.TOLD) - routed() == set()
    assert routed() >= answers.HIDDEN


@pytest.mark.parametrize("key", sorted(OPERATIONS))
def test_each_operation_is_whole(key):
    operation = OPERATIONS[key]
    named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}

    assert named == set(re.findall(r"{(\w+)}", key))
    assert re.fullmatch(r"[A-Z].*\.", operation["summary"]), operation["summary"]
    assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
    assert "requestBody" not in operation or not key.startswith("GET ")
    for parameter in operation["parameters"]:
        Draft202012Validator.check_schema(parameter["schema"])


def test_names_of_operations_are_their_own():
    names = [operation["operationId"] for operation in OPERATIONS.values()]

    assert len(set(names)) == len(names)


def test_each_reference_leads_to_a_schema():
    text = json.dumps(DOCUMENT)
    schemas = DOCUMENT["components"]["schemas"]

    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) - set(schemas) == set()
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_a_body_is_described_wherever_one_is_read():
    without = {
        key
        for key, operation in OPERATIONS.items()
        if key.split()[0] in {"POST", "PUT", "PATCH"} and "requestBody" not in operation
    }

    assert without == {
        "POST /threads/{thread_id}/copy",
        "POST /threads/{thread_id}/runs/{run_id}/cancel",
    }


def test_the_code_says_what_it_reads():
    """A sample of what is found out by reading: bodies behind functions, words of the query."""
    found = {handler.key: handler for handler in described()}

    body = [kind.__name__ for kind in found["POST /threads/{thread_id}/runs/wait"].bodies]
    assert body == ["RunBody"]
    assert found["GET /threads/{thread_id}/runs"].query == {
        "select": "array",
        "limit": "integer",
        "offset": "integer",
        "status": "string",
    }
    assert found["GET /ok"].is_open
    assert not found["GET /info"].is_open


def test_the_document_and_its_page_are_open_and_name_the_agent(client, agent):
    answer = client.get(f"/agents/{agent.slug}/openapi.json")
    page = client.get(f"/agents/{agent.slug}/docs")

    assert answer.json()["servers"] == [{"url": f"/agents/{agent.slug}"}]
    assert answer.json()["paths"] == DOCUMENT["paths"]
    assert page.status_code == 200
    assert f'src="/agents/{agent.slug}/openapi.json"' in page.content.decode()


def answer_schema(key: str) -> dict:
    [content] = [
        content
        for status, response in OPERATIONS[key]["responses"].items()
        if status != "default"
        for content in response.get("content", {}).values()
    ]
    return {**content["schema"], "components": DOCUMENT["components"]}


def test_real_answers_are_as_described(client, agent, key):
    route_of(agent)
    thread = ThreadFactory(deployment=agent)
    cron = CronFactory(deployment=agent)
    assistant = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
    asked = {
        "GET /info": None,
        "GET /ok": None,
        "POST /assistants": {"graph_id": "agent"},
        "GET /assistants/{assistant_id}": None,
        "PATCH /assistants/{assistant_id}": {"name": "x"},
        "POST /assistants/search": {},
        "POST /assistants/count": {},
        "POST /assistants/{assistant_id}/versions": {},
        "POST /assistants/{assistant_id}/latest": {"version": 1},
        "GET /threads/{thread_id}": None,
        "POST /threads/search": {},
        "POST /threads/count": {},
        "POST /threads/{thread_id}/runs": {"assistant_id": "agent"},
        "GET /threads/{thread_id}/runs": None,
        "POST /runs": {"assistant_id": "agent"},
        "POST /runs/crons": {"assistant_id": "agent", "schedule": "* * * * *"},
        "POST /threads/{thread_id}/runs/crons": {"assistant_id": "agent", "schedule": "* * * * *"},
        "GET /runs/crons/{cron_id}": None,
        "PATCH /runs/crons/{cron_id}": {"enabled": False},
        "POST /runs/crons/search": {},
        "POST /runs/crons/count": {},
    }

    for operation, body in asked.items():
        method, path = operation.split()
        path = path.format(thread_id=thread.thread_id, assistant_id=assistant, cron_id=cron.pk)
        response = getattr(client, method.lower())(
            f"/agents/{agent.slug}{path}",
            data=None if body is None else json.dumps(body),
            content_type="application/json",
            headers={"X-Api-Key": key},
        )
        assert response.status_code == 200, (operation, response.content)
        Draft202012Validator(answer_schema(operation)).validate(response.json())
