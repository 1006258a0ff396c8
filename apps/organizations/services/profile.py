"""Changes of users to their own account, recorded in the audit logs of their organizations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.organizations.models import Membership, User


def record_user_action(
    action: Action,
    user: User,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record an action on the user in the log of each of their organizations.

    Without an organization there is one entry that belongs to none.
    """
    rows = Membership.objects.filter(user=user).order_by("organization_id")
    organization_ids: list[UUID | None] = [*rows.values_list("organization_id", flat=True)]
    target = Target("user", user.pk, user.email)
    for organization_id in organization_ids or [None]:
        record(action, target, organization_id=organization_id, before=before, after=after)


@transaction.atomic
def rename(*, user_id: UUID, name: str) -> User:
    """Change the user's display name."""
    user = User.objects.select_for_update(no_key=True).get(pk=user_id)
    before, user.name = user.name, name
    if before != name:
        user.save(update_fields=["name"])
        record_user_action(Action.USER_UPDATED, user, before={"name": before}, after={"name": name})
    return user
