"""Making organizations, workspaces and people; finding what a person may do."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from apps.core.access import Caller
from apps.organizations.models import (
    Membership,
    Organization,
    User,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.permissions import ORGANIZATION_ADMINS, WORKSPACE_ROLES

FIRST_WORKSPACE = "Default"


@dataclass(frozen=True)
class Founding:
    """What `found` made or came upon."""

    organization: Organization
    workspace: Workspace
    owner: User


@transaction.atomic
def found(*, organization_name: str, email: str, password: str | None = None) -> Founding:
    """Create or find the organization, its first workspace and its owner. Safe to repeat.

    A password given here is set, also on a person who exists already.
    """
    organization, _ = Organization.objects.get_or_create(name=organization_name)
    # Locked so that two foundings of the same name do not both add the first workspace.
    organization = Organization.objects.select_for_update().get(pk=organization.pk)
    workspace = organization.workspaces.order_by("created_at").first()
    if workspace is None:
        workspace = organization.workspaces.create(name=FIRST_WORKSPACE)

    owner = User.objects.filter(email=email.strip().lower()).first()
    if owner is None:
        owner = User.objects.create_user(email, password)
    elif password:
        owner.set_password(password)
        owner.save(update_fields=["password"])
    Membership.objects.get_or_create(
        organization=organization, user=owner, defaults={"role": "owner"}
    )
    return Founding(organization, workspace, owner)


def caller_for(*, user: User, workspace_id: UUID) -> Caller | None:
    """What the person may do in that workspace; None when it does not exist for them."""
    workspace = Workspace.objects.filter(pk=workspace_id).first()
    if workspace is None or not user.is_active:
        return None
    organization_role = (
        Membership.objects.filter(organization_id=workspace.organization_id, user=user)
        .values_list("role", flat=True)
        .first()
    )
    if organization_role in ORGANIZATION_ADMINS:
        role: str | None = "admin"
    else:
        memberships = WorkspaceMembership.objects.filter(workspace=workspace, user=user)
        role = memberships.values_list("role", flat=True).first()
    if role is None:
        return None
    return Caller(
        organization_id=workspace.organization_id,
        workspace_id=workspace.pk,
        permissions=frozenset(str(p) for p in WORKSPACE_ROLES[role]),
        user_id=user.pk,
    )
