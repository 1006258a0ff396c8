"""Where somebody is signed in."""

import pytest
from allauth.usersessions.models import UserSession
from django.test import Client

from tests.accounts.conftest import person, sign_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada():
    return person("ada@example.com")


def test_each_browser_is_shown_and_can_be_signed_out(client, ada):
    other = Client(headers={"User-Agent": "Another/1.0"})
    sign_in(client, ada.email)
    sign_in(other, ada.email)
    page = client.get("/account/sessions")
    session = UserSession.objects.get(user_agent="Another/1.0")

    response = client.post(f"/account/sessions/{session.pk}/end")

    assert b"Another/1.0" in page.content
    assert response["Location"] == "/account/sessions"
    assert other.get("/account").status_code == 302
    assert client.get("/account").status_code == 200


def test_nobody_ends_the_session_of_somebody_else(client, ada):
    stranger = person("grace@example.com")
    theirs = Client()
    sign_in(theirs, stranger.email)
    sign_in(client, ada.email)
    session = UserSession.objects.get(user=stranger)

    response = client.post(f"/account/sessions/{session.pk}/end")

    assert response.status_code == 404
    assert theirs.get("/account").status_code == 200


def test_all_others_end_at_once(client, ada):
    others = [Client(), Client()]
    for one in (client, *others):
        sign_in(one, ada.email)

    client.post("/account/sessions")

    assert [one.get("/account").status_code for one in (client, *others)] == [200, 302, 302]
