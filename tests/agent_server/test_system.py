"""Liveness, info and metrics of an Agent Server."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import DatabaseError

from apps.agent_server.endpoints import system
from apps.agent_server.messaging.messages import CANCELS
from apps.agent_server.web import traffic
from tests.factories.agent_server import AgentFactory, AgentRunFactory, ThreadFactory, route_of


@pytest.fixture
def get(send):
    return lambda path, **options: send("get", path, **options)


@pytest.mark.parametrize("path", ["/ok", "/ok?check_db=1", "/ok?check_db=false", "", "/"])
def test_liveness_is_public(get, path):
    response = get(path, key=None)

    assert (response.status_code, response.json()) == (200, {"ok": True})


@pytest.mark.parametrize("path", ["/ok", "/ok?check_db=1", "", "/docs", "/openapi.json"])
def test_public_route_of_an_unknown_agent_is_not_found(client, agent, path):
    response = client.get(f"/agents/no-such-agent{path}")

    assert (response.status_code, response.json()["code"]) == (404, "agent_not_found")


@pytest.mark.parametrize("prefix", ["/agents", "/api/v1/agents"])
def test_an_agent_of_the_registry_is_not_found(client, agent, prefix):
    """`client.agents.retrieve(id)` of the `langsmith` SDK: this platform has no such registry."""
    response = client.get(f"{prefix}/{uuid4()}")

    assert response.status_code == 404
    assert "ok" not in response.json()


@pytest.mark.parametrize("path", ["/ok", "/ok?check_db=1", "", "/docs", "/openapi.json"])
def test_public_route_of_an_agent_without_a_deployed_revision_is_unavailable(get, agent, path):
    agent.active_revision = None
    agent.save()

    response = get(path, key=None)

    assert (response.status_code, response.json()["code"]) == (503, "agent_not_ready")


def test_lost_database_is_reported_on_request(get, monkeypatch):
    def fail():
        raise DatabaseError

    with monkeypatch.context() as patched:
        patched.setattr(system.connection, "cursor", fail)
        plain, checked = get("/ok", key=None), get("/ok?check_db=1", key=None)

    assert (plain.status_code, checked.status_code) == (200, 503)
    assert checked.json()["detail"] == "The database does not answer."


@pytest.mark.parametrize("path", ["/info", "/metrics", "/metrics?format=json"])
def test_unauthorized_callers_are_rejected(get, outsider_key, reader_key, path):
    assert get(path, key=None).status_code == 401
    assert get(path, key=outsider_key).status_code == 404
    assert get(path, key=reader_key).status_code == 200


def test_info_has_the_versions_of_the_serving_revision(get, agent):
    agent.active_revision.facts = {"versions": {"python": "3.12.1", "langgraph": "1.2.3"}}
    agent.active_revision.save()

    info = get("/info").json()

    assert (info["langgraph_py_version"], info["python_version"]) == ("1.2.3", "3.12.1")
    assert info["flags"]["crons"] is True
    assert info["host"]["deployment"] == agent.name
    assert info["host"]["revision_id"] == str(agent.active_revision_id)


def test_info_has_no_versions_before_the_first_revision(get, agent):
    agent.active_revision = None
    agent.save()

    info = get("/info").json()

    assert (info["langgraph_py_version"], info["host"]["revision_id"]) == (None, None)


def test_metrics_count_runs_of_the_agent_only(get, agent, redis_client, settings):
    settings.AGENT_RUNS_PER_WORKER = 7
    threads = [ThreadFactory(deployment=agent) for _ in range(3)]
    for thread, status in zip(threads, ["running", "pending", "success"], strict=True):
        AgentRunFactory(thread=thread, status=status)
    AgentRunFactory(thread__deployment=AgentFactory(workspace=agent.workspace))
    listener = redis_client.pubsub()
    listener.subscribe(CANCELS)
    listener.get_message(timeout=60)

    metrics = get("/metrics?format=json").json()

    assert {**metrics["queue"], "pending_runs_wait_time_max_secs": 0} == {
        "n_pending": 1,
        "n_running": 1,
        "pending_runs_wait_time_max_secs": 0,
    }
    assert metrics["workers"] == {"max": 7, "active": 1, "available": 6}
    listener.close()


def test_metrics_count_responses(get, agent, redis_client):
    route_of(agent)
    traffic.flush()
    redis_client.flushdb()
    get("/info")
    get("/info")
    get("/info", key=None)

    api_metrics = get("/metrics?format=json").json()["api"]

    assert api_metrics == {"requests": 3, "by_status": {"200": 2, "401": 1}}
    assert get("/metrics?format=json").json()["api"]["requests"] == 4


def test_requests_of_unknown_routes_are_not_counted(client, agent, redis_client):
    client.get("/agents/no-such-agent/info")
    traffic.flush()

    assert redis_client.keys("slipway:traffic:no-such-agent*") == []


def test_metrics_have_the_prometheus_format(get, agent, redis_client):
    AgentRunFactory(thread__deployment=agent)

    response = get("/metrics")

    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = response.content.decode()
    assert f'slipway_agent_runs_pending{{agent="{agent.slug}"}} 1\n' in text
    assert "# TYPE slipway_agent_http_requests_total counter\n" in text
    assert get("/metrics?format=xml").status_code == 422
