"""Password reset and change."""

import pytest
from django.test import Client

from tests.accounts.conftest import PASSWORD, create_user, find_link, is_signed_in, sign_in

NEW_PASSWORD = "another long password"

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada():
    return create_user("ada@example.com")


def test_password_reset_link_works_once(client, ada, mailoutbox):
    client.post("/account/password/reset", {"email": "Ada@example.com"})
    link = find_link(mailoutbox[0])
    form = client.get(link)["Location"]

    response = client.post(form, {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD})

    assert response["Location"] == "/account/password/reset/done"
    ada.refresh_from_db()
    assert ada.check_password(NEW_PASSWORD)
    assert b"has expired" in Client().get(link).content


def test_password_reset_does_not_reveal_whether_an_account_exists(client, db, mailoutbox):
    response = client.post("/account/password/reset", {"email": "unknown@example.com"})

    assert response["Location"] == "/account/password/reset/sent"
    assert mailoutbox == []


def test_password_reset_does_not_sign_in(client, ada, mailoutbox):
    client.post("/account/password/reset", {"email": ada.email})
    form = client.get(find_link(mailoutbox[0]))["Location"]

    response = client.post(form, {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD})

    assert response.status_code == 302

    assert not is_signed_in(client)


def test_password_change_requires_the_old_password_and_ends_other_sessions(client, ada, settings):
    other = Client()
    sign_in(client, ada.email)
    sign_in(other, ada.email)
    new_passwords = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD}

    rejected = client.post("/account/password", {"oldpassword": "wrong", **new_passwords})
    client.post("/account/password", {"oldpassword": PASSWORD, **new_passwords})

    assert rejected.status_code == 422
    assert client.get("/account").status_code == 200
    assert other.get("/account")["Location"] == "/sign-in?next=/account"
