from apps.core import errors


class LastOwner(errors.Conflict):
    code = "last_owner"
    detail = "An organization always has an owner: make somebody else one first."


class PermissionEscalation(errors.Forbidden):
    code = "beyond_own_rights"
    detail = "You cannot give, change or take away rights that you do not have yourself."


class AlreadyMember(errors.Conflict):
    code = "already_member"
    detail = "This person is a member already."


class RoleNotFound(errors.NotFound):
    code = "role_not_found"
    detail = "There is no such role here."


class RoleInUse(errors.Conflict):
    code = "role_in_use"
    detail = "Somebody holds this role or is invited to it. Give them another one first."


class RoleNameTaken(errors.Conflict):
    code = "role_name_taken"
    detail = "A role of that name already exists."


class SystemRoleImmutable(errors.Forbidden):
    code = "system_role"
    detail = "Every organization has this role, and nobody can change it."


class OrganizationNameTaken(errors.Conflict):
    code = "organization_name_taken"
    detail = "An organization of that name already exists."


class WorkspaceNameTaken(errors.Conflict):
    code = "workspace_name_taken"
    detail = "A workspace of that name already exists in the organization."


class HandleTaken(errors.Conflict):
    code = "handle_taken"
    detail = "This handle already exists."


class LastWorkspace(errors.Conflict):
    code = "last_workspace"
    detail = "An organization always has a workspace: make another one first."


class InvitationClosed(errors.Conflict):
    code = "invitation_over"
    detail = "This invitation is used, refused, revoked or too old. Ask for another one."


class InvitationAddressMismatch(errors.Forbidden):
    code = "invitation_for_another"
    detail = "This invitation is for another address. Sign in with the address it was sent to."


class EmailNotVerified(errors.Forbidden):
    code = "address_not_verified"
    detail = "Verify your address first, or use the link in the invitation."


class TagTaken(errors.Conflict):
    code = "tag_taken"
    detail = "This tag already exists."
