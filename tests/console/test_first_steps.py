"""The first steps in a workspace without traces."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.conf import settings
from django.test import Client

from apps.api_keys.models import ApiKey
from apps.deployments.models import RevisionGraph
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import stored_run

pytestmark = pytest.mark.django_db
FRAGMENT = {"HX-Request": "true"}


@pytest.fixture
def address(workspace):
    return f"/o/{workspace.pk}/first-steps"


@pytest.fixture
def agent(workspace):
    deployment = DeploymentFactory(workspace=workspace, name="sample-agent")
    deployment.active_revision = RevisionFactory(deployment=deployment, status="DEPLOYED")
    deployment.save()
    RevisionGraph.unscoped.create(
        workspace=workspace,
        revision=deployment.active_revision,
        graph_id="agent",
        schemas={},
        drawing={},
    )
    return deployment


def test_project_list_shows_the_first_steps_until_there_is_a_trace(page, workspace, address):
    projects = f"/o/{workspace.pk}/projects"
    assert f'hx-get="{address}"' in page.get(projects).text
    assert f'hx-get="{address}"' not in page.get(projects, {"q": "nothing"}).text

    stored_run(workspace)

    assert f'hx-get="{address}"' not in page.get(projects).text


def test_steps_have_the_real_address_and_the_sample_agent(page, address, agent):
    content = unescape(page.get(address).text)
    fragment = page.get(address, headers=FRAGMENT).text

    assert f"LANGSMITH_ENDPOINT={settings.BASE_URL}/api/v1" in content
    assert f"/agents/{agent.slug}/runs/stream" in content
    assert "X-Api-Key: <your key>" in content
    assert "<html" not in fragment
    assert "Send a trace" in fragment


def test_first_steps_state_whether_a_trace_has_arrived(page, address, workspace):
    arrival = {**FRAGMENT, "HX-Target": "trace-arrival"}
    waiting = page.get(address, headers=arrival).text
    in_page = page.get(address).text

    run_id = stored_run(workspace, name="triage")
    stored_run(WorkspaceFactory(), name="foreign")
    arrived = page.get(address, headers=arrival).text

    assert "Waiting for the first trace" in waiting
    assert f'hx-get="{address}"' in waiting
    assert "<section" not in waiting
    assert waiting.strip() in in_page
    assert "Received" in arrived
    assert f'<a href="/o/{workspace.pk}/r/{run_id}">triage</a>' in arrived
    assert "hx-get" not in arrived
    assert arrived.count("<a ") == 1


def test_a_new_key_is_in_every_command_and_shown_once(page, address, agent, workspace):
    response = page.post(address)

    content = unescape(response.text)
    [key] = ApiKey.objects.all()
    secret = re.search(r"LANGSMITH_API_KEY=(\S+)", content)[1]
    assert response["Cache-Control"].count("no-store")
    assert "<your key>" not in content
    assert f"X-Api-Key: {secret}" in content
    assert key.expires_at is not None
    assert secret not in page.get(address).text
    api = Client(headers={"X-Api-Key": secret})
    assert api.get("/api/v1/sessions").status_code == 200


def test_a_person_without_the_right_or_access_gets_no_key(workspace, address):
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))
    assert outsider.get(address).status_code == 404
    assert outsider.post(address).status_code == 404
    assert Client().post(address).status_code == 302

    organization = workspace.organization
    organization.personal_keys_disabled = True
    organization.save()
    member = signed_in(create_workspace_user(workspace, "editor"))

    assert member.post(address).status_code == 422
    assert not ApiKey.objects.exists()
