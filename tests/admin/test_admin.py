"""The operators' site: who gets in, what it shows, and that nothing secret can be read in it."""

import pytest
from django.contrib import admin
from django.core.cache import caches
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.audit.models import Entry
from apps.core import feature_switches, secrets
from apps.deployments.services import environment
from tests.factories.agent_server import AgentFactory
from tests.factories.api_keys import key_for
from tests.factories.organizations import (
    MembershipFactory,
    OrganizationFactory,
    UserFactory,
    WorkspaceFactory,
)

pytestmark = pytest.mark.django_db
OPERATOR_PAGES = ("/admin/", "/admin/processes/", "/admin/storage/", "/admin/switches/")


@pytest.fixture(autouse=True)
def _uncached_switches():
    caches["switches"].clear()
    yield
    caches["switches"].clear()


@pytest.fixture
def operator():
    return UserFactory(is_staff=True, is_superuser=True, email="operator@example.com")


@pytest.fixture
def person():
    return MembershipFactory(role="owner").user


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


def list_urls():
    return [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in admin.site._registry
    ]


def test_only_operators_can_open_admin_pages(person):
    for path in [*OPERATOR_PAGES, *list_urls()]:
        assert signed_in(person).get(path).status_code == 302, path
        assert Client().get(path).status_code == 302, path


def test_each_list_and_its_search_opens(operator):
    client = signed_in(operator)

    for path in [*OPERATOR_PAGES, *list_urls()]:
        assert client.get(path).status_code == 200, path
        assert client.get(path, {"q": "x"}).status_code in {200, 302}, path


def test_query_count_of_organization_list_is_constant(operator):
    client = signed_in(operator)
    path = reverse("admin:organizations_organization_changelist")
    client.get(path)
    counts = []
    for _ in range(2):
        for _ in range(8):
            WorkspaceFactory()

        with CaptureQueriesContext(connection) as queries:
            page = client.get(path)

        assert page.status_code == 200
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_no_admin_page_shows_a_secret(operator):
    workspace = WorkspaceFactory()
    key = key_for(workspace)
    agent = AgentFactory(workspace=workspace)
    environment.replace_variables(deployment=agent, variables={"A": "sentinel-value"})
    agent.ingest_secret = secrets.encrypt("sentinel-ingest")
    agent.save(update_fields=["ingest_secret"])
    operator.set_password("sentinel-password")
    operator.save()
    client = signed_in(operator)
    session = client.session.session_key
    known_secrets = [key, "sentinel-value", "sentinel-ingest", operator.password, session]

    page_count = 0
    for model in admin.site._registry:
        url_name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        rows = getattr(model, "unscoped", None) or model._default_manager
        for path in [
            reverse(f"{url_name}_changelist"),
            *(reverse(f"{url_name}_change", args=[row.pk]) for row in rows.all()[:3]),
        ]:
            page = client.get(path).content.decode()
            page_count += 1
            for secret in known_secrets:
                assert secret not in page, path
            assert "argon2" not in page, path
            assert "md5$" not in page, path

    assert page_count > len(admin.site._registry)


def test_models_with_tokens_are_not_registered():
    names = {model.__name__ for model in admin.site._registry}

    assert names & {"SocialToken", "SocialApp", "Authenticator", "Session", "UserSession"} == set()


def test_impersonation_is_visible_recorded_and_can_be_ended(operator, person):
    client = signed_in(operator)

    client.post(f"/admin/impersonate/{person.pk}/")
    page = client.get("/account", follow=False)
    shown = client.get("/no-such-page", headers={"Accept": "text/html"}).content.decode()
    inside = client.get("/admin/")
    ended = client.post("/end-impersonation")
    after = client.get("/admin/")

    assert page.status_code == 403
    assert f"You are impersonating <strong>{person.email}</strong>" in shown
    assert operator.email in shown
    assert inside.status_code in {302, 403}
    assert ended.headers["Location"] == f"/admin/organizations/user/{person.pk}/change/"
    assert after.status_code == 200
    entries = Entry.objects.filter(target_id=str(person.pk)).order_by("at", "id")
    assert [(entry.action, entry.impersonator_label) for entry in entries] == [
        ("impersonation.started", ""),
        ("impersonation.ended", operator.email),
    ]


