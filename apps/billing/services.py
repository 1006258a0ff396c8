"""Billing accounts, created soon after their organizations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connections, transaction

from apps.billing.database import billing_database
from apps.billing.models import BillingAccount
from apps.core import errors
from apps.organizations.models import Organization


class BillingUnavailable(errors.Unavailable):
    code = "billing_unavailable"
    detail = "The billing database is unreachable from this region. Retry later."


BATCH = 500


def is_connected() -> bool:
    """Whether a billing database is configured."""
    return billing_database() in connections.databases


def get_account(organization_id: UUID) -> BillingAccount:
    """Return the organization's account, creating it if missing. Raises `BillingUnavailable`."""
    if not is_connected():
        raise BillingUnavailable
    try:
        account, _ = BillingAccount.objects.get_or_create(
            organization_id=organization_id, defaults={"region": settings.REGION}
        )
    except DatabaseError as error:
        raise BillingUnavailable from error
    return account


def update_account(account: BillingAccount, details: dict[str, Any]) -> None:
    """Update the invoice details."""
    for name, value in details.items():
        setattr(account, name, value)
    try:
        account.save(update_fields=[*details])
    except DatabaseError as error:
        raise BillingUnavailable from error


def open_accounts() -> int:
    """Create the missing accounts of this region and return their number. Safe to repeat.

    Runs periodically, so that creating an organization does not depend on another region.
    """
    if not is_connected():
        return 0
    ids = list(Organization.objects.order_by("pk").values_list("pk", flat=True))
    created = 0
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        existing_ids = set(
            BillingAccount.objects.filter(organization_id__in=batch).values_list(
                "organization_id", flat=True
            )
        )
        missing = [
            BillingAccount(organization_id=pk, region=settings.REGION)
            for pk in batch
            if pk not in existing_ids
        ]
        with transaction.atomic(using=billing_database()):
            BillingAccount.objects.bulk_create(missing, ignore_conflicts=True)
        created += len(missing)
    return created
