"""The first run in a workspace: snippets, keys, the line that waits, and the documentation."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from html import unescape

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from apps.api_keys.models import ApiKey
from apps.console import documentation
from apps.deployments.models import Deployment, RevisionGraph
from apps.ingest.services import ingest_log
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import stored_run

pytestmark = pytest.mark.django_db
FRAGMENT = {"HX-Request": "true"}


@pytest.fixture
def address(workspace):
    return f"/o/{workspace.pk}/start"


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


def test_empty_project_list_leads_to_the_first_run(page, workspace, address):
    projects = f"/o/{workspace.pk}/projects"
    assert f'href="{address}"' in page.get(projects).text
    assert f'href="{address}"' not in page.get(projects, {"q": "nothing"}).text

    stored_run(workspace)

    assert f'href="{address}"' not in page.get(projects).text


def test_short_address_leads_to_the_workspace_of_the_user(page, workspace, address):
    assert page.get("/start")["Location"] == address
    assert Client().get("/start")["Location"] == "/sign-in?next=%2Fstart"


def test_snippets_have_the_real_address_project_and_sample_agent(page, address, agent):
    content = unescape(page.get(address, {"project": 'my "$(agent)"'}).text)
    text = re.sub(r"<[^<>]*data-slot[^<>]*>|</span>", "", content)

    assert f"LANGSMITH_ENDPOINT={settings.BASE_URL}/api/v1" in text
    assert 'export LANGSMITH_PROJECT="my agent"' in text
    assert f"Read {settings.BASE_URL}/llms.txt first.\n\n1. Put LANGSMITH_TRACING=true" in text
    assert '--data-urlencode "name=my agent"' in text
    assert f"/agents/{agent.slug}/runs/stream" in text
    assert "X-Api-Key: <your key>" in text
    assert "LANGSMITH_RUNS_ENDPOINTS='[" in text
    assert f'slipway {settings.BASE_URL}/mcp --header "x-api-key: <your key>"' in text
    assert not ApiKey.objects.exists()


def test_sample_agent_is_deployed_from_the_page_once(page, workspace, address):
    assert "Deploy the sample agent" in page.get(address).text

    first = page.post(f"{address}/agent")
    second = page.post(f"{address}/agent")

    deployment = Deployment.objects.for_workspace(workspace).get()
    assert first["Location"] == second["Location"]
    assert first["Location"].endswith(f"/deployments/{deployment.pk}")
    assert (deployment.name, deployment.branch) == ("sample-agent", "main")
    assert deployment.revisions.count() == 1
    content = page.get(address).text
    assert "is not served yet" in content
    assert "Deploy the sample agent" not in content


def test_only_who_may_deploy_gets_the_sample_agent(workspace, address):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    assert "Deploy the sample agent" not in viewer.get(address).text
    assert viewer.post(f"{address}/agent").status_code == 403
    assert not Deployment.objects.for_workspace(workspace).exists()


def test_page_waits_for_a_run_that_starts_after_it_was_opened(page, address, workspace):
    arrival = {**FRAGMENT, "HX-Target": "trace-arrival"}
    first = page.get(address).text
    stored_run(workspace, name="triage")
    stored_run(WorkspaceFactory(), name="foreign")
    now = timezone.now()
    stored_run(workspace, name="future", start=now + timedelta(seconds=30))

    def line(since):
        return page.get(address, {"since": since.isoformat()}, headers=arrival).text

    arrived = line(now)
    waiting = line(now + timedelta(minutes=1))

    assert "Waiting for your first run" in first
    assert "data-arrived" in arrived
    assert "<strong>future</strong>" in arrived
    assert "hx-get" not in arrived
    assert "Waiting for your next run" in waiting
    assert "Newest: future" in waiting
    assert "<section" not in waiting
    assert "foreign" not in arrived + waiting


def test_rejected_runs_are_named_while_the_page_waits(page, address, workspace):
    ingest_log.count_rejections(workspace.pk, Counter({(None, "run_invalid"): 2}))
    ingest_log.count_rejections(WorkspaceFactory().pk, Counter({(None, "foreign_reason"): 9}))

    text = page.get(address).text

    assert "2 runs rejected in the last hour: run invalid." in text
    assert "foreign reason" not in text


def test_key_is_made_once_for_a_script_and_may_only_send_and_read(page, address, workspace):
    headers = {"Accept": "application/json"}
    response = page.post(address, {"purpose": "trace"}, headers=headers)
    secret = response.json()["key"]
    again = page.post(address, {"purpose": "trace"}, headers=headers).json()["key"]

    [key] = ApiKey.objects.all()
    assert "no-store" in response["Cache-Control"]
    assert key.name.startswith("First run, ")
    assert (key.workspace_id, sorted(key.scopes)) == (workspace.pk, ["ingest", "read"])
    assert timedelta(days=6) < key.expires_at - timezone.now() <= timedelta(days=7)
    assert secret not in page.get(address).text
    for value in (secret, again):
        api = Client(headers={"X-Api-Key": value})
        assert api.get("/api/v1/sessions").status_code == 200
        assert api.post("/api/v1/datasets", {"name": "x"}).status_code == 403


def test_key_of_an_agent_call_is_another_one(page, address, agent):
    response = page.post(address, {"purpose": "call"})
    content = unescape(response.text)

    [key] = ApiKey.objects.all()
    assert key.scopes == ["write"]
    assert re.search(r'X-Api-Key: <span data-slot="key">slip_', content)
    assert page.post(address, {"purpose": "admin"}).status_code == 422
    assert ApiKey.objects.count() == 1


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
    json_response = member.post(address, headers={"Accept": "application/json"})
    assert json_response.status_code == 422
    assert json_response.json()["detail"]
    assert not ApiKey.objects.exists()


def test_documentation_is_public_and_has_the_address_of_the_installation(settings):
    settings.BASE_URL = "https://traces.example"
    overview = Client().get("/llms.txt")
    links = re.findall(r"\]\((\S+)\)", overview.text)
    texts = [Client().get(link.removeprefix(settings.BASE_URL)).text for link in links]
    skill = Client().get("/SKILL.md")

    assert overview["Content-Type"] == "text/plain; charset=utf-8"
    assert len(links) == len(documentation.PAGES)
    assert all(text.startswith("# ") for text in texts)
    assert skill.text.startswith("---\nname: slipway\n")
    assert "https://traces.example/api/v1" in skill.text
    assert documentation.PLACEHOLDER not in skill.text + "".join(texts)
    for name in ("settings", "operations", "../README", "nothing"):
        assert Client().get(f"/docs/{name}.md").status_code == 404


def test_paths_of_served_pages_lead_to_served_pages():
    for name in documentation.PAGES:
        text = (documentation.DOCS / f"{name}.md").read_text()
        for target in re.findall(r"\]\(([\w-]+)\.md", text):
            assert target in documentation.PAGES, f"{name}.md links to {target}.md"
