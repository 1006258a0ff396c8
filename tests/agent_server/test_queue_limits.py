"""The pending runs of an organization and of a deployment are limited."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection, connections

from apps.agent_server import errors
from apps.agent_server.models import AgentRun
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import queue_limits, runs
from tests.factories.agent_server import AgentFactory, AgentRunFactory, ThreadFactory, route_of
from tests.factories.api_keys import key_for
from tests.factories.organizations import WorkspaceFactory

BODY = {"assistant_id": "agent"}


@pytest.fixture(autouse=True)
def _clear_counts():
    queue_limits.clear_cache()
    yield
    queue_limits.clear_cache()


def test_a_run_above_the_deployments_limit_gets_429(send, agent, settings):
    settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT = 2
    other = AgentFactory(workspace=agent.workspace)
    for _ in range(2):
        assert send("post", "/runs", BODY).status_code == 200

    response = send("post", "/runs", BODY)

    assert response.status_code == 429
    assert response.headers["Retry-After"] == "10"
    assert response.json()["code"] == "queue_full"
    assert response.json()["detail"].startswith("This deployment has 2 pending runs, the maximum.")
    assert AgentRun.unscoped.count() == 2
    runs.create_stateless(Scope(route_of(other)), RunBody(assistant_id="agent"))


def test_a_run_above_the_organizations_limit_gets_429(send, agent, settings):
    settings.MAX_QUEUED_RUNS = 2
    sibling = AgentFactory(workspace=WorkspaceFactory(organization=agent.workspace.organization))
    for _ in range(2):
        AgentRunFactory(thread__deployment=sibling, status="pending")
    AgentRunFactory(thread__deployment=agent, status="running")

    response = send("post", "/runs", BODY)

    assert response.status_code == 429
    assert response.json()["detail"].startswith("This organization has 2 pending runs")
    runs.create_stateless(Scope(route_of(AgentFactory())), RunBody(assistant_id="agent"))


def test_a_started_run_makes_room(send, agent, settings, monkeypatch):
    monkeypatch.setattr(queue_limits, "MIN_AGE_SECONDS", 0.0)
    settings.MAX_QUEUED_RUNS = 1
    send("post", "/runs", BODY)
    assert send("post", "/runs", BODY).status_code == 429

    AgentRun.unscoped.update(status="running")

    assert send("post", "/runs", BODY).status_code == 200


def test_runs_that_start_at_once_leave_the_queue_to_the_next_request(send, agent, settings):
    settings.MAX_QUEUED_RUNS = 1
    assert send("post", "/runs", BODY).status_code == 200

    AgentRun.unscoped.update(status="running")

    assert send("post", "/runs", BODY).status_code == 200


def test_a_batch_above_the_limit_creates_no_run(send, agent, settings):
    settings.MAX_QUEUED_RUNS = 2

    response = send("post", "/runs/batch", [BODY] * 3)

    assert (response.status_code, AgentRun.unscoped.count()) == (429, 0)
    assert send("post", "/runs/batch", [BODY] * 2).status_code == 200


def test_a_rejected_request_holds_no_place(send, settings):
    settings.MAX_QUEUED_RUNS = 1

    assert send("post", "/runs", {"assistant_id": "missing"}).status_code >= 400

    assert send("post", "/runs", BODY).status_code == 200


def test_far_from_the_limit_a_run_costs_no_count(agent, django_assert_num_queries):
    scope, body = Scope(route_of(agent)), RunBody(assistant_id="agent")
    runs.create_stateless(scope, body)

    with django_assert_num_queries(1):
        runs.create_stateless(scope, body)


@pytest.mark.django_db(transaction=True)
def test_parallel_requests_do_not_exceed_the_limit(agent, settings, monkeypatch):
    settings.MAX_QUEUED_RUNS = 5
    scope, body = Scope(route_of(agent)), RunBody(assistant_id="agent")
    runs.create_stateless(scope, body)
    barrier = Barrier(12)

    def create(_: int) -> bool:
        barrier.wait()
        try:
            runs.create_stateless(scope, body)
        except errors.QueueFull:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(12) as pool:
        created = sum(pool.map(create, range(12)))

    # A run that commits during another request's count is counted twice, so a request may be
    # refused before the limit is reached; none is accepted beyond it.
    assert AgentRun.unscoped.count() == created + 1 <= 5

    monkeypatch.setattr(queue_limits, "MIN_AGE_SECONDS", 0)
    for _ in range(4 - created):
        runs.create_stateless(scope, body)
    with pytest.raises(errors.QueueFull):
        runs.create_stateless(scope, body)
    assert AgentRun.unscoped.count() == 5


def test_the_count_reads_the_index_of_pending_runs(agent):
    thread = ThreadFactory(deployment=agent)
    AgentRunFactory(thread=thread, status="pending")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN " + queue_limits._COUNT, [agent.workspace.organization_id])
        plan = "\n".join(row[0] for row in cursor.fetchall())

    # Both hold pending runs only; where they are equally cheap, either is read.
    assert "agent_run_queued" in plan or "agent_run_waiting" in plan, plan


def test_the_agents_metrics_show_used_and_limit(client, agent, settings):
    settings.MAX_QUEUED_RUNS, settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT = 40, 25
    AgentRunFactory(thread__deployment=agent, status="pending")

    text = client.get(
        f"/agents/{agent.slug}/metrics", headers={"X-Api-Key": key_for(agent.workspace, "write")}
    ).content.decode()

    label = f'{{agent="{agent.slug}"}}'
    assert f"slipway_agent_runs_pending_limit{label} 25" in text
    assert f"slipway_agent_organization_runs_pending{label} 1" in text
    assert f"slipway_agent_organization_runs_pending_limit{label} 40" in text
