"""The OpenAPI document of an Agent Server matches its routes and responses."""

from __future__ import annotations

import json
import re

import pytest
from jsonschema import Draft202012Validator

from apps.agent_server.endpoints.openapi import describe
from apps.agent_server.endpoints.routes import ENDPOINTS
from apps.deployments import routes
from apps.deployments.models import Revision
from tests.factories.agent_server import CronFactory, ThreadFactory, route_of

DOCUMENT = describe(ENDPOINTS)
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def test_document_has_every_endpoint_once():
    assert sorted(OPERATIONS) == sorted(f"{e.method} {e.path}" for e in ENDPOINTS)


@pytest.mark.parametrize("key", sorted(OPERATIONS))
def test_each_operation_is_complete(key):
    operation = OPERATIONS[key]
    parameter_names = {p["name"] for p in operation["parameters"] if p["in"] == "path"}

    assert parameter_names == set(re.findall(r"{(\w+)}", key))
    assert re.fullmatch(r"[A-Z].*\.", operation["summary"]), operation["summary"]
    assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
    assert "requestBody" not in operation or not key.startswith("GET ")
    for parameter in operation["parameters"]:
        Draft202012Validator.check_schema(parameter["schema"])


def test_operation_ids_are_unique():
    names = [operation["operationId"] for operation in OPERATIONS.values()]

    assert len(set(names)) == len(names)


def test_each_reference_resolves_to_a_schema():
    text = json.dumps(DOCUMENT)
    schemas = DOCUMENT["components"]["schemas"]

    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) - set(schemas) == set()
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_body_is_described_for_each_route_that_reads_one():
    undescribed = {
        key
        for key, operation in OPERATIONS.items()
        if key.split()[0] in {"POST", "PUT", "PATCH"} and "requestBody" not in operation
    }

    assert undescribed == {
        "POST /threads/{thread_id}/copy",
        "POST /threads/{thread_id}/runs/{run_id}/cancel",
    }


def test_operation_describes_the_body_the_query_and_the_access_of_its_endpoint():
    body = OPERATIONS["POST /threads/{thread_id}/runs/wait"]["requestBody"]
    parameters = OPERATIONS["GET /threads/{thread_id}/runs"]["parameters"]

    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/RunBody"}
    assert {p["name"]: p["schema"]["type"] for p in parameters if p["in"] == "query"} == {
        "select": "array",
        "limit": "integer",
        "offset": "integer",
        "status": "string",
    }
    assert OPERATIONS["GET /ok"]["security"] == []
    assert "security" not in OPERATIONS["GET /info"]


def test_document_and_its_page_are_public_and_name_the_agent(client, agent):
    answer = client.get(f"/agents/{agent.slug}/openapi.json")
    page = client.get(f"/agents/{agent.slug}/docs")

    assert answer.json()["servers"] == [{"url": f"/agents/{agent.slug}"}]
    assert answer.json()["paths"] == DOCUMENT["paths"]
    assert page.status_code == 200
    assert f'src="/agents/{agent.slug}/openapi.json"' in page.content.decode()


def test_document_includes_the_routes_of_the_agents_application(client, agent):
    schema = {"type": "object", "title": "Thread", "properties": {"mine": {"type": "boolean"}}}
    reference = {"$ref": "#/components/schemas/Thread"}
    content = {"application/json": {"schema": reference}}
    operation = {"summary": "Mine", "responses": {"200": {"description": "", "content": content}}}
    Revision.unscoped.filter(deployment=agent).update(
        config={"http": {"app": "./app.py:app"}},
        facts={
            "http": {
                "routes": [
                    ["/mine", "http", ["GET", "HEAD"]],
                    ["/items/{item:int}", "http", ["PUT"]],
                    ["/socket", "websocket", []],
                ],
                "openapi": {
                    "paths": {"/mine": {"get": operation}},
                    "components": {"schemas": {"Thread": schema}},
                },
            }
        },
    )
    routes.clear_cache()

    document = client.get(f"/agents/{agent.slug}/openapi.json").json()

    mine, items = document["paths"]["/mine"]["get"], document["paths"]["/items/{item}"]["put"]
    assert "/socket" not in document["paths"]
    assert (mine["summary"], mine["tags"]) == ("Mine", ["application"])
    assert [parameter["name"] for parameter in items["parameters"]] == ["item"]
    referenced = mine["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert document["components"]["schemas"][referenced.rpartition("/")[2]] == schema
    assert (
        document["components"]["schemas"]["Thread"] == DOCUMENT["components"]["schemas"]["Thread"]
    )
    assert document["paths"].keys() >= DOCUMENT["paths"].keys()


def response_schema(key: str) -> dict:
    [content] = [
        content
        for status, response in OPERATIONS[key]["responses"].items()
        if status != "default"
        for content in response.get("content", {}).values()
    ]
    return {**content["schema"], "components": DOCUMENT["components"]}


def test_responses_match_the_document(client, agent, key):
    route_of(agent)
    thread = ThreadFactory(deployment=agent)
    cron = CronFactory(deployment=agent)
    assistant = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
    requests = {
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

    for operation, body in requests.items():
        method, path = operation.split()
        path = path.format(thread_id=thread.thread_id, assistant_id=assistant, cron_id=cron.pk)
        response = getattr(client, method.lower())(
            f"/agents/{agent.slug}{path}",
            data=None if body is None else json.dumps(body),
            content_type="application/json",
            headers={"X-Api-Key": key},
        )
        assert response.status_code == 200, (operation, response.content)
        Draft202012Validator(response_schema(operation)).validate(response.json())
