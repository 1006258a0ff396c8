from apps.core import errors


class LastOwner(errors.Conflict):
    code = "last_owner"
    detail = "An organization needs at least one owner. Make another member an owner first."


class PermissionEscalation(errors.Forbidden):
    code = "beyond_own_rights"
    detail = "You cannot grant, change or revoke permissions that you do not have."


class AlreadyMember(errors.Conflict):
    code = "already_member"
    detail = "The user is already a member."


class RoleNotFound(errors.NotFound):
    code = "role_not_found"
    detail = "Role not found."


class RoleInUse(errors.Conflict):
    code = "role_in_use"
    detail = "The role is assigned to members or invitations. Assign them another role first."


class RoleNameTaken(errors.Conflict):
    code = "role_name_taken"
    detail = "A role with this name already exists."


class SystemRoleImmutable(errors.Forbidden):
    code = "system_role"
    detail = "System roles cannot be changed."


class OrganizationNameTaken(errors.Conflict):
    code = "organization_name_taken"
    detail = "An organization with this name already exists."


class WorkspaceNameTaken(errors.Conflict):
    code = "workspace_name_taken"
    detail = "A workspace with this name already exists in the organization."


class HandleTaken(errors.Conflict):
    code = "handle_taken"
    detail = "This handle is already in use."


class LastWorkspace(errors.Conflict):
    code = "last_workspace"
    detail = "An organization needs at least one workspace. Create another workspace first."


class InvitationClosed(errors.Conflict):
    code = "invitation_over"
    detail = "The invitation was used, declined or revoked, or has expired. Request a new one."


class InvitationAddressMismatch(errors.Forbidden):
    code = "invitation_for_another"
    detail = "The invitation is for another email address. Sign in with the invited address."


class EmailNotVerified(errors.Forbidden):
    code = "address_not_verified"
    detail = "Verify your email address first, or use the link in the invitation."


class TagTaken(errors.Conflict):
    code = "tag_taken"
    detail = "This tag already exists."
