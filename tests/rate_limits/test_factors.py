"""Operators change the limit factors of an organization."""

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


def test_category_factor_takes_precedence_over_the_factor_for_all():
    organization, other = OrganizationFactory(), OrganizationFactory()
    factors.set_factor(organization=organization, factor=10)
    factors.set_factor(organization=organization, factor=0.5, category="Stats")
    factors.clear_cache()

    assert factors.factor_for(organization.pk, "Charts") == 10
    assert factors.factor_for(organization.pk, "Stats") == 0.5
    assert factors.factor_for(other.pk, "Stats") == 1
    assert factors.factor_for(None, "Stats") == 1


def test_installation_factor_is_multiplied(settings):
    settings.RATE_LIMIT_FACTOR = 3.0
    organization = OrganizationFactory()
    factors.set_factor(organization=organization, factor=2)
    factors.clear_cache()

    assert factors.factor_for(organization.pk, "Stats") == 6
    assert factors.factor_for(None, "Public (catch-all)") == 3


def test_factor_of_one_is_deleted_for_all_and_stored_for_a_category():
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
def test_invalid_factor_is_rejected(factor, category):
    with pytest.raises(errors.Invalid):
        factors.set_factor(organization=OrganizationFactory(), factor=factor, category=category)

    assert not LimitFactor.objects.exists()


def test_factor_change_is_recorded_and_a_repetition_is_not():
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
    ("options", "expected_message"),
    [
        ({"organization": "Missing", "factor": 2.0}, "Organization 'Missing' does not exist."),
        ({"organization": "Acme", "row": "x", "factor": 2.0}, "--row must be one of"),
        ({"organization": "Acme", "factor": 0.0}, "must be between 0.001 and 1e+06"),
    ],
)
def test_command_rejects_invalid_arguments_with_a_message(options, expected_message):
    OrganizationFactory(name="Acme")

    with pytest.raises(CommandError, match=expected_message.replace("+", r"\+")):
        call_command("set_limits", **options)


def test_raised_limit_applies_within_a_second(client, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("apps.core.ttl_cache.time", SimpleNamespace(monotonic=lambda: now[0]))
    workspace = WorkspaceFactory()
    headers = {"X-Api-Key": key_for(workspace)}
    with time_machine.travel(4_000_000_000.0, tick=False):
        client.post("/runs/stats", headers=headers)
        rejected = client.post("/runs/stats", headers=headers)
        factors.set_factor(organization=workspace.organization, factor=1000)

        now[0] += 0.9
        raised = client.post("/runs/stats", headers=headers)

    assert rejected.status_code == 429
    assert raised.status_code != 429
    assert (raised["X-RateLimit-Limit"], raised["X-RateLimit-Remaining"]) == ("1000", "997")


def test_factor_lookup_takes_one_query(django_assert_num_queries):
    organizations = [OrganizationFactory() for _ in range(5)]
    for organization in organizations[:-1]:
        factors.set_factor(organization=organization, factor=2)
    factors.clear_cache()

    with django_assert_num_queries(1):
        values = [factors.factor_for(organization.pk, "Stats") for organization in organizations]

    assert values == [2, 2, 2, 2, 1]


def test_admin_changes_factors_and_records_them(client):
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
