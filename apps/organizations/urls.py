from django.urls import path

from apps.organizations.views import audit_log, members, organization, profile, tags, workspace

SETTINGS = "o/<uuid:workspace_id>/settings"
_MEMBER = f"{SETTINGS}/members/<uuid:identity_id>"
_KEY = f"{SETTINGS}/tags/<uuid:tag_key_id>"
_ORGANIZATION_MEMBER = f"{SETTINGS}/organization-members/<uuid:membership_id>"

urlpatterns = [
    path(f"{SETTINGS}/general", workspace.setting_general, name="setting-general"),
    path(
        f"{SETTINGS}/general/delete",
        workspace.setting_workspace_delete,
        name="setting-workspace-delete",
    ),
    path(f"{SETTINGS}/members", workspace.setting_members, name="setting-members"),
    path(f"{_MEMBER}/role", workspace.setting_member_role, name="setting-member-role"),
    path(f"{_MEMBER}/remove", workspace.setting_member_remove, name="setting-member-remove"),
    path(f"{SETTINGS}/secrets", workspace.setting_secrets, name="setting-secrets"),
    path(
        f"{SETTINGS}/secrets/delete", workspace.setting_secret_delete, name="setting-secret-delete"
    ),
    path(f"{SETTINGS}/tags", tags.setting_tags, name="setting-tags"),
    path(f"{_KEY}/delete", tags.setting_tag_key_delete, name="setting-tag-key-delete"),
    path(f"{_KEY}/values", tags.setting_tag_value_add, name="setting-tag-value-add"),
    path(
        f"{_KEY}/values/<uuid:tag_value_id>/delete",
        tags.setting_tag_value_delete,
        name="setting-tag-value-delete",
    ),
    path(
        f"{SETTINGS}/organization", organization.setting_organization, name="setting-organization"
    ),
    path(
        f"{SETTINGS}/organization/revoke-public-links",
        organization.setting_revoke_public_links,
        name="setting-revoke-public-links",
    ),
    path(
        f"{SETTINGS}/organization/transfer-ownership",
        organization.setting_transfer_ownership,
        name="setting-transfer-ownership",
    ),
    path(f"{SETTINGS}/organization/leave", organization.setting_leave, name="setting-leave"),
    path(f"{SETTINGS}/workspaces", organization.setting_workspaces, name="setting-workspaces"),
    path(f"{SETTINGS}/roles", organization.setting_roles, name="setting-roles"),
    path(
        f"{SETTINGS}/roles/<uuid:role_id>/delete",
        organization.setting_role_delete,
        name="setting-role-delete",
    ),
    path(
        f"{SETTINGS}/organization-members",
        members.setting_organization_members,
        name="setting-organization-members",
    ),
    path(
        f"{_ORGANIZATION_MEMBER}/role",
        members.setting_organization_member_role,
        name="setting-organization-member-role",
    ),
    path(
        f"{_ORGANIZATION_MEMBER}/remove",
        members.setting_organization_member_remove,
        name="setting-organization-member-remove",
    ),
    path(
        f"{SETTINGS}/invitations/<uuid:invitation_id>/revoke",
        members.setting_invitation_revoke,
        name="setting-invitation-revoke",
    ),
    path(f"{SETTINGS}/audit", audit_log.setting_audit, name="setting-audit"),
    path(f"{SETTINGS}/audit/export", audit_log.setting_audit_export, name="setting-audit-export"),
    path("organizations", profile.organizations, name="my-organizations"),
    path("invitations/<str:token>", members.invitation, name="invitation"),
]
