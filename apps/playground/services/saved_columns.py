"""What members keep of their columns: a draft for each person, and links for the workspace."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import connection, transaction

from apps.core import errors as core_errors
from apps.core.callers import Caller
from apps.organizations.permissions import Permission
from apps.playground import errors
from apps.playground.models import Draft, PlaygroundShare
from apps.playground.setting import MAX_NAME_LENGTH, State, check_state

MAX_SHARES = 1000
"""Links of a workspace."""


def load_draft(caller: Caller, user_id: UUID) -> dict[str, Any]:
    """Return the person's draft as JSON; both fields are None without one."""
    rows = Draft.objects.for_workspace(caller.workspace_id)
    draft = rows.filter(user_id=user_id).first()
    if draft is None:
        return {"state": None, "updated_at": None}
    return {"state": draft.state, "updated_at": draft.updated_at}


def save_draft(*, workspace_id: UUID, user_id: UUID, state: State) -> Draft:
    """Replace the person's draft. Raises `BadSetting`."""
    draft = Draft(workspace_id=workspace_id, user_id=user_id, state=check_state(state))
    [saved] = Draft.objects.for_workspace(workspace_id).bulk_create(
        [draft],
        update_conflicts=True,
        unique_fields=["workspace", "user"],
        update_fields=["state", "updated_at"],
    )
    return saved


def delete_draft(*, workspace_id: UUID, user_id: UUID) -> None:
    Draft.objects.for_workspace(workspace_id).filter(user_id=user_id).delete()


@transaction.atomic
def create_share(*, caller: Caller, title: str, state: State) -> PlaygroundShare:
    """Keep the columns under a link for members. Raises `BadSetting` and `Conflict`."""
    if len(title) > MAX_NAME_LENGTH:
        raise errors.BadSetting(f"A title has at most {MAX_NAME_LENGTH} characters.")
    _lock_shares(caller.workspace_id)
    if PlaygroundShare.objects.for_workspace(caller.workspace_id).count() >= MAX_SHARES:
        raise core_errors.Conflict(f"A workspace has at most {MAX_SHARES} shared settings.")
    share = PlaygroundShare(
        workspace_id=caller.workspace_id,
        title=title,
        state=check_state(state),
        created_by_id=caller.user_id,
    )
    share.save(force_insert=True)
    return share


def _lock_shares(workspace_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"playground shares of workspace {workspace_id}"],
        )


def get_share(workspace_id: UUID, share_id: UUID) -> PlaygroundShare:
    """Raises `PlaygroundShareNotFound`."""
    rows = PlaygroundShare.objects.for_workspace(workspace_id).select_related("created_by")
    share = rows.filter(pk=share_id).first()
    if share is None:
        raise errors.PlaygroundShareNotFound
    return share


def delete_share(*, caller: Caller, share: PlaygroundShare) -> None:
    """Delete a link of the caller's own; other members need `prompts:delete`."""
    if share.created_by_id is None or share.created_by_id != caller.user_id:
        caller.require(Permission.PROMPTS_DELETE)
    share.delete()


def load_share(caller: Caller, share_id: UUID) -> dict[str, Any]:
    """Return a link of the workspace with its columns as JSON. Raises `PlaygroundShareNotFound`."""
    share = get_share(caller.workspace_id, share_id)
    return {**share_json(share), "state": share.state}


def share_json(share: PlaygroundShare) -> dict[str, Any]:
    return {
        "id": share.pk,
        "url": f"/o/{share.workspace_id}/playground?share={share.pk}",
        "title": share.title,
        "created_at": share.created_at,
        "created_by": share.created_by.display_name if share.created_by else None,
    }
