"""Operators raise and lower the limits of one organization."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import connection

from apps.audit.models import Entry
from apps.core import errors
from apps.rate_limits import factors
from apps.rate_limits.models import LimitFactor
from tests.factories.api_keys import key_for
from tests.factories.organizations import OrganizationFactory, UserFactory, WorkspaceFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("limits")]


def test_a_category_goes_before_all_rows():
    organization, other = OrganizationFactory(), OrganizationFactory()
    factors.set_factor(organization=organization, factor=10)
    factors.set_factor(organization=organization, factor=0.5, category="Stats")
    factors.clear_cache()

    assert factors.factor_for(organization.pk, "Charts") == 10
    assert factors.factor_for(organization.pk, "Stats") == 0.5
    assert factors.factor_for(other.pk, "Stats") == 1
    assert factors.factor_for(None, "Stats") == 1


def test_the_installations_factor_holds_as_well(settings):
    settings.RATE_LIMIT_FACTOR = 3.0
    organization = OrganizationFactory()
    factors.set_factor(organization=organization, factor=2)
    factors.clear_cache()

    assert factors.factor_for(organization.pk, "Stats") == 6
    assert factors.factor_for(None, "Public (catch-all)") == 3


def test_a_factor_of_one_for_all_is_none_and_of_a_category_is_a_shield():
    organization = OrganizationFactory()
    factors.set_factor(organization=organization, factor=5)
    factors.set_factor(organization=organization, factor=1, category="Stats")
    factors.clear_cache()
    assert factors.factor_for(organization.pk, "Stats") == 1

    factors.set_factor(organization=organization, factor=1)

    assert list(LimitFactor.objects.values_list("category", "factor")) == [("Stats", 1)]


@pytest.mark.parametrize(
    ("factor", "category"), [(0, ""), (-1, ""), (2e6, ""), (float("nan"), ""), (2, "No such")]
)
def test_a_factor_that_makes_no_sense_is_refused(factor, category):
    with pytest.raises(errors.Invalid):
        factors.set_factor(organization=OrganizationFactory(), factor=factor, category=category)

    assert not LimitFactor.objects.exists()


def test_a_change_is_in_the_audit_log_and_a_repetition_is_not():
    organization = OrganizationFactory()

    for factor in (4, 4, 2):
        factors.set_factor(organization=organization, factor=factor, category="Stats")

    entries = Entry.objects.filter(action="rate_limit.changed").order_by("at")
    assert [(e.before, e.after, e.target_name) for e in entries] == [
        ({"factor": 1.0}, {"factor": 4.0}, "Stats"),
        ({"factor": 4.0}, {"factor": 2.0}, "Stats"),
    ]
    assert {e.organization_id for e in entries} == {organization.pk}


def test_the_command_sets_one_row_or_all(capsys):
    organization = OrganizationFactory(name="Acme")

    call_command("set_limits", organization="Acme", factor=100)
    call_command("set_limits", organization="Acme", row="stats", factor=7)

    assert dict(LimitFactor.objects.values_list("category", "factor")) == {"": 100, "Stats": 7}
    assert capsys.readouterr().out.splitlines() == [
        "All rows of Acme: limits times 100.",
        "Stats of Acme: limits times 7.",
    ]
    assert {f.organization for f in LimitFactor.objects.all()} == {organization}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"organization": "Nobody", "factor": 2.0}, "There is no organization 'Nobody'."),
        ({"organization": "Acme", "row": "x", "factor": 2.0}, "There is no row 'x'"),
        ({"organization": "Acme", "factor": 0.0}, "A factor is from 0.001 to 1e+06."),
    ],
)
def test_the_command_refuses_in_a_sentence(options, said):
    OrganizationFactory(name="Acme")

    with pytest.raises(CommandError, match=said.replace("+", r"\+")):
        call_command("set_limits", **options)


def test_a_raised_limit_is_felt_within_a_second(client, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("apps.core.ttl_cache.time", SimpleNamespace(monotonic=lambda: now[0]))
    workspace = WorkspaceFactory()
    headers = {"X-Api-Key": key_for(workspace)}
    with time_machine.travel(1_800_000_000.0, tick=False):
        client.post("/runs/stats", headers=headers)
        refused = client.post("/runs/stats", headers=headers)
        factors.set_factor(organization=workspace.organization, factor=1000)

        now[0] += 0.9
        raised = client.post("/runs/stats", headers=headers)

    assert refused.status_code == 429
    assert raised.status_code != 429
    assert (raised["X-RateLimit-Limit"], raised["X-RateLimit-Remaining"]) == ("1000", "997")


def test_looking_factors_up_is_one_query_however_many_there_are(django_assert_num_queries):
    organizations = [OrganizationFactory() for _ in range(5)]
    for organization in organizations[:-1]:
        factors.set_factor(organization=organization, factor=2)
    factors.clear_cache()

    with django_assert_num_queries(1):
        found = [factors.factor_for(organization.pk, "Stats") for organization in organizations]

    assert found == [2, 2, 2, 2, 1]


def test_the_admin_changes_factors_and_writes_it_down(client):
    organization = OrganizationFactory()
    operator = UserFactory(is_staff=True, is_superuser=True)
    client.force_login(operator)

    form = {"organization": str(organization.pk), "category": "Stats", "factor": "50"}
    added = client.post("/admin/rate_limits/limitfactor/add/", form)
    row = LimitFactor.objects.get()
    deleted = client.post(f"/admin/rate_limits/limitfactor/{row.pk}/delete/", {"post": "yes"})

    assert (added.status_code, deleted.status_code) == (302, 302)
    assert (row.category, row.factor) == ("Stats", 50)
    entries = Entry.objects.filter(action="rate_limit.changed").order_by("at")
    assert [entry.after for entry in entries] == [{"factor": 50.0}, {"factor": 1.0}]
    assert {entry.actor_label for entry in entries} == {operator.email}
    assert not connection.needs_rollback
