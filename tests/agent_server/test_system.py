"""What an Agent Server says of itself."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from apps.agent_server.endpoints import system
from apps.agent_server.messaging.messages import CANCELS
from apps.agent_server.web import traffic
from tests.factories.agent_server import AgentFactory, AgentRunFactory, ThreadFactory, route_of


@pytest.fixture
def ask(client, agent, key):
    def send(path, key=key):
        headers = {"X-Api-Key": key} if key else {}
        return client.get(f"/agents/{agent.slug}{path}", headers=headers)

    return send


@pytest.mark.parametrize("path", ["/ok", "/ok?check_db=1", "/ok?check_db=false", "", "/"])
def test_liveness_is_public(ask, path):
    response = ask(path, key=None)

    assert (response.status_code, response.json()) == (200, {"ok": True})


def test_lost_database_is_reported_on_request(ask, monkeypatch):
    def fail():
        raise DatabaseError

    with monkeypatch.context() as patched:
        patched.setattr(system.connection, "cursor", fail)
        plain, checked = ask("/ok", key=None), ask("/ok?check_db=1", key=None)

    assert (plain.status_code, checked.status_code) == (200, 503)
    assert checked.json()["detail"] == "The database does not answer."


@pytest.mark.parametrize("path", ["/info", "/metrics", "/metrics?format=json"])
def test_unauthorized_callers_are_rejected(ask, outsider_key, reader_key, path):
    assert ask(path, key=None).status_code == 401
    assert ask(path, key=outsider_key).status_code == 404
    assert ask(path, key=reader_key).status_code == 200


def test_info_has_the_versions_of_the_serving_revision(ask, agent):
    agent.active_revision.facts = {"versions": {"python": "3.12.1", "langgraph": "1.2.3"}}
    agent.active_revision.save()

    info = ask("/info").json()

    assert (info["langgraph_py_version"], info["python_version"]) == ("1.2.3", "3.12.1")
    assert info["flags"]["crons"] is True
    assert info["host"]["deployment"] == agent.name
    assert info["host"]["revision_id"] == str(agent.active_revision_id)


def test_info_has_no_versions_before_the_first_revision(ask, agent):
    agent.active_revision = None
    agent.save()

    info = ask("/info").json()

    assert (info["langgraph_py_version"], info["host"]["revision_id"]) == (None, None)


def test_metrics_count_runs_of_the_agent_only(ask, agent, redis_client, settings):
    settings.AGENT_RUNS_PER_WORKER = 7
    threads = [ThreadFactory(deployment=agent) for _ in range(3)]
    for thread, status in zip(threads, ["running", "pending", "success"], strict=True):
        AgentRunFactory(thread=thread, status=status)
    AgentRunFactory(thread__deployment=AgentFactory(workspace=agent.workspace))
    listener = redis_client.pubsub()
    listener.subscribe(CANCELS)
    listener.get_message(timeout=5)

    found = ask("/metrics?format=json").json()

    assert {**found["queue"], "pending_runs_wait_time_max_secs": 0} == {
        "n_pending": 1,
        "n_running": 1,
        "pending_runs_wait_time_max_secs": 0,
    }
    assert found["workers"] == {"max": 7, "active": 1, "available": 6}
    listener.close()


def test_metrics_count_responses(ask, agent, redis_client):
    route_of(agent)
    traffic.flush()
    redis_client.flushdb()
    ask("/info")
    ask("/info")
    ask("/info", key=None)

    found = ask("/metrics?format=json").json()["api"]

    assert found == {"requests": 3, "by_status": {"200": 2, "401": 1}}
    assert ask("/metrics?format=json").json()["api"]["requests"] == 4


def test_requests_of_unknown_routes_are_not_counted(client, agent, redis_client):
    client.get("/agents/nobody-is-here/info")
    traffic.flush()

    assert redis_client.keys("slipway:traffic:nobody*") == []


def test_metrics_have_the_prometheus_format(ask, agent, redis_client):
    AgentRunFactory(thread__deployment=agent)

    response = ask("/metrics")

    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = response.content.decode()
    assert f'slipway_agent_runs_pending{{agent="{agent.slug}"}} 1\n' in text
    assert "# TYPE slipway_agent_http_requests_total counter\n" in text
    assert ask("/metrics?format=xml").status_code == 422
