"""System assistants of graphs, and routes outside threads."""

from __future__ import annotations

from uuid import UUID

import pytest

from apps.agent_server.models import Assistant, AssistantVersion
from apps.agent_server.services import assistants
from apps.deployments import routes
from tests.factories.agent_server import AgentFactory, route_of

AGENT_ID = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"


ROUTES = [
    ("post", "/assistants/search"),
    ("post", "/assistants/count"),
    ("get", f"/assistants/{AGENT_ID}"),
    ("post", f"/assistants/{AGENT_ID}/versions"),
    ("get", "/info"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_anonymous_and_outside_callers_are_rejected(send, outsider_key, reader_key, method, path):
    body = {} if method == "post" else None

    assert send(method, path, body, key=None).status_code == 401
    assert send(method, path, body, key=outsider_key).status_code == 404
    assert send(method, path, body, key=reader_key).status_code == 200


def test_each_graph_has_an_assistant_of_a_known_id(send):
    response = send("post", "/assistants/search", {"sort_by": "name", "sort_order": "asc"})

    row = Assistant.unscoped.get(graph_id="agent")
    assert [assistant["name"] for assistant in response.json()] == ["agent", "other"]
    assert response.json()[0] == {
        "assistant_id": AGENT_ID,
        "graph_id": "agent",
        "name": "agent",
        "description": "What agent does",
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "version": 1,
        "created_at": row.created_at.isoformat(timespec="microseconds"),
        "updated_at": row.updated_at.isoformat(timespec="microseconds"),
    }
    assert response.headers["X-Pagination-Total"] == "2"


def test_same_assistant_id_in_two_deployments_names_two_assistants(agent):
    other = AgentFactory()

    for deployment in (agent, other):
        route_of(deployment)

    rows = Assistant.unscoped.filter(assistant_id=AGENT_ID)
    assert {row.deployment_id for row in rows} == {agent.pk, other.pk}


def test_creating_system_assistants_is_idempotent(agent):
    route = route_of(agent)
    assistants._ensured_revisions.clear()
    assistants.ensure_system_assistants(route)

    assert Assistant.unscoped.count() == 2
    assert AssistantVersion.unscoped.count() == 2


def test_known_revision_takes_no_query(agent, django_assert_num_queries):
    route = route_of(agent)

    with django_assert_num_queries(0):
        assistants.ensure_system_assistants(route)


def test_search_and_count_filter_assistants(send):
    def search_names(**body):
        return [row["name"] for row in send("post", "/assistants/search", body).json()]

    assert search_names(graph_id="other") == ["other"]
    assert search_names(name="GEN") == ["agent"]
    assert search_names(metadata={"created_by": "system"}, limit=1, sort_by="name") == ["other"]
    assert search_names(metadata={"created_by": "me"}) == []
    assert send("post", "/assistants/count", {}).json() == 2
    assert send("post", "/assistants/count", {"graph_id": "agent"}).json() == 1
    selected = send("post", "/assistants/search", {"select": ["graph_id"], "sort_by": "name"})
    assert selected.json() == [{"graph_id": "other"}, {"graph_id": "agent"}]
    assert send("post", "/assistants/search", {"select": ["x"]}).status_code == 422


def test_system_assistant_of_a_removed_graph_is_not_found(send, agent):
    route_of(agent)
    Assistant.unscoped.filter(graph_id="other").update(metadata={"created_by": "me"})
    agent.active_revision.graphs.all().delete()
    routes.clear_cache()

    listed = send("post", "/assistants/search", {}).json()

    assert [row["graph_id"] for row in listed] == ["other"]


def test_assistant_is_read_by_id(send):
    assert send("get", f"/assistants/{AGENT_ID}").json()["graph_id"] == "agent"
    missing = send("get", f"/assistants/{UUID(int=1)}")
    assert (missing.status_code, missing.json()["detail"]) == (404, "Not Found")
    by_name = send("get", "/assistants/agent")
    assert (by_name.status_code, by_name.json()["detail"]) == (
        422,
        "Invalid assistant ID: must be a UUID",
    )


async def test_schemas_are_those_recorded_by_the_build(call):
    response = await call("GET", f"/assistants/{AGENT_ID}/schemas")

    assert response.json() == {"graph_id": "agent", "input_schema": {"title": "agent"}}


async def test_drawing_is_the_one_recorded_by_the_build(call):
    by_name = await call("GET", "/assistants/agent/graph")
    by_id = await call("GET", f"/assistants/{AGENT_ID}/graph?xray=0")
    unknown = await call("GET", f"/assistants/{UUID(int=1)}/graph")

    assert by_name.json() == by_id.json() == {"nodes": [{"id": "__start__"}], "edges": []}
    assert unknown.status == 404


def test_agent_without_a_revision_is_unavailable(send, agent):
    agent.active_revision = None
    agent.save()

    response = send("post", "/runs", {"assistant_id": "agent"})

    assert (response.status_code, response.json()["code"]) == (503, "agent_not_ready")


def test_graph_missing_from_the_new_revision_cannot_be_run(send, agent):
    route_of(agent)
    agent.active_revision.graphs.filter(graph_id="agent").delete()
    routes.clear_cache()

    response = send("post", "/runs", {"assistant_id": AGENT_ID})

    assert (response.status_code, response.json()["detail"]) == (
        409,
        "The deployed revision has no graph 'agent'.",
    )


def test_ok_is_public_and_info_lists_the_features(send):
    assert send("get", "/ok", key=None).json() == {"ok": True}
    assert send("get", "/ok?check_db=1", key="slip_wrong").json() == {"ok": True}
    info = send("get", "/info").json()
    assert info["version"] == "0.1.0"
    assert info["flags"]["assistants"] is True


@pytest.mark.parametrize(
    "path", ["/threads", "/threads/x/runs/stream", "/threads/x/runs/y/join", "/nothing", "/ok"]
)
def test_browsers_of_any_origin_are_allowed(client, agent, path):
    preflight = client.options(
        f"/agents/{agent.slug}{path}",
        headers={
            "Origin": "https://chat.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-api-key,content-type",
            "Access-Control-Request-Private-Network": "true",
        },
    )
    plain = client.get(f"/agents/{agent.slug}{path}")

    assert preflight.status_code == 200
    assert preflight.headers["Access-Control-Allow-Origin"] == "*"
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert preflight.headers["Access-Control-Allow-Headers"] == "x-api-key,content-type"
    assert preflight.headers["Access-Control-Max-Age"] == "600"
    assert preflight.headers["Access-Control-Allow-Private-Network"] == "true"
    assert plain.headers["Access-Control-Allow-Origin"] == "*"
    exposed = plain.headers["Access-Control-Expose-Headers"].split(", ")
    assert set(exposed) == {"x-pagination-total", "x-pagination-next", "content-location"}


def test_trailing_slash_is_redirected_within_the_agent(client, agent):
    response = client.post(f"/agents/{agent.slug}/threads/?a=1")
    elsewhere = client.get("/agents/" + "/evil.example/")

    assert response.status_code == 307
    assert response.headers["Location"] == f"/agents/{agent.slug}/threads?a=1"
    assert not elsewhere.headers.get("Location", "/x").startswith("//")


def test_wrong_method_lists_the_allowed_methods(send, agent):
    commands = send("get", "/threads/x/commands", key=None)
    threads = send("delete", "/threads")

    assert (commands.status_code, threads.status_code) == (405, 405)
    assert commands.headers["Allow"] == "POST"
    assert "POST" in threads.headers["Allow"]
