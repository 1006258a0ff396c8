"""Account actions in the audit logs of all organizations of the user."""

import pytest
from allauth.usersessions.models import UserSession
from django.test import Client

from apps.audit.models import Entry
from tests.accounts.conftest import PASSWORD, create_user, is_signed_in, sign_in
from tests.accounts.test_second_factor import totp_code
from tests.factories.organizations import MembershipFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada():
    ada = create_user("ada@example.com")
    for _ in range(2):
        MembershipFactory(user=ada)
    return ada


def list_entries(ada) -> list[tuple[str, object, object]]:
    """Return the entries about the user, which are equal in both organizations."""
    logs = []
    for membership in ada.memberships.all():
        entries = Entry.objects.of_organization(membership.organization_id).order_by("at", "id")
        logs.append([(e.action, e.before, e.after) for e in entries if e.target_name == ada.email])
    assert logs[0] == logs[1]
    return logs[0]


def test_sign_up_sign_in_failed_sign_in_and_sign_out_are_recorded(client, ada):
    sign_in(client, ada.email, password="wrong")
    sign_in(client, ada.email)
    client.post("/sign-out")

    assert list_entries(ada) == [
        ("user.sign_in_failed", None, {"method": "password"}),
        ("user.signed_in", None, {"method": "password"}),
        ("user.signed_out", None, None),
    ]


def test_failed_sign_in_with_an_unknown_address_does_not_record_it(client, db):
    sign_in(client, "my password in the wrong field", password="x")
    sign_in(client, "unknown@example.com", password="x")

    entries = Entry.objects.filter(action="user.sign_in_failed")
    assert [(e.organization_id, e.target_name) for e in entries] == [(None, "")]


def test_adding_failing_and_removing_a_second_factor_are_recorded(
    client, ada, django_capture_on_commit_callbacks
):
    sign_in(client, ada.email)
    client.post(client.get("/account/second-factor/on")["Location"], {"password": PASSWORD})
    secret = client.get("/account/second-factor/on").context["form"].secret
    with django_capture_on_commit_callbacks(execute=True):
        client.post("/account/second-factor/on", {"code": totp_code(secret)})
    other = Client()
    sign_in(other, ada.email)
    other.post("/account/second-factor/code", {"code": "000000"})
    client.post("/account/second-factor/off")

    actions = [(action, before or after) for action, before, after in list_entries(ada)]
    assert actions == [
        ("user.signed_in", {"method": "password"}),
        ("user.second_factor_added", {"method": "totp"}),
        ("user.second_factor_added", {"method": "recovery_codes"}),
        ("user.sign_in_failed", {"method": "second factor"}),
        ("user.second_factor_removed", {"method": "totp"}),
        ("user.second_factor_removed", {"method": "recovery_codes"}),
    ]
    assert secret not in repr(list_entries(ada))


def test_changes_of_password_name_and_sessions_are_recorded(client, ada):
    other = Client()
    sign_in(other, ada.email)
    sign_in(client, ada.email)
    session = UserSession.objects.get(session_key=other.session.session_key)
    initial_count = len(list_entries(ada))

    client.post(f"/account/sessions/{session.pk}/end")
    client.post("/account/sessions")
    client.post("/account", {"name": "Ada"})
    client.post("/account", {"name": "Ada"})
    new_password = "another long and odd password"
    body = {"oldpassword": PASSWORD, "password1": new_password, "password2": new_password}
    client.post("/account/password", body)

    assert list_entries(ada)[initial_count:] == [
        ("user.session_revoked", {"ip": "127.0.0.1"}, None),
        ("user.session_revoked", None, None),
        ("user.updated", {"name": ""}, {"name": "Ada"}),
        ("user.password_changed", None, None),
    ]
    assert new_password not in repr(list_entries(ada))
    assert not is_signed_in(other)
