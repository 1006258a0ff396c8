"""Pages show running and pending runs with the limits of organization and deployment."""

from __future__ import annotations

import html
import re

import pytest
from django.db import connection

from apps.agent_server.models import AgentRun
from apps.agent_server.services import run_usage
from tests.factories.agent_server import AgentFactory, AgentRunFactory, sibling_workspace
from tests.factories.organizations import MembershipFactory


@pytest.fixture
def limits(settings, monkeypatch):
    """Two workers with ten slots each, of which an organization has 8 and a deployment 4."""
    monkeypatch.setattr(run_usage, "count_workers", lambda: 2)
    settings.AGENT_RUNS_PER_WORKER = 10
    settings.AGENT_RUNS_ORGANIZATION_PERCENT, settings.AGENT_RUNS_DEPLOYMENT_PERCENT = 80, 50
    settings.MAX_QUEUED_RUNS, settings.MAX_QUEUED_RUNS_PER_DEPLOYMENT = 40, 25


@pytest.fixture
def owner_client(client, agent):
    owner = MembershipFactory(organization=agent.workspace.organization, role="owner").user
    client.force_login(owner)
    return client


def add_runs(agent, *, running=0, pending=0):
    for status in ["running"] * running + ["pending"] * pending:
        AgentRunFactory(thread__deployment=agent, status=status)


def read_text(response):
    """The text of a page, with single spaces."""
    text = re.sub(r"<[^>]*>", " ", response.content.decode())
    return " ".join(html.unescape(text).split())


def test_the_usage_page_shows_runs_and_limits(owner_client, agent, limits):
    add_runs(agent, running=2, pending=1)
    AgentRunFactory(thread__deployment=agent, status="success")
    add_runs(AgentFactory(workspace=sibling_workspace(agent)), running=1, pending=3)
    add_runs(AgentFactory(), running=1, pending=1)
    idle = AgentFactory(workspace=agent.workspace)

    page = owner_client.get(f"/o/{agent.workspace.pk}/settings/usage")

    assert [tuple(usage) for usage in page.context["queues"]] == [
        ("the organization", 3, 16, 4, 40),
        (agent.name, 2, 8, 1, 25),
    ]
    text = read_text(page)
    assert "Running 3 of 16 18% Pending 4 of 40 10%" in text
    assert "Running 2 of 8 25% Pending 1 of 25 4%" in text
    assert idle.name not in text


def test_the_deployment_page_shows_its_runs_and_limits(owner_client, agent, limits):
    add_runs(agent, running=2, pending=5)
    add_runs(AgentFactory(workspace=agent.workspace), running=1, pending=1)

    page = owner_client.get(f"/o/{agent.workspace.pk}/deployments/{agent.pk}")

    assert "Running now 2 of 8 Pending 5 of 25" in read_text(page)


def test_no_limit_of_running_runs_is_stated_without_a_worker(
    owner_client, agent, limits, monkeypatch
):
    monkeypatch.setattr(run_usage, "count_workers", lambda: 0)

    page = owner_client.get(f"/o/{agent.workspace.pk}/deployments/{agent.pk}")

    assert "Running now 0 no worker Pending 0 of 25" in read_text(page)


def test_the_number_of_queries_does_not_grow_with_deployments_and_runs(
    agent, limits, django_assert_num_queries
):
    workspace = agent.workspace
    for count in (1, 4):
        for _ in range(count):
            add_runs(AgentFactory(workspace=workspace), running=count, pending=count)
        with django_assert_num_queries(3):
            run_usage.list_usage(workspace.organization_id, workspace.pk)
        with django_assert_num_queries(1):
            run_usage.get_deployment_usage(workspace.pk, agent.pk)


# Partial indexes, which hold no run that has ended; where they are equally cheap, any is read.
INDEXES_OF_OPEN_RUNS = {
    "agent_run_alone",
    "agent_run_leased",
    "agent_run_open",
    "agent_run_queued",
    "agent_run_waiting",
}


@pytest.mark.parametrize(
    "statement",
    [run_usage._COUNT_RUNNING, run_usage._COUNT_OF_DEPLOYMENT],
    ids=["organization", "deployment"],
)
def test_counts_read_indexes_of_open_runs(agent, statement):
    """Of 2,000 runs that have ended none is read."""
    thread = AgentRunFactory(thread__deployment=agent, status="running").thread
    AgentRunFactory(thread__deployment=agent, status="pending")
    ended = AgentRunFactory.build_batch(
        2000, thread=thread, deployment=agent, workspace=agent.workspace, status="success"
    )
    AgentRun.unscoped.bulk_create(ended)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agent_server_agentrun")
        workspace = agent.workspace
        single = [workspace.organization_id]
        key = [workspace.pk, agent.pk]
        parameters = single if statement.count("%s") == 1 else [*key, *key]
        cursor.execute(f"EXPLAIN {statement}", parameters)
        plan = "\n".join(row[0] for row in cursor.fetchall())

    used = set(re.findall(r"agent_run_\w+", plan))
    assert used, plan
    assert used <= INDEXES_OF_OPEN_RUNS, plan
    assert "Seq Scan on agent_server_agentrun" not in plan
