import pytest
from django.test import Client

from apps.accounts import sign_in
from tests.console.conftest import PASSWORD
from tests.factories.organizations import UserFactory

pytestmark = pytest.mark.django_db


def sign_in_with(client, email, password, **fields):
    return client.post("/sign-in", {"email": email, "password": password, **fields})


def test_the_page_says_what_the_product_is(client):
    content = client.get("/sign-in").text

    assert "Slipway traces, evaluates, deploys and serves AI agents" in content


def test_correct_password_redirects_to_the_home_page(client, editor, workspace):
    response = sign_in_with(client, editor.email.upper(), PASSWORD)

    assert response.status_code == 302
    assert response["Location"] == "/"
    assert client.get("/")["Location"] == f"/o/{workspace.pk}/start"


def test_sign_in_redirects_to_the_requested_page(client, editor, workspace):
    requested = f"/o/{workspace.pk}/deployments?x=1"

    anonymous = client.get(requested)
    response = sign_in_with(client, editor.email, PASSWORD, next=requested)

    assert anonymous["Location"] == f"/sign-in?next=%2Fo%2F{workspace.pk}%2Fdeployments%3Fx%3D1"
    assert response["Location"] == requested


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:1"])
def test_sign_in_does_not_redirect_to_another_site(client, editor, elsewhere):
    assert sign_in_with(client, editor.email, PASSWORD, next=elsewhere)["Location"] == "/"


@pytest.mark.parametrize(
    ("email", "password"), [("editor", "wrong"), ("unknown@example.com", PASSWORD)]
)
def test_wrong_credentials_are_422_and_do_not_sign_in(client, editor, email, password):
    email = editor.email if email == "editor" else email

    response = sign_in_with(client, email, password)

    assert response.status_code == 422
    assert b"Email and password do not match." in response.content
    assert client.get("/").status_code == 302
    assert client.get("/")["Location"] == "/sign-in"


def test_inactive_user_cannot_sign_in(client, editor):
    editor.is_active = False
    editor.save()

    assert sign_in_with(client, editor.email, PASSWORD).status_code == 422


def test_too_many_attempts_are_429_even_with_the_correct_password(
    client, editor, monkeypatch, stopped_clock
):
    monkeypatch.setattr(sign_in, "MAX_PER_EMAIL", (2, 600))
    sign_in_with(client, editor.email, "wrong")
    sign_in_with(client, editor.email.upper(), "wrong")

    response = sign_in_with(client, editor.email, PASSWORD)

    assert response.status_code == 429
    assert b"Too many attempts." in response.content
    assert client.get("/")["Location"] == "/sign-in"
    assert sign_in_with(client, UserFactory().email, "wrong").status_code == 422


def test_client_address_has_a_limit_over_all_emails(client, monkeypatch, stopped_clock):
    monkeypatch.setattr(sign_in, "MAX_PER_ADDRESS", (1, 600))
    sign_in_with(client, "a@example.com", "wrong")

    assert sign_in_with(client, "b@example.com", "wrong").status_code == 429


def test_form_without_csrf_token_is_rejected(editor):
    strict = Client(enforce_csrf_checks=True, headers={"Accept": "text/html"})

    response = sign_in_with(strict, editor.email, PASSWORD)

    assert response.status_code == 403
    assert b"form has expired" in response.content


def test_sign_out_requires_a_post_and_ends_the_session(page):
    assert page.get("/sign-out").status_code == 405

    page.post("/sign-out")

    assert page.get("/")["Location"] == "/sign-in"
