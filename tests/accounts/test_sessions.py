"""Listing and ending sessions."""

import pytest
from allauth.usersessions.models import UserSession
from django.test import Client

from apps.accounts.templatetags.accounts import browser
from tests.accounts.conftest import create_user, sign_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada():
    return create_user("ada@example.com")


def test_sessions_are_listed_and_can_be_ended(client, ada):
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


def test_user_cannot_end_the_session_of_another_user(client, ada):
    other_user = create_user("grace@example.com")
    other_client = Client()
    sign_in(other_client, other_user.email)
    sign_in(client, ada.email)
    session = UserSession.objects.get(user=other_user)

    response = client.post(f"/account/sessions/{session.pk}/end")

    assert response.status_code == 404
    assert other_client.get("/account").status_code == 200


def test_all_other_sessions_can_be_ended_together(client, ada):
    others = [Client(), Client()]
    for session_client in (client, *others):
        sign_in(session_client, ada.email)

    client.post("/account/sessions")

    assert [session_client.get("/account").status_code for session_client in (client, *others)] == [
        200,
        302,
        302,
    ]


@pytest.mark.parametrize(
    ("user_agent", "expected"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36", "Chrome on Windows"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; like Mac OS X) Version/18.0 Safari/604.1", "Safari on iPhone"),
        ("curl/8.5.0", "curl"),
        ("", "Unknown"),
    ],
)
def test_user_agent_is_shown_as_browser_and_system(user_agent, expected):
    assert browser(user_agent) == expected
