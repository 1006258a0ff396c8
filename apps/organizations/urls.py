from django.urls import path

from apps.organizations.views import audit_log, members, organization, workspace

SETTINGS = "o/<uuid:workspace_id>/settings"
_MEMBER = f"{SETTINGS}/members/<uuid:identity_id>"
_KEY = f"{SETTINGS}/tags/<uuid:tag_key_id>"
_ORGANIZATION_MEMBER = f"{SETTINGS}/organization-members/<uuid:membership_id>"

urlpatterns = [
    path(f"{SETTINGS}/general", workspace.settings_general, name="settings-general"),
    path(
        f"{SETTINGS}/general/delete",
        workspace.settings_workspace_delete,
        name="settings-workspace-delete",
    ),
    path(f"{SETTINGS}/members", workspace.settings_members, name="settings-members"),
    path(f"{_MEMBER}/role", workspace.settings_member_role, name="settings-member-role"),
    path(f"{_MEMBER}/remove", workspace.settings_member_remove, name="settings-member-remove"),
    path(f"{SETTINGS}/secrets", workspace.settings_secrets, name="settings-secrets"),
    path(
        f"{SETTINGS}/secrets/delete",
        workspace.settings_secret_delete,
        name="settings-secret-delete",
    ),
    path(f"{SETTINGS}/tags", workspace.settings_tags, name="settings-tags"),
    path(f"{_KEY}/delete", workspace.settings_tag_key_delete, name="settings-tag-key-delete"),
    path(f"{_KEY}/values", workspace.settings_tag_value_add, name="settings-tag-value-add"),
    path(
        f"{_KEY}/values/<uuid:tag_value_id>/delete",
        workspace.settings_tag_value_delete,
        name="settings-tag-value-delete",
    ),
    path(
        f"{SETTINGS}/organization", organization.settings_organization, name="settings-organization"
    ),
    path(
        f"{SETTINGS}/organization/revoke-public-links",
        organization.settings_revoke_public_links,
        name="settings-revoke-public-links",
    ),
    path(
        f"{SETTINGS}/organization/transfer-ownership",
        organization.settings_transfer_ownership,
        name="settings-transfer-ownership",
    ),
    path(f"{SETTINGS}/organization/leave", organization.settings_leave, name="settings-leave"),
    path(f"{SETTINGS}/workspaces", organization.settings_workspaces, name="settings-workspaces"),
    path(f"{SETTINGS}/roles", organization.settings_roles, name="settings-roles"),
    path(
        f"{SETTINGS}/roles/<uuid:role_id>/delete",
        organization.settings_role_delete,
        name="settings-role-delete",
    ),
    path(
        f"{SETTINGS}/organization-members",
        members.settings_organization_members,
        name="settings-organization-members",
    ),
    path(
        f"{_ORGANIZATION_MEMBER}/role",
        members.settings_organization_member_role,
        name="settings-organization-member-role",
    ),
    path(
        f"{_ORGANIZATION_MEMBER}/remove",
        members.settings_organization_member_remove,
        name="settings-organization-member-remove",
    ),
    path(
        f"{SETTINGS}/invitations/<uuid:invitation_id>/revoke",
        members.settings_invitation_revoke,
        name="settings-invitation-revoke",
    ),
    path(f"{SETTINGS}/audit", audit_log.settings_audit, name="settings-audit"),
    path(f"{SETTINGS}/audit/export", audit_log.settings_audit_export, name="settings-audit-export"),
    path("organizations", organization.organization_list, name="my-organizations"),
    path("invitations/<str:token>", members.invitation, name="invitation"),
]
