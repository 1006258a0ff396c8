"""Organizations, workspaces, users and memberships."""

from apps.organizations.models.invitations import Invitation, InvitationWorkspace
from apps.organizations.models.roles import (
    ROLE_FIELDS,
    Membership,
    Role,
    RoleMixin,
    WorkspaceMembership,
    role_fields,
)
from apps.organizations.models.tags import ResourceType, Tagging, TagKey, TagValue
from apps.organizations.models.workspaces import (
    Organization,
    OrganizationSequence,
    User,
    UserManager,
    Workspace,
    WorkspaceSecret,
)

__all__ = [
    "ROLE_FIELDS",
    "Invitation",
    "InvitationWorkspace",
    "Membership",
    "Organization",
    "OrganizationSequence",
    "ResourceType",
    "Role",
    "RoleMixin",
    "TagKey",
    "TagValue",
    "Tagging",
    "User",
    "UserManager",
    "Workspace",
    "WorkspaceMembership",
    "WorkspaceSecret",
    "role_fields",
]
