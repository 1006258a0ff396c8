"""Creation of organizations with their first workspaces; their names and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import feature_switches
from apps.organizations import hooks
from apps.organizations.errors import OrganizationNameTaken
from apps.organizations.models import Membership, Organization, User, Workspace
from apps.organizations.services.workspaces import insert_workspace

FIRST_WORKSPACE = "Default"


@dataclass(frozen=True)
class OrganizationSetup:
    """An organization with its first workspace and its owner."""

    organization: Organization
    workspace: Workspace
    owner: User


@transaction.atomic
def get_or_create_organization(
    *, organization_name: str, email: str, password: str | None = None
) -> OrganizationSetup:
    """Create or find the organization, its first workspace and its owner. Safe to repeat.

    For operators: the password is also set on an existing user, and the address counts as verified.
    """
    organization, is_new = Organization.objects.get_or_create(name=organization_name)
    # Lock, so that two calls with the same name do not both add the first workspace.
    organization = Organization.objects.select_for_update().get(pk=organization.pk)
    workspace = organization.workspaces.present().order_by("created_at").first()
    if workspace is None:
        workspace = insert_workspace(organization=organization, name=FIRST_WORKSPACE)

    owner = User.objects.filter(email=email.strip().lower()).first()
    if owner is None:
        owner = User.objects.create_user(email, password, email_verified_at=timezone.now())
    elif password:
        owner.set_password(password)
        owner.save(update_fields=["password"])
    Membership.objects.get_or_create(
        organization=organization, user=owner, defaults={"role": "owner"}
    )
    if is_new:
        _record(organization, owner)
    return OrganizationSetup(organization, workspace, owner)


def may_create_organization(person: User) -> bool:
    """Whether the user may create organizations.

    With open sign-up every user may; otherwise operators, owners of an organization, and users of
    the operator's identity provider.
    """
    return (
        feature_switches.is_enabled("sign_up")
        or person.is_staff
        or person.socialaccount_set.exists()  # type: ignore[attr-defined]  # allauth's
        or Membership.objects.filter(user=person, role="owner").exists()
    )


@transaction.atomic
def create_organization(*, name: str, owner: User, is_personal: bool = False) -> OrganizationSetup:
    """Create an organization with its first workspace. Raises `OrganizationNameTaken`.

    The caller checks `may_create_organization`.
    """
    organization = Organization(name=name, is_personal=is_personal)
    try:
        with transaction.atomic():
            organization.save(force_insert=True)
    except IntegrityError:
        raise OrganizationNameTaken from None
    workspace = insert_workspace(organization=organization, name=FIRST_WORKSPACE)
    Membership.objects.create(organization=organization, user=owner, role="owner")
    _record(organization, owner)
    return OrganizationSetup(organization, workspace, owner)


def create_personal_organization(*, owner: User) -> OrganizationSetup:
    """Create the organization of a user who signed up without an invitation."""
    name = f"Organization of {owner.display_name}"[:90]
    for number in range(1, 1000):
        try:
            return create_organization(
                name=name if number == 1 else f"{name} {number}", owner=owner, is_personal=True
            )
        except OrganizationNameTaken:
            continue
    raise OrganizationNameTaken


def _record(organization: Organization, owner: User) -> None:
    record(
        Action.ORGANIZATION_CREATED,
        Target("organization", organization.pk, organization.name),
        after={
            "name": organization.name,
            "owner": owner.email,
            "is_personal": organization.is_personal,
        },
        organization_id=organization.pk,
    )


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
