"""JSON of members and workspaces, with the public API's names: a tenant is a workspace."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.organizations.models import (
    Invitation,
    Membership,
    Organization,
    Role,
    Tagging,
    TagKey,
    TagValue,
    User,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.permissions import Level, Permission
from apps.organizations.roles import SystemRole, system_role

_WRITES = frozenset({Permission.RUNS_INGEST, Permission.PROJECTS_WRITE, Permission.FEEDBACK_WRITE})


def workspace_json(
    workspace: Workspace,
    *,
    role: SystemRole | Role | None = None,
    permissions: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    return {
        "id": workspace.pk,
        "organization_id": workspace.organization_id,
        "display_name": workspace.name,
        "tenant_handle": workspace.handle,
        "is_personal": False,
        "is_deleted": workspace.is_deleted,
        "created_at": workspace.created_at,
        "role_id": None if role is None else role.id,
        "role_name": None if role is None else role.display_name,
        "permissions": sorted(permissions),
        "read_only": not permissions & _WRITES,
        "data_plane_url": None,
    }


def organization_json(organization: Organization) -> dict[str, Any]:
    return {
        "id": organization.pk,
        "display_name": organization.name,
        "is_personal": organization.is_personal,
        "created_at": organization.created_at,
        "public_sharing_disabled": organization.public_sharing_disabled,
        "pat_creation_disabled": organization.personal_keys_disabled,
        "max_key_days": organization.max_key_days,
        "disabled": False,
        "tier": None,
    }


def role_json(role: SystemRole | Role) -> dict[str, Any]:
    return {
        "id": role.id,
        "name": role.name,
        "display_name": role.display_name,
        "description": role.description,
        "organization_id": role.organization_id,
        "permissions": list(role.permissions),
        "access_scope": str(role.level),
    }


def _person_json(user: User) -> dict[str, Any]:
    return {
        "user_id": user.pk,
        "ls_user_id": user.pk,
        "email": user.email,
        "full_name": user.name or None,
        "avatar_url": None,
    }


def workspace_member_json(
    membership: WorkspaceMembership, organization_membership: Membership | None
) -> dict[str, Any]:
    role = membership.held_role
    organization_role = (
        organization_membership.held_role if organization_membership is not None else None
    )
    return {
        "id": membership.pk,
        "tenant_id": membership.workspace_id,
        **_person_json(membership.user),
        "role_id": role.id,
        "role_name": role.display_name,
        "org_role_id": None if organization_role is None else organization_role.id,
        "org_role_name": None if organization_role is None else organization_role.display_name,
        "read_only": not set(role.permissions) & _WRITES,
        "access_scope": "workspace",
        "created_at": membership.created_at,
    }


def workspace_administrator_json(
    workspace_id: UUID, user: User, membership: Membership
) -> dict[str, Any]:
    """A user who has access through the role in the organization, not as a member."""
    role = system_role(Level.WORKSPACE, "admin")
    return {
        "id": membership.pk,
        "tenant_id": workspace_id,
        **_person_json(user),
        "role_id": role.id,
        "role_name": role.display_name,
        "org_role_id": membership.held_role.id,
        "org_role_name": membership.held_role.display_name,
        "read_only": False,
        "access_scope": "organization",
        "created_at": membership.created_at,
    }


def member_json(
    membership: Membership, workspaces: list[tuple[UUID, SystemRole | Role]]
) -> dict[str, Any]:
    role = membership.held_role
    return {
        "id": membership.pk,
        "organization_id": membership.organization_id,
        **_person_json(membership.user),
        "role_id": role.id,
        "role_name": role.display_name,
        "tenant_ids": [workspace_id for workspace_id, _ in workspaces],
        "workspaces": [
            {
                "id": workspace_id,
                "role_id": workspace_role.id,
                "role_name": workspace_role.display_name,
            }
            for workspace_id, workspace_role in workspaces
        ],
        "access_scope": "organization",
        "created_at": membership.created_at,
    }


def invitation_json(invitation: Invitation, link: str | None = None) -> dict[str, Any]:
    role = invitation.held_role
    roles = [(row.workspace, row.held_role) for row in invitation.workspaces.all()]
    return {
        "id": invitation.pk,
        "organization_id": invitation.organization_id,
        "organization_name": invitation.organization.name,
        "email": invitation.email or None,
        "full_name": invitation.full_name or None,
        "role_id": role.id,
        "role_name": role.display_name,
        "tenant_id": roles[0][0].pk if len(roles) == 1 else None,
        "workspace_ids": [workspace.pk for workspace, _ in roles],
        "workspace_role_id": roles[0][1].id if roles else None,
        "workspace_role_name": roles[0][1].display_name if roles else None,
        "created_at": invitation.created_at,
        "expires_at": invitation.expires_at,
        **({"invite_url": link} if link is not None else {}),
    }


def tag_key_json(key: TagKey, values: list[TagValue] | None = None) -> dict[str, Any]:
    rendered = {
        "id": key.pk,
        "key": key.key,
        "description": key.description,
        "created_at": key.created_at,
        "updated_at": key.updated_at,
    }
    return (
        rendered if values is None else rendered | {"values": [tag_value_json(v) for v in values]}
    )


def tag_value_json(value: TagValue) -> dict[str, Any]:
    return {
        "id": value.pk,
        "tag_key_id": value.tag_key_id,
        "value": value.value,
        "description": value.description,
        "created_at": value.created_at,
        "updated_at": value.updated_at,
    }


def tagging_json(tagging: Tagging) -> dict[str, Any]:
    return {
        "id": tagging.pk,
        "tag_value_id": tagging.tag_value_id,
        "resource_type": tagging.resource_type,
        "resource_id": tagging.resource_id,
        "created_at": tagging.created_at,
    }
