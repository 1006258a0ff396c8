"""The admin site has no sign-in of its own: the second factor and the attempt limit apply."""

from __future__ import annotations

import json
import secrets
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.contrib import admin
from django.test import Client

from tests.factories.organizations import UserFactory, signed_in_client

PASSWORD = "a long and odd password"
SIGN_IN_FOR_ADMIN = "/sign-in?next=/admin/"
_CREATE = """
import json
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from apps.organizations.models import User
user = User.objects.create_superuser({email!r}, {password!r})
secret = generate_totp_secret()
TOTP.activate(user, secret)
print(json.dumps(secret))
"""


@pytest.fixture
def operator(live):
    """An operator of the live platform with a second factor: address and shared secret."""
    email = f"operator-{secrets.token_hex(4)}@example.com"
    completed = live.manage("shell", "-c", _CREATE.format(email=email, password=PASSWORD))
    return email, json.loads(completed.stdout.splitlines()[-1])


@pytest.fixture
def browser(live):
    with httpx.Client(base_url=live.url, headers={"Accept": "text/html"}, timeout=60) as client:
        client.get("/sign-in")  # sets the CSRF cookie
        yield client


def post(browser, path, **fields):
    token = browser.cookies["slipway_csrf"]
    return browser.post(path, data={"csrfmiddlewaretoken": token, **fields})


def current_code(secret):
    return format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time()))))


def test_known_password_does_not_open_the_admin_site_without_the_second_factor(browser, operator):
    email, secret = operator

    for field in ("username", "email", "login"):
        attack = post(browser, "/admin/login/?next=/admin/", password=PASSWORD, **{field: email})

        assert attack.headers["Location"] == SIGN_IN_FOR_ADMIN
        assert "slipway_session" not in browser.cookies
        assert browser.get("/admin/").status_code == 302

    step = post(browser, "/sign-in", email=email, password=PASSWORD, next="/admin/")
    assert step.headers["Location"].startswith("/account/second-factor/code")
    assert browser.get("/admin/").status_code == 302

    done = post(browser, step.headers["Location"], code=current_code(secret))
    assert done.headers["Location"] == "/admin/"
    assert browser.get("/admin/").status_code == 200


def test_guessed_passwords_of_an_operator_are_limited(browser, operator):
    email, _ = operator

    through_admin = {
        post(browser, "/admin/login/", username=email, password=f"guess {n}").headers["Location"]
        for n in range(25)
    }
    statuses: list[int] = []
    while 429 not in statuses and len(statuses) < 41:
        attempt = post(browser, "/sign-in", email=email, password=f"guess {len(statuses)}")
        statuses.append(attempt.status_code)

    assert through_admin == {SIGN_IN_FOR_ADMIN}
    # 20 of a window, which may end in between: its clock runs.
    assert statuses == [422] * (len(statuses) - 1) + [429]
    assert 20 <= len(statuses) - 1 < 40


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/admin/switches/", "/admin/switches/"),
        ("https://attacker.example/", "/admin/"),
        ("//attacker.example/", "/admin/"),
        ("javascript:alert(1)", "/admin/"),
    ],
)
def test_admin_sign_in_redirects_within_this_host(method, target, location):
    path = f"/admin/login/?next={target}"

    anonymous = getattr(Client(), method)(path)
    operator = getattr(signed_in_client(UserFactory(is_staff=True)), method)(path)

    sign_in_url = urlsplit(anonymous["Location"])
    assert (sign_in_url.netloc, sign_in_url.path) == ("", "/sign-in")
    assert parse_qs(sign_in_url.query)["next"] == [location]
    assert operator["Location"] == location


@pytest.mark.django_db
def test_signed_in_user_who_is_no_operator_gets_403():
    client = signed_in_client(UserFactory())

    assert client.get("/admin/")["Location"] == "/admin/login/?next=/admin/"
    assert client.get("/admin/login/?next=/admin/").status_code == 403


@pytest.mark.django_db
def test_password_is_changed_on_the_account_page_only():
    client = signed_in_client(UserFactory(is_staff=True))

    response = client.post("/admin/password_change/", {"old_password": "guess"})

    assert response["Location"] == "/account/password"


@pytest.mark.django_db
def test_each_admin_page_redirects_anonymous_callers_to_the_one_sign_in():
    for model in admin.site._registry:
        path = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"

        response = Client().get(path, follow=True)

        assert response.redirect_chain[-1][0] == f"/sign-in?next={path}", path
