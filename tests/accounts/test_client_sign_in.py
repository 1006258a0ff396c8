"""Sign-in of command-line clients: the device flow, refresh, and attacks on both."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from apps.accounts import client_sign_in as views
from apps.api_keys.models import ApiKey, ClientSession, DeviceLogin
from apps.api_keys.services import clear_cache, client_sign_in, revoke_key
from apps.audit.models import Entry
from apps.organizations.models import User, Workspace
from tests.factories.organizations import (
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

pytestmark = pytest.mark.django_db
CLI = "langsmith-cli"


@pytest.fixture
def user(workspace) -> User:
    return add_user(workspace, "editor")


def add_user(workspace: Workspace, role: str) -> User:
    user: User = WorkspaceMembershipFactory(workspace=workspace, role=role).user
    return user


def browser_of(user: User) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


def start() -> dict:
    response = Client().post("/oauth/device/code", {"client_id": CLI})
    assert response.status_code == 200, response.content
    return response.json()


def poll(login: dict, client_id: str = CLI):
    return request_token(
        grant_type=views.DEVICE_CODE_GRANT, client_id=client_id, device_code=login["device_code"]
    )


def refresh(token: str, client_id: str = CLI):
    return request_token(grant_type="refresh_token", client_id=client_id, refresh_token=token)


def request_token(**fields: str):
    clear_cache()
    return Client().post("/oauth/token", fields)


def answer(user: User, login: dict, workspace: Workspace, answer: str = "approve", **fields: str):
    body = {
        "user_code": login["user_code"],
        "workspace": str(workspace.pk),
        "scope": "admin",
        "answer": answer,
        **fields,
    }
    return browser_of(user).post("/account/device", body)


def sign_in(user: User, workspace: Workspace, **fields: str) -> dict:
    """Return the tokens of a client that the user approved."""
    login = start()
    assert answer(user, login, workspace, **fields).status_code == 302
    return poll(login).json()


def get_repos(access_token: str):
    clear_cache()
    return Client().get("/repos", headers={"Authorization": f"Bearer {access_token}"})


# The flow


@pytest.mark.parametrize(
    ("path", "issuer"),
    [
        ("/.well-known/oauth-authorization-server", "http://testserver"),
        ("/api/.well-known/oauth-authorization-server", "http://testserver/api"),
        ("/.well-known/oauth-authorization-server/api", "http://testserver/api"),
    ],
)
def test_metadata_names_the_issuer_that_the_client_derived_it_from(path, issuer):
    document = Client().get(path).json()

    assert document["issuer"] == issuer
    assert document["token_endpoint"] == f"{issuer}/oauth/token"
    assert document["device_authorization_endpoint"] == f"{issuer}/oauth/device/code"
    assert {views.DEVICE_CODE_GRANT, "refresh_token"} < {*document["grant_types_supported"]}


def test_token_routes_exist_below_both_issuers():
    for prefix in ("", "/api", "/api/v1"):
        response = Client().post(f"{prefix}/oauth/device/code", {"client_id": CLI})

        assert response.status_code == 200


def test_approved_client_gets_a_token_that_acts_as_the_user(user, workspace):
    login = start()
    assert poll(login).json()["error"] == "authorization_pending"

    page = browser_of(user).get("/account/device", {"user_code": login["user_code"]})
    approved = answer(user, login, workspace)
    with time_machine.travel(timezone.now() + timedelta(seconds=6)):
        tokens = poll(login).json()

        assert login["user_code"] in page.content.decode()
        assert "LangSmith CLI" in page.content.decode()
        assert approved["Location"] == "/account/device/done?answer=approved"
        assert tokens["token_type"] == "Bearer"
        assert tokens["expires_in"] == 3600
        assert get_repos(tokens["access_token"]).status_code == 200
    key = ApiKey.objects.get()
    assert (key.person, key.workspace, key.name) == (user, workspace, "LangSmith CLI")
    entry = Entry.objects.get(action="key.created")
    assert (entry.actor_label, entry.after["owner"]) == (user.email, user.email)


def test_code_is_accepted_without_dash_and_in_lower_case(user):
    typed = start()["user_code"].replace("-", " ").lower()

    page = browser_of(user).post("/account/device", {"user_code": typed})

    assert page.status_code == 200
    assert "Approve" in page.content.decode()


def test_token_has_no_more_rights_than_its_user_and_its_scope(user, workspace):
    reader = sign_in(user, workspace, scope="read")["access_token"]
    viewer = sign_in(add_user(workspace, "viewer"), workspace)["access_token"]
    elsewhere = str(WorkspaceFactory().pk)

    for token in (reader, viewer):
        headers = {"Authorization": f"Bearer {token}"}
        body = {"repo_handle": "a", "is_public": False}
        created = Client().post("/repos", body, "application/json", headers=headers)
        foreign = Client().get("/repos", headers=headers | {"X-Tenant-Id": elsewhere})

        assert get_repos(token).status_code == 200
        assert (created.status_code, created.json()["code"]) == (403, "forbidden")
        assert foreign.status_code == 403


def test_denied_client_gets_access_denied(user, workspace):
    login = start()

    response = answer(user, login, workspace, "deny")

    assert response["Location"] == "/account/device/done?answer=denied"
    assert poll(login).json()["error"] == "access_denied"
    assert not ApiKey.objects.exists()
    assert Entry.objects.get().action == "user.client_sign_in_denied"


def test_anonymous_user_signs_in_first_and_returns_to_the_code():
    response = Client().get("/account/device", {"user_code": "BCDF-GHJK"})

    assert response.status_code == 302
    assert response["Location"].startswith("/sign-in?next=/account/device%3Fuser_code%3DBCDF-GHJK")


# Device codes


def test_device_code_is_exchanged_once(user, workspace):
    login = start()
    answer(user, login, workspace)

    first, second = poll(login), poll(login)

    assert first.status_code == 200
    assert (second.status_code, second.json()["error"]) == (400, "invalid_grant")
    assert not DeviceLogin.objects.exists()


def test_polling_too_often_is_slowed_down():
    login = start()
    with time_machine.travel(timezone.now(), tick=False) as clock:
        outcomes = []
        for pause in (0, 4, 6, 11, 16):
            clock.shift(timedelta(seconds=pause))
            outcomes.append(poll(login).json()["error"])

    pending, slow = "authorization_pending", "slow_down"
    assert outcomes == [pending, slow, slow, slow, slow]
    assert DeviceLogin.objects.get().interval_seconds == 25


def test_codes_expire_after_ten_minutes(user, workspace):
    login = start()
    with time_machine.travel(timezone.now() + timedelta(minutes=10, seconds=1)):
        page = answer(user, login, workspace)

        assert page.status_code == 422
        assert "not valid or has expired" in page.content.decode()
        assert poll(login).json()["error"] == "expired_token"


def test_code_approved_by_one_user_is_unknown_to_another(user, workspace):
    login = start()
    answer(user, login, workspace)

    other = answer(add_user(workspace, "admin"), login, workspace)
    tokens = poll(login).json()

    assert other.status_code == 422
    assert ApiKey.objects.get().person == user
    assert get_repos(tokens["access_token"]).status_code == 200


def test_user_cannot_approve_for_a_workspace_of_others(user, workspace):
    login = start()

    response = answer(user, login, WorkspaceFactory())

    assert response.status_code == 422
    assert poll(login).json()["error"] == "authorization_pending"
    assert not ApiKey.objects.exists()


def test_organization_without_personal_keys_has_no_client_sign_in(user, workspace):
    workspace.organization.personal_keys_disabled = True
    workspace.organization.save()

    response = answer(user, start(), workspace)

    assert response.status_code == 422
    assert "Personal keys are disabled" in response.content.decode()


def test_guesses_of_codes_are_limited(user, monkeypatch):
    monkeypatch.setattr(views, "MAX_CODES_PER_USER", (3, 600))
    browser = browser_of(user)

    statuses = [
        browser.post("/account/device", {"user_code": f"BBBB-BBB{letter}"}).status_code
        for letter in "BCDFG"
    ]

    assert statuses == [422, 422, 422, 429, 429]


def test_codes_have_enough_entropy_and_are_not_stored():
    login = start()
    row = DeviceLogin.objects.get()

    code = login["user_code"].replace("-", "")
    assert len(code) == 8
    assert set(code) <= set(client_sign_in.CODE_ALPHABET)
    assert len(login["device_code"]) >= 43
    stored = repr(vars(row))
    assert code not in stored
    assert login["device_code"] not in stored


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"client_id": "other"}, 401, "invalid_client"),
        ({}, 400, "invalid_request"),
        ({"client_id": [CLI, CLI]}, 400, "invalid_request"),
        ({"client_id": CLI, "resource": "https://elsewhere.example"}, 400, "invalid_target"),
        ({"client_id": CLI, "resource": "https://elsewhere.example/mcp"}, 400, "invalid_target"),
        ({"client_id": CLI, "resource": "http://testserver/agents/a/b"}, 400, "invalid_target"),
        ({"client_id": CLI, "resource": "http://["}, 400, "invalid_target"),
    ],
)
def test_malformed_start_is_refused_with_the_oauth_error(fields, status, error):
    response = Client().post("/oauth/device/code", fields)

    body = response.json()
    assert (response.status_code, body["error"], body["code"]) == (status, error, error)
    assert body["error_description"] == body["detail"]
    assert not DeviceLogin.objects.exists()


def test_unknown_grant_types_and_codes_are_refused(user, workspace):
    login = start()
    answer(user, login, workspace)

    assert request_token(grant_type="password", client_id=CLI).json()["error"] == (
        "unsupported_grant_type"
    )
    assert poll({"device_code": "guessed"}).json()["error"] == "invalid_grant"
    assert poll(login, client_id="other").json()["error"] == "invalid_client"
    assert poll({"device_code": login["user_code"]}).json()["error"] == "invalid_grant"


def test_script_of_another_site_cannot_approve(user, workspace):
    """The page requires a CSRF token, as all forms do."""
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    login = start()

    response = browser.post(
        "/account/device",
        {
            "user_code": login["user_code"],
            "workspace": str(workspace.pk),
            "scope": "admin",
            "answer": "approve",
        },
    )

    assert response.status_code == 403
    assert not ApiKey.objects.exists()


# Refresh and the end of a session


def test_refresh_replaces_both_tokens(user, workspace):
    first = sign_in(user, workspace)
    with time_machine.travel(timezone.now() + timedelta(minutes=59)):
        second = refresh(first["refresh_token"]).json()

        assert second["access_token"] != first["access_token"]
        assert get_repos(second["access_token"]).status_code == 200
        # Requests in flight and other processes still have the old one.
        assert get_repos(first["access_token"]).status_code == 200
    with time_machine.travel(timezone.now() + timedelta(minutes=61)):
        assert get_repos(first["access_token"]).status_code == 401
        assert get_repos(second["access_token"]).status_code == 200
    assert ApiKey.objects.count() == 1


def test_spent_refresh_token_ends_the_session(user, workspace):
    first = sign_in(user, workspace)
    second = refresh(first["refresh_token"]).json()

    with time_machine.travel(timezone.now() + timedelta(minutes=1)):
        reused = refresh(first["refresh_token"])

        assert (reused.status_code, reused.json()["error"]) == (400, "invalid_grant")
        assert refresh(second["refresh_token"]).json()["error"] == "invalid_grant"
        assert get_repos(second["access_token"]).status_code == 401
    assert Entry.objects.filter(action="key.revoked").count() == 1


def test_refresh_is_repeated_when_its_response_was_lost(user, workspace):
    first = sign_in(user, workspace)
    lost = refresh(first["refresh_token"]).json()

    repeated = refresh(first["refresh_token"]).json()

    assert get_repos(repeated["access_token"]).status_code == 200
    assert refresh(lost["refresh_token"]).json()["error"] == "invalid_grant"
    assert refresh(repeated["refresh_token"]).status_code == 200


def test_session_ends_after_ninety_days_however_often_it_is_refreshed(user, workspace):
    token = sign_in(user, workspace)["refresh_token"]
    begin = timezone.now()
    with time_machine.travel(begin + timedelta(days=89, hours=23, minutes=30)):
        tokens = refresh(token).json()

        assert 1700 < tokens["expires_in"] <= 1800
    with time_machine.travel(begin + timedelta(days=90, minutes=1)):
        assert refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
        assert get_repos(tokens["access_token"]).status_code == 401


def test_session_is_no_longer_than_the_organization_allows_keys(user, workspace):
    workspace.organization.max_key_days = 7
    workspace.organization.save()

    sign_in(user, workspace)

    lifetime = ClientSession.objects.get().expires_at - timezone.now()
    assert timedelta(days=6, hours=23) < lifetime <= timedelta(days=7)


def test_revoked_key_ends_access_and_refresh(user, workspace):
    tokens = sign_in(user, workspace)
    page = browser_of(user).get(f"/o/{workspace.pk}/settings/keys/personal").content.decode()

    revoke_key(key=ApiKey.objects.get())

    assert "LangSmith CLI" in page
    assert get_repos(tokens["access_token"]).status_code == 401
    assert refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_deactivated_and_removed_users_cannot_refresh(user, workspace):
    tokens = sign_in(user, workspace)
    user.is_active = False
    user.save()

    assert refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert get_repos(tokens["access_token"]).status_code == 401


def test_tokens_are_not_stored(user, workspace):
    tokens = sign_in(user, workspace)

    stored = repr([vars(ApiKey.objects.get()), vars(ClientSession.objects.get())])

    assert tokens["access_token"] not in stored
    assert tokens["refresh_token"] not in stored
    assert tokens["access_token"].startswith(ApiKey.objects.get().prefix)


def test_refresh_token_is_no_key(user, workspace):
    assert get_repos(sign_in(user, workspace)["refresh_token"]).status_code == 401


def test_client_renews_its_key_by_itself(user, workspace):
    sign_in(user, workspace)
    key = ApiKey.objects.get()

    response = browser_of(user).post(
        f"/o/{workspace.pk}/settings/keys/{key.pk}/rotate", {"overlap": "0"}
    )

    assert response.status_code == 422
    assert ApiKey.objects.get().digest == key.digest


def test_sweeper_revokes_ended_sessions_and_deletes_expired_logins(user, workspace):
    sign_in(user, workspace)
    abandoned = start()
    answer(user, abandoned, workspace)
    start()

    with time_machine.travel(timezone.now() + timedelta(minutes=11)):
        client_sign_in.end_sessions()

        assert not DeviceLogin.objects.exists()
        assert ApiKey.objects.unrevoked().count() == 1
    with time_machine.travel(timezone.now() + timedelta(days=91)):
        client_sign_in.end_sessions()

    assert not ApiKey.objects.unrevoked().exists()


def test_impersonating_operator_cannot_approve(user, workspace):
    browser = browser_of(UserFactory(is_staff=True, is_superuser=True))
    assert browser.post(f"/admin/impersonate/{user.pk}/").status_code == 302
    body = {"workspace": str(workspace.pk), "scope": "admin", "answer": "approve"}

    response = browser.post("/account/device", body | {"user_code": start()["user_code"]})

    assert response.status_code == 403
    assert not ApiKey.objects.exists()
