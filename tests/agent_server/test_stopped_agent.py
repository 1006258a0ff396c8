"""Requests to a stopped agent: no credential, key or custom authentication opens a route."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from apps.agent_server import recovery
from apps.agent_server.auth import loopback
from apps.agent_server.messaging.messages import CALLS, RUNS
from apps.agent_server.models import AgentRun, Cron
from apps.agent_server.services import cron_firing
from apps.deployments import routes, services
from tests.factories.agent_server import AgentRunFactory, CronFactory
from tests.factories.api_keys import key_for

STOPPED = (503, "agent_stopped")

ROUTES = [
    ("get", "/info", None),
    ("get", "/metrics", None),
    ("post", "/threads", {}),
    ("get", "/threads/{thread}", None),
    ("get", "/threads/{thread}/state", None),
    ("post", "/threads/{thread}/runs", {"assistant_id": "agent"}),
    ("post", "/runs/stream", {"assistant_id": "agent"}),
    ("post", "/runs/wait", {"assistant_id": "agent"}),
    ("post", "/assistants/search", {}),
    ("post", "/runs/crons", {"assistant_id": "agent", "schedule": "* * * * *"}),
    ("put", "/store/items", {"namespace": ["a"], "key": "k", "value": {}}),
    ("post", "/threads/{thread}/commands", {"id": 1, "method": "agent.getTree"}),
]


@pytest.fixture
def stopped(agent):
    return services.stop_deployment(deployment=agent)


@pytest.fixture
def custom_auth(agent):
    agent.active_revision.config = {"auth": {"path": "./auth.py:auth"}}
    agent.active_revision.facts = {"auth": {"rules": ["*"]}}
    agent.active_revision.save()


@pytest.fixture
def request_all(send, thread):
    """Return a function that requests every route and returns the distinct results."""

    def request(**options):
        responses = [
            send(method, path.format(thread=thread.thread_id), body, **options)
            for method, path, body in ROUTES
        ]
        return {(r.status_code, r.json()["code"]) for r in responses}

    return request


def test_stopped_agent_answers_members_with_its_state(stopped, request_all, send):
    assert request_all() == {STOPPED}
    assert send("get", "/info").json()["detail"] == (
        "This agent is stopped. A member of its workspace can start it."
    )


def test_stopped_agent_authenticates_callers_first(stopped, request_all, outsider_key):
    assert request_all(key=None) == {(401, "unauthenticated")}
    assert request_all(key="lsv2_sk_wrong") == {(401, "unauthenticated")}
    assert request_all(key=outsider_key) == {(404, "agent_not_found")}


@pytest.mark.parametrize("path", ["/ok", "/ok?check_db=1", "", "/docs", "/openapi.json"])
def test_public_routes_of_a_stopped_agent_are_unavailable(stopped, send, path):
    response = send("get", path, key=None)

    assert (response.status_code, response.json()["code"]) == STOPPED


def test_stopped_agent_with_custom_auth_rejects_all_callers(
    custom_auth, stopped, request_all, outsider_key, redis_client
):
    key = key_for(stopped.workspace, "write")
    headers = [
        {"key": None},
        {"key": None, "Authorization": "Bearer user-token"},
        {"key": key},
        {"key": key, "X-Auth-Scheme": "langsmith"},
        {"key": outsider_key, "X-Auth-Scheme": "langsmith"},
    ]

    for options in headers:
        assert request_all(**options) == {STOPPED}

    assert not AgentRun.objects.for_workspace(stopped.workspace_id).exists()
    assert (redis_client.llen(CALLS), redis_client.zcard(RUNS)) == (0, 0)


def test_custom_auth_still_decides_after_a_start(custom_auth, stopped, send, key, redis_client):
    services.start_deployment(deployment=stopped)

    # The platform's key alone opens nothing; the agent's code is asked, which no worker runs here.
    assert routes.find_route(stopped.slug).serving.auth is not None
    assert send("get", "/info", key=key, **{"X-Auth-Scheme": "langsmith"}).status_code == 200


def test_custom_routes_of_a_stopped_agent_are_unavailable(agent, send, redis_client):
    agent.active_revision.config = {"http": {"app": "./app.py:app"}}
    agent.active_revision.facts = {"http": {"routes": [["/hello", "http", ["GET"]]]}}
    agent.active_revision.save()
    services.stop_deployment(deployment=agent)

    response = send("get", "/hello", key=None)

    assert (response.status_code, response.json()["code"]) == STOPPED
    assert redis_client.llen(CALLS) == 0


def test_token_of_a_still_running_graph_is_accepted_while_its_step_ends(agent, stopped, send):
    token = loopback.make_token(agent.pk)

    response = send("post", "/threads/search", {}, key=None, **{loopback.HEADER: token})

    assert (response.status_code, response.json()) == (200, [])


def test_started_agent_serves_at_once(stopped, send):
    assert send("get", "/info").status_code == 503

    services.start_deployment(deployment=stopped)

    assert send("get", "/info").status_code == 200


def test_crons_of_a_stopped_agent_do_not_fire(agent, stopped, django_capture_on_commit_callbacks):
    due_at = timezone.now() - timedelta(seconds=1)
    cron = CronFactory(deployment=agent, schedule="* * * * *", due_at=due_at)

    assert cron_firing.fire_due() == 1

    assert not AgentRun.objects.for_workspace(agent.workspace_id).exists()
    assert Cron.unscoped.get(pk=cron.pk).due_at > timezone.now()


def test_sweeper_leaves_runs_of_a_stopped_agent_until_it_is_started(
    agent, stopped, thread, redis_client
):
    run = AgentRunFactory(thread=thread, status="pending", available_at=timezone.now())
    AgentRun.unscoped.filter(pk=run.pk).update(updated_at=timezone.now() - timedelta(minutes=1))

    assert recovery.find_stalled_threads() == set()
    services.start_deployment(deployment=stopped)
    assert recovery.find_stalled_threads() == {thread.pk}

    recovery.resume_runs(agent.pk)
    assert redis_client.zrange(RUNS, 0, -1) == [thread.pk.bytes]


def test_open_stream_command_after_a_stop_is_refused(agent, stopped, send):
    response = send("post", f"/threads/{uuid4()}/commands", {"id": 1, "method": "run.start"})

    assert (response.status_code, response.json()["code"]) == STOPPED
