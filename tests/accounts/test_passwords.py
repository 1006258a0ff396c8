"""Forgetting and changing passwords."""

import pytest
from django.test import Client

from tests.accounts.conftest import PASSWORD, is_in, link_in, person, sign_in

OTHER = "another long password"

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada():
    return person("ada@example.com")


def test_a_forgotten_password_is_replaced_by_a_link_that_works_once(client, ada, mailoutbox):
    client.post("/account/password/reset", {"email": "Ada@example.com"})
    link = link_in(mailoutbox[0])
    form = client.get(link)["Location"]

    response = client.post(form, {"password1": OTHER, "password2": OTHER})

    assert response["Location"] == "/account/password/reset/done"
    ada.refresh_from_db()
    assert ada.check_password(OTHER)
    assert b"has expired" in Client().get(link).content


def test_nobody_learns_who_has_an_account(client, db, mailoutbox):
    response = client.post("/account/password/reset", {"email": "nobody@example.com"})

    assert response["Location"] == "/account/password/reset/sent"
    assert mailoutbox == []


def test_the_link_alone_lets_nobody_in(client, ada, mailoutbox):
    client.post("/account/password/reset", {"email": ada.email})
    form = client.get(link_in(mailoutbox[0]))["Location"]

    response = client.post(form, {"password1": OTHER, "password2": OTHER})

    assert response.status_code == 302

    assert not is_in(client)


def test_a_change_wants_the_old_one_and_ends_other_sessions(client, ada, settings):
    other = Client()
    sign_in(client, ada.email)
    sign_in(other, ada.email)
    new = {"password1": OTHER, "password2": OTHER}

    refused = client.post("/account/password", {"oldpassword": "wrong", **new})
    client.post("/account/password", {"oldpassword": PASSWORD, **new})

    assert refused.status_code == 422
    assert client.get("/account").status_code == 200
    assert other.get("/account")["Location"] == "/sign-in?next=/account"
