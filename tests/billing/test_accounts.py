"""Billing accounts and the billing page."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from apps.billing import database, services
from apps.billing.models import BillingAccount, Payment
from apps.billing.services import BillingUnavailable
from tests.factories.organizations import (
    MembershipFactory,
    OrganizationFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db

DETAILS = {
    "name": "Acme GmbH",
    "email": "money@acme.example",
    "address": "Somewhere 1",
    "country": "de",
    "tax_id": "DE123",
}


@pytest.fixture
def page(workspace):
    return f"/o/{workspace.pk}/settings/billing"


def sign_in(client, workspace, role: str) -> None:
    client.force_login(MembershipFactory(organization=workspace.organization, role=role).user)


@pytest.mark.parametrize(("role", "status"), [("admin", 403), ("member", 404), ("viewer", 404)])
def test_only_owners_see_the_page(client, workspace, page, role, status):
    sign_in(client, workspace, role)

    assert client.get(page).status_code == status
    assert client.post(page, DETAILS).status_code == status
    assert not BillingAccount.objects.exists()


def test_outsiders_and_anonymous_users_do_not_see_the_page(client, workspace, page):
    assert client.get(page).status_code == 302
    client.force_login(UserFactory())
    assert client.get(page).status_code == 404


def test_owner_edits_the_invoice_details(client, workspace, page):
    sign_in(client, workspace, "owner")

    saved = client.post(page, DETAILS)

    account = BillingAccount.objects.get()
    assert saved.status_code == 302
    assert account.organization_id == workspace.organization_id
    assert account.region == "us"
    assert (account.name, account.country, account.tax_id) == ("Acme GmbH", "DE", "DE123")
    assert "Acme GmbH" in client.get(page).content.decode()


@pytest.mark.parametrize(
    "changes",
    [{"country": "Germany"}, {"country": "1!"}, {"email": "invalid"}, {"name": "x" * 201}],
)
def test_invalid_invoice_details_are_rejected(client, workspace, page, changes):
    sign_in(client, workspace, "owner")

    response = client.post(page, DETAILS | changes)

    assert response.status_code == 422
    assert BillingAccount.objects.get().name == ""


def test_payments_of_the_organization_are_listed_latest_first(client, workspace, page):
    sign_in(client, workspace, "owner")
    account = services.get_account(workspace.organization_id)
    foreign = services.get_account(OrganizationFactory().pk)
    for number in range(51):
        Payment.objects.create(account=account, invoice=f"A-{number:03}", amount="12.50")
    Payment.objects.create(account=foreign, invoice="FOREIGN-1", amount=1)

    first, second = (client.get(f"{page}?page={n}").content.decode() for n in (0, 1))

    assert first.index("A-050") < first.index("A-001")
    assert "A-000" not in first
    assert "A-000" in second
    assert "FOREIGN" not in first + second
    assert "12.50 USD" in first


def test_query_count_of_the_page_does_not_grow_with_payments(client, workspace, page):
    sign_in(client, workspace, "owner")
    account = services.get_account(workspace.organization_id)
    client.get(page)
    with CaptureQueriesContext(connection) as few:
        client.get(page)
    for number in range(20):
        Payment.objects.create(account=account, invoice=f"B-{number}", amount=1)
    with CaptureQueriesContext(connection) as many:
        client.get(page)

    assert len(many) == len(few)


def test_repeated_open_accounts_creates_one_account_per_organization():
    organizations = [OrganizationFactory() for _ in range(3)]
    services.get_account(organizations[0].pk)

    assert services.open_accounts() == 2
    assert services.open_accounts() == 0
    account_ids = set(BillingAccount.objects.values_list("organization_id", flat=True))
    assert account_ids == {organization.pk for organization in organizations}


def test_payments_are_not_negative_and_invoice_numbers_are_unique():
    account = services.get_account(OrganizationFactory().pk)
    Payment.objects.create(account=account, invoice="1", amount=0)

    for fields in ({"invoice": "1", "amount": 5}, {"invoice": "2", "amount": -5}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Payment.objects.create(account=account, **fields)


def test_region_without_a_billing_database_warns_and_works(client, workspace, page):
    sign_in(client, workspace, "owner")
    with override_settings(REGION="eu"):
        assert services.open_accounts() == 0
        with pytest.raises(BillingUnavailable):
            services.get_account(workspace.organization_id)
        response = client.get(page)
        assert [message.id for message in database.check_billing_database()] == ["billing.W001"]

    assert response.status_code == 503
    assert "currently unavailable" in response.content.decode()


def test_billing_database_url_is_an_error_in_the_us(monkeypatch):
    assert database.check_billing_database() == []
    misconfigured = SimpleNamespace(REGION="us", DATABASES={"default": {}, "billing": {}})
    monkeypatch.setattr(database, "settings", misconfigured)

    assert [message.id for message in database.check_billing_database()] == ["billing.E001"]
