"""Agent paths are not limited by the table, except for requests without a valid key."""

from __future__ import annotations

import pytest
import time_machine

from apps.api_keys.services import clear_cache
from apps.deployments import routes
from apps.organizations.models import Membership
from tests.factories.agent_server import AgentFactory
from tests.factories.api_keys import key_for
from tests.factories.organizations import UserFactory, WorkspaceMembershipFactory
from tests.rate_limits.servers import NOON

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("limits", "stopped_clock")]


@pytest.fixture(autouse=True)
def clear_caches():
    routes.clear_cache()
    clear_cache()
    yield
    routes.clear_cache()


@pytest.fixture
def agent():
    return AgentFactory()


def send_request(client, agent, key: str | None = None, address: str = "192.0.2.1"):
    headers = {} if key is None else {"X-Api-Key": key}
    return client.post(
        f"/agents/{agent.slug}/assistants/count",
        "{}",
        content_type="application/json",
        headers=headers,
        REMOTE_ADDR=address,
    )


def test_valid_key_is_not_counted(client, agent):
    response = send_request(client, agent, key_for(agent.workspace))

    assert response.status_code == 200
    assert "X-RateLimit-Limit" not in response.headers


@time_machine.travel(NOON, tick=False)
def test_missing_and_invalid_keys_count_on_the_address(client, agent):
    guesses = [None, *(f"guess-{number}" for number in range(99))]
    assert {send_request(client, agent, guess).status_code for guess in guesses} == {401}

    rejected = send_request(client, agent, "one-more")

    assert rejected.status_code == 429
    assert rejected.json()["code"] == "rate_limited"
    assert rejected.headers["X-RateLimit-Category"] == "Public (catch-all)"
    assert int(rejected.headers["Retry-After"]) >= 1
    # The limit is shared with the platform API; other addresses and keys are not affected.
    assert client.get("/sessions", REMOTE_ADDR="192.0.2.1").status_code == 429
    assert send_request(client, agent, "guess", address="192.0.2.2").status_code == 401
    assert send_request(client, agent, key_for(agent.workspace)).status_code == 200


def test_deployment_can_have_its_own_limit(client, agent):
    other = AgentFactory(workspace=agent.workspace)
    type(agent).unscoped.filter(pk=agent.pk).update(request_limit=3, request_limit_seconds=60)
    keys = [key_for(agent.workspace) for _ in range(2)]

    statuses = [send_request(client, agent, keys[number % 2]).status_code for number in range(3)]
    rejected = send_request(client, agent, keys[0])

    assert statuses == [200, 200, 200]
    assert rejected.status_code == 429
    assert rejected.json()["detail"].startswith(
        "Rate limit exceeded for Deployment: at most 3 requests in 60 seconds."
    )
    assert rejected.headers["X-RateLimit-Limit"] == "3"
    assert send_request(client, other, keys[0]).status_code == 200


def test_user_with_deploy_permission_sets_the_limit_on_the_settings_page(client, agent):
    member = WorkspaceMembershipFactory(workspace=agent.workspace, role="admin").user
    Membership.objects.get_or_create(
        user=member, organization=agent.workspace.organization, defaults={"role": "member"}
    )
    client.force_login(member)
    page = f"/o/{agent.workspace_id}/deployments/{agent.pk}/settings"
    form = {"branch": agent.branch, "config_path": agent.config_path, "tracing": "on"}

    wrong = client.post(page, form | {"request_limit": "0", "request_limit_seconds": "5"})
    right = client.post(page, form | {"request_limit": "50", "request_limit_seconds": "5"})

    assert (wrong.status_code, right.status_code) == (422, 302)
    agent.refresh_from_db()
    assert (agent.request_limit, agent.request_limit_seconds) == (50, 5)
    client.post(page, form | {"request_limit": "", "request_limit_seconds": "5"})
    agent.refresh_from_db()
    assert agent.request_limit is None


def test_outsider_cannot_set_the_limit(client, agent):
    client.force_login(UserFactory())

    response = client.post(
        f"/o/{agent.workspace_id}/deployments/{agent.pk}/settings", {"request_limit": "1"}
    )

    assert response.status_code == 404
    agent.refresh_from_db()
    assert agent.request_limit is None
