import re

import pytest
from django.test import Client
from django.urls import URLPattern, get_resolver

from apps.console.sections import SECTIONS
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

pytestmark = pytest.mark.django_db


def test_anonymous_request_redirects_to_sign_in_and_htmx_navigates_the_page(workspace):
    address = f"/o/{workspace.pk}/projects"
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{address}?q=a"}

    fragment = Client().get(f"/o/{workspace.pk}/search", headers=headers)

    assert Client().get(address).status_code == 302
    assert fragment["HX-Redirect"] == f"/sign-in?next=%2Fo%2F{workspace.pk}%2Fprojects%3Fq%3Da"


def test_outsider_gets_404_with_their_own_navigation(workspace, page, editor):
    foreign = WorkspaceFactory(name="Secret dock")
    page.get(f"/o/{workspace.pk}/projects")

    response = page.get(f"/o/{foreign.pk}/projects")

    assert response.status_code == 404
    assert b"Page not found" in response.content
    assert b"Secret dock" not in response.content
    assert f"/o/{workspace.pk}/deployments" in response.content.decode()


def test_member_without_permission_gets_403_and_no_link(workspace):
    annotator = signed_in(create_workspace_user(workspace, "annotator"))

    projects = annotator.get(f"/o/{workspace.pk}/projects")
    rejected = annotator.get(f"/o/{workspace.pk}/deployments")

    assert projects.status_code == 200
    assert f"/o/{workspace.pk}/deployments" not in projects.content.decode()
    assert rejected.status_code == 403


def test_home_redirects_to_the_workspace_last_used(page, editor, workspace):
    other = WorkspaceFactory()
    WorkspaceMembershipFactory(workspace=other, user=editor)
    assert page.get("/")["Location"] == f"/o/{workspace.pk}/start"

    page.get(f"/o/{other.pk}/projects")

    assert page.get("/")["Location"] == f"/o/{other.pk}/start"


def test_workspace_switcher_lists_only_accessible_workspaces(workspace):
    owner = UserFactory()
    MembershipFactory(organization=workspace.organization, user=owner, role="owner")
    sibling = WorkspaceFactory(organization=workspace.organization, name="Harbour")
    foreign = WorkspaceFactory(name="Foreign")

    content = signed_in(owner).get(f"/o/{workspace.pk}/projects").content.decode()

    assert f'href="/o/{sibling.pk}"' in content
    assert str(foreign.pk) not in content


def test_user_without_a_workspace_sees_how_to_be_invited():
    newcomer = UserFactory(email="new@example.com")

    response = signed_in(newcomer).get("/", follow=True)

    assert response.status_code == 200
    assert b"No pending invitations" in response.content
    assert b"Invitations sent to new@example.com are listed here" in response.content


def test_theme_cookie_sets_the_theme_of_the_html_element(page, workspace):
    page.cookies["slipway_theme"] = "dark"
    page.cookies["slipway_nav"] = '"><script>'

    content = page.get(f"/o/{workspace.pk}/projects").content.decode()

    html = re.search(r"<html [^>]*>", content).group()
    assert html.split() == ["<html", 'lang="en"', 'data-time-zone="UTC"', 'data-theme="dark">']


def test_page_has_no_inline_style_or_script_and_a_strict_csp(page, workspace):
    response = page.get(f"/o/{workspace.pk}/deployments/new")
    content = response.content.decode()

    assert " style=" not in content
    assert re.findall(r"\son\w+=", content) == []
    assert re.findall(r"<script(?![^>]*(?:src=|application/json))", content) == []
    policy = response["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_urls_that_command_line_clients_print_redirect_to_pages(page, workspace):
    base = f"/o/{workspace.pk}"
    deployment_id = "0197f4a8-0000-7000-8000-000000000000"

    assert page.get(f"{base}/host/deployments")["Location"] == f"{base}/deployments"
    assert page.get("/host/deployments")["Location"] == f"{base}/deployments"
    assert page.get(f"{base}/host/deployments/{deployment_id}")["Location"] == (
        f"{base}/deployments/{deployment_id}"
    )


def test_server_error_page_shows_no_details(page, workspace, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("apps.tracing.pages.projects.load_project_list", broken)
    page.raise_request_exception = False

    response = page.get(f"/o/{workspace.pk}/projects")

    assert response.status_code == 500
    assert b"Internal server error" in response.content
    assert b"secret detail" not in response.content


NO_PAGES = {
    "workspace-home", "palette-search", "host-deployments", "host-deployment",
    "run-feedback", "feedback-delete",
}  # fmt: skip
"""URLs of a workspace that redirect, or return a fragment or a file."""


def test_each_page_of_a_workspace_belongs_to_a_section(db):
    prefixes = {prefix for section in SECTIONS for prefix in section.url_name_prefixes}

    names = _names(get_resolver())

    assert {name for name in names if name.partition("-")[0] not in prefixes} == NO_PAGES


def _names(resolver, before=""):
    for pattern in resolver.url_patterns:
        address = before + str(pattern.pattern)
        if not isinstance(pattern, URLPattern):
            yield from _names(pattern, address)
        elif pattern.name and address.startswith("o/<uuid:workspace_id>"):
            yield pattern.name
