"""Name and policies of an organization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.organizations import hooks
from apps.organizations.errors import OrganizationNameTaken
from apps.organizations.models import Organization

FIELDS = ("name", "public_sharing_disabled", "personal_keys_disabled", "max_key_days")


@transaction.atomic
def update_organization(
    *, organization_id: UUID, changes: Mapping[str, Any], unshare_all: bool = False
) -> Organization:
    """Update the `FIELDS` in `changes`; `unshare_all` revokes every public link."""
    row = Organization.objects.select_for_update(no_key=True).get(pk=organization_id)
    before = _audit_values(row)
    for name in FIELDS:
        setattr(row, name, changes.get(name, getattr(row, name)))
    try:
        with transaction.atomic():
            row.save(update_fields=FIELDS)
    except IntegrityError:
        raise OrganizationNameTaken from None
    if unshare_all:
        hooks.public_links_revoked(row)
    after = _audit_values(row) | ({"unshare_all": True} if unshare_all else {})
    if after != before:
        record(
            Action.ORGANIZATION_UPDATED,
            Target("organization", row.pk, row.name),
            before=before,
            after=after,
            organization_id=row.pk,
        )
    return row


def _audit_values(organization: Organization) -> dict[str, Any]:
    return {name: getattr(organization, name) for name in FIELDS}
