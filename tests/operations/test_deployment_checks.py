"""Security checks of an installation behind HTTPS."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from tests.factories.organizations import MembershipFactory, UserFactory, WorkspaceFactory

ROOT = Path(__file__).parent.parent.parent
HTTPS = {"PUBLIC_URL": "https://slipway.example"}


def run_under_https(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **HTTPS},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.integration
def test_deployment_check_has_no_warnings_with_https(tmp_path):
    completed = run_under_https("manage.py", "check", "--deploy", "--fail-level", "WARNING")

    assert (completed.returncode, completed.stderr.count("WARNING")) == (0, 0), completed.stderr


@pytest.mark.integration
def test_cookies_are_limited_to_this_host_and_https():
    completed = run_under_https(
        "-c",
        "import django; from django.conf import settings as s; django.setup();"
        "print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SESSION_COOKIE_SECURE,"
        " s.CSRF_COOKIE_SECURE, s.SESSION_COOKIE_HTTPONLY, s.SECURE_HSTS_SECONDS)",
    )

    assert completed.stdout.split() == [
        "__Host-slipway_session", "__Host-slipway_csrf", "True", "True", "True", "31536000",
    ]  # fmt: skip


PAGES = ("/sign-in", "/healthz", "/admin/login/", "/no-such-page", "/info")


@pytest.mark.django_db
@pytest.mark.parametrize("path", PAGES)
def test_each_response_has_the_security_headers(client, path):
    headers = client.get(path, headers={"Accept": "text/html"}).headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.django_db
def test_no_page_has_inline_scripts_handlers_or_styles(client):
    workspace = WorkspaceFactory()
    owner = MembershipFactory(
        organization=workspace.organization,
        role="owner",
        user=UserFactory(is_staff=True, is_superuser=True),
    ).user
    client.force_login(owner)
    settings = f"/o/{workspace.pk}/settings"

    for path in (
        f"/o/{workspace.pk}/projects", f"{settings}/usage", f"{settings}/audit",
        "/admin/", "/admin/processes/", "/admin/storage/", "/admin/switches/",
        "/admin/organizations/organization/", "/admin/organizations/user/", "/admin/audit/entry/",
        f"/admin/organizations/user/{owner.pk}/change/",
    ):  # fmt: skip
        response = client.get(path)
        page = response.content.decode()

        assert response.status_code == 200, path
        scripts = [source.split(">")[0] for source in page.split("<script")[1:]]
        inline = [
            source
            for source in scripts
            if "src=" not in source and "application/json" not in source
        ]
        assert inline == [], path
        assert " onclick=" not in page, path
        assert " style=" not in page, path


@pytest.mark.django_db
def test_each_changing_form_requires_a_csrf_token(csrf_client):
    workspace = WorkspaceFactory()
    owner = MembershipFactory(
        organization=workspace.organization,
        role="owner",
        user=UserFactory(is_staff=True, is_superuser=True),
    ).user
    csrf_client.force_login(owner)
    settings = f"/o/{workspace.pk}/settings"

    for path in (
        f"{settings}/usage", f"{settings}/audit/export", "/end-impersonation", "/sign-out",
        "/admin/switches/sign_up/", f"/admin/act-as/{UserFactory().pk}/",
    ):  # fmt: skip
        assert csrf_client.post(path).status_code == 403, path


@pytest.fixture
def csrf_client():
    return Client(enforce_csrf_checks=True)


@pytest.mark.django_db
def test_oversized_form_is_rejected(client, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    response = client.post("/sign-in", {"email": "x" * 2000})

    assert response.status_code == 413
