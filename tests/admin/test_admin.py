"""The operators' site: who gets in, what it shows, and that nothing secret can be read in it."""

import pytest
from django.contrib import admin
from django.core.cache import caches
from django.test import Client
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
OWN = ("/admin/", "/admin/processes/", "/admin/storage/", "/admin/switches/")


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


def as_(user):
    client = Client()
    client.force_login(user)
    return client


def lists():
    return [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in admin.site._registry
    ]


def test_who_is_no_operator_sees_no_page_of_it(person):
    for path in [*OWN, *lists()]:
        assert as_(person).get(path).status_code == 302, path
        assert Client().get(path).status_code == 302, path


def test_every_list_opens_and_its_search_too(operator):
    client = as_(operator)

    for path in [*OWN, *lists()]:
        assert client.get(path).status_code == 200, path
        assert client.get(path, {"q": "x"}).status_code in {200, 302}, path


def test_organizations_show_use_and_health_at_a_steady_price(
    operator, django_assert_max_num_queries
):
    client = as_(operator)
    path = reverse("admin:organizations_organization_changelist")
    for _ in range(2):
        for _ in range(8):
            WorkspaceFactory()

        with django_assert_max_num_queries(9):
            page = client.get(path)

        assert page.status_code == 200


def test_nothing_secret_is_readable_anywhere(operator):
    workspace = WorkspaceFactory()
    key = key_for(workspace)
    agent = AgentFactory(workspace=workspace)
    environment.replace_variables(deployment=agent, variables={"A": "sentinel-value"})
    agent.ingest_secret = secrets.encrypt("sentinel-ingest")
    agent.save(update_fields=["ingest_secret"])
    operator.set_password("sentinel-password")
    operator.save()
    client = as_(operator)
    session = client.session.session_key
    known = [key, "sentinel-value", "sentinel-ingest", operator.password, session]

    seen = 0
    for model in admin.site._registry:
        place = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        rows = getattr(model, "unscoped", None) or model._default_manager
        for path in [
            reverse(f"{place}_changelist"),
            *(reverse(f"{place}_change", args=[row.pk]) for row in rows.all()[:3]),
        ]:
            page = client.get(path).content.decode()
            seen += 1
            for secret in known:
                assert secret not in page, path
            assert "argon2" not in page, path

    assert seen > len(admin.site._registry)


def test_models_that_hold_tokens_are_not_there():
    names = {model.__name__ for model in admin.site._registry}

    assert names & {"SocialToken", "SocialApp", "Authenticator", "Session", "UserSession"} == set()


def test_an_operator_acts_as_a_person_visibly_and_back(operator, person):
    client = as_(operator)

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
    told = Entry.objects.filter(target_id=str(person.pk)).order_by("at", "id")
    assert [(entry.action, entry.impersonator_label) for entry in told] == [
        ("impersonation.started", ""),
        ("impersonation.ended", operator.email),
    ]


def test_what_is_done_meanwhile_is_both_names(operator):
    workspace = WorkspaceFactory()
    owner = MembershipFactory(organization=workspace.organization, role="owner").user
    client = as_(operator)
    client.post(f"/admin/impersonate/{owner.pk}/")

    client.post(
        f"/o/{workspace.pk}/settings/usage", {"limit_type": "hourly_runs", "limit_value": 1}
    )

    entry = Entry.objects.get(action="usage_limit.set")
    assert (entry.actor_label, entry.impersonator_label) == (owner.email, operator.email)


@pytest.mark.parametrize("kind", ["is_staff", "is_superuser"])
def test_nobody_acts_as_an_operator(operator, kind):
    other = UserFactory(**{kind: True})

    response = as_(operator).post(f"/admin/impersonate/{other.pk}/")

    assert response.status_code == 403
    assert Entry.objects.filter(target_id=str(other.pk)).count() == 0


def test_nobody_acts_as_somebody_who_is_gone_and_only_superusers_act(operator, person):
    gone = UserFactory(is_active=False)
    helper = UserFactory(is_staff=True)

    assert as_(operator).post(f"/admin/impersonate/{gone.pk}/").status_code == 403
    assert as_(helper).post(f"/admin/impersonate/{person.pk}/").status_code == 403
    assert as_(person).post(f"/admin/impersonate/{person.pk}/").status_code == 302


def test_impersonation_ends_with_the_operators_rights(operator, person):
    client = as_(operator)
    client.post(f"/admin/impersonate/{person.pk}/")
    operator.is_superuser = False
    operator.save()

    client.get("/")

    assert client.session["_auth_user_id"] == str(operator.pk)


def test_nobody_but_an_impersonator_can_end_one(person):
    assert as_(person).post("/end-impersonation").status_code == 404
    assert Client().post("/end-impersonation").status_code == 404


def test_setting_a_switch_changes_the_feature_and_is_audited(operator):
    client = as_(operator)

    client.post("/admin/switches/sign_up/", {"on": "1"})
    caches["switches"].clear()
    on = feature_switches.is_enabled("sign_up")
    client.post("/admin/switches/sign_up/", {"on": "0"})
    caches["switches"].clear()

    assert (on, feature_switches.is_enabled("sign_up")) == (True, False)
    told = Entry.objects.filter(action="switch.changed").order_by("at", "id")
    assert [(e.before, e.after, e.actor_kind) for e in told] == [
        ({"on": False}, {"on": True}, "operator"),
        ({"on": True}, {"on": False}, "operator"),
    ]


def test_sign_up_switch_opens_and_closes_sign_up(operator):
    client = as_(operator)
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
    client = as_(operator)
    client.post("/admin/switches/impersonation/", {"on": "0"})
    caches["switches"].clear()

    assert client.post(f"/admin/impersonate/{person.pk}/").status_code == 403


def test_unknown_switch_is_not_found(operator):
    assert as_(operator).post("/admin/switches/nothing/", {"on": "1"}).status_code == 404


def test_a_change_of_a_user_is_told_with_before_and_after(operator, person):
    client = as_(operator)
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


def test_rights_of_people_are_only_looked_at_here(operator):
    organization = OrganizationFactory()
    place = f"/admin/organizations/organization/{organization.pk}"

    assert as_(operator).post(f"{place}/change/", {"name": "other"}).status_code == 403
    assert as_(operator).post(f"{place}/delete/", {"post": "yes"}).status_code == 403
    organization.refresh_from_db()
    assert organization.name != "other"