def test_action_while_impersonating_records_both_users(operator):
    workspace = WorkspaceFactory()
    owner = MembershipFactory(organization=workspace.organization, role="owner").user
    client = signed_in(operator)
    client.post(f"/admin/impersonate/{owner.pk}/")

    client.post(
        f"/o/{workspace.pk}/settings/usage", {"limit_type": "hourly_runs", "limit_value": 1}
    )

    entry = Entry.objects.get(action="usage_limit.set")
    assert (entry.actor_label, entry.impersonator_label) == (owner.email, operator.email)


@pytest.mark.parametrize("kind", ["is_staff", "is_superuser"])
def test_operators_cannot_be_impersonated(operator, kind):
    other = UserFactory(**{kind: True})

    response = signed_in(operator).post(f"/admin/impersonate/{other.pk}/")

    assert response.status_code == 403
    assert Entry.objects.filter(target_id=str(other.pk)).count() == 0


def test_only_superusers_can_impersonate_and_only_active_users(operator, person):
    gone = UserFactory(is_active=False)
    helper = UserFactory(is_staff=True)

    assert signed_in(operator).post(f"/admin/impersonate/{gone.pk}/").status_code == 403
    assert signed_in(helper).post(f"/admin/impersonate/{person.pk}/").status_code == 403
    assert signed_in(person).post(f"/admin/impersonate/{person.pk}/").status_code == 302


def test_impersonation_ends_when_the_operator_loses_permission(operator, person):
    client = signed_in(operator)
    client.post(f"/admin/impersonate/{person.pk}/")
    operator.is_superuser = False
    operator.save()

    client.get("/")

    assert client.session["_auth_user_id"] == str(operator.pk)


def test_only_an_impersonating_session_can_end_impersonation(person):
    assert signed_in(person).post("/end-impersonation").status_code == 404
    assert Client().post("/end-impersonation").status_code == 404


def test_setting_a_switch_changes_the_feature_and_is_audited(operator):
    client = signed_in(operator)

    client.post("/admin/switches/sign_up/", {"on": "1"})
    caches["switches"].clear()
    on = feature_switches.is_enabled("sign_up")
    client.post("/admin/switches/sign_up/", {"on": "0"})
    caches["switches"].clear()

    assert (on, feature_switches.is_enabled("sign_up")) == (True, False)
    entries = Entry.objects.filter(action="switch.changed").order_by("at", "id")
    assert [(e.before, e.after, e.actor_kind) for e in entries] == [
        ({"on": False}, {"on": True}, "operator"),
        ({"on": True}, {"on": False}, "operator"),
    ]


def test_sign_up_switch_opens_and_closes_sign_up(operator):
    client = signed_in(operator)
    visitor = Client()

    client.post("/admin/switches/sign_up/", {"on": "1"})
    caches["switches"].clear()
    opened = visitor.get("/sign-up").content.decode()
    client.post("/admin/switches/sign_up/", {"on": "0"})
    caches["switches"].clear()
    shut = visitor.get("/sign-up").content.decode()

    assert 'name="email"' in opened
    assert 'name="email"' not in shut


def test_impersonation_can_be_switched_off(operator, person):
    client = signed_in(operator)
    client.post("/admin/switches/impersonation/", {"on": "0"})
    caches["switches"].clear()

    assert client.post(f"/admin/impersonate/{person.pk}/").status_code == 403


def test_unknown_switch_is_not_found(operator):
    assert signed_in(operator).post("/admin/switches/nothing/", {"on": "1"}).status_code == 404


def test_user_change_is_recorded_with_old_and_new_values(operator, person):
    client = signed_in(operator)
    path = f"/admin/organizations/user/{person.pk}/change/"
    page = client.get(path)
    form = page.context["adminform"].form
    data = {name: form.initial.get(name) or "" for name in form.fields}
    data |= {"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0", "is_active": ""}

    client.post(path, data)

    person.refresh_from_db()
    assert person.is_active is False
    entry = Entry.objects.get(action="user.updated")
    assert (entry.before, entry.after) == ({"is_active": True}, {"is_active": False})
    assert (entry.actor_kind, entry.actor_label) == ("operator", operator.email)


def test_operators_cannot_change_or_delete_organizations(operator):
    organization = OrganizationFactory()
    url = f"/admin/organizations/organization/{organization.pk}"

    assert signed_in(operator).post(f"{url}/change/", {"name": "other"}).status_code == 403
    assert signed_in(operator).post(f"{url}/delete/", {"post": "yes"}).status_code == 403
    organization.refresh_from_db()
    assert organization.name != "other"
