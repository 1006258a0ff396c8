"""Settings of an organization: policies, workspaces and roles."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.forms import (
    CustomRoleForm,
    NewOrganizationForm,
    NewWorkspaceForm,
    OrganizationForm,
)
from apps.organizations.models import (
    Membership,
    Organization,
    Role,
    User,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.queries import administrator_emails
from apps.organizations.services import (
    create_organization,
    invitations,
    may_create_organization,
    members,
    organizations,
    roles,
    workspaces,
)
from apps.web_ui.pages import (
    PageRequest,
    form_page,
    organization_caller,
    save_form,
    to_sign_in,
    workspace_page,
)

_O = OrganizationPermission


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_organization(request: PageRequest) -> HttpResponse:
    """Name and policies; owners, ownership transfer, leaving."""
    caller = organization_caller(request, _O.ORGANIZATION_READ)
    organization = Organization.objects.get(pk=caller.organization_id)
    initial = {name: getattr(organization, name) for name in organizations.FIELDS}
    form = OrganizationForm(request.POST or None, initial=initial)
    if request.method == "POST":
        caller.require(_O.ORGANIZATION_MANAGE)

        def save() -> None:
            organizations.update_organization(
                organization_id=organization.pk, changes=form.cleaned_data
            )

        if save_form(form, save):
            messages.success(request, "Organization saved.")
            return redirect("settings-organization", request.caller.workspace_id)
    members = Membership.objects.filter(organization=organization).select_related("user")
    own_membership = members.get(user=request.user)
    context = {
        "form": form,
        "organization_row": organization,
        "owners": members.filter(role="owner").order_by("user__email"),
        "ownership_candidates": members.exclude(pk=own_membership.pk).order_by("user__email")[:500],
        "is_owner": own_membership.role == "owner",
        "may_write": caller.may(_O.ORGANIZATION_MANAGE),
    }
    return form_page(request, "organizations/organization.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_revoke_public_links(request: PageRequest) -> HttpResponse:
    """Revoke every public link of the organization."""
    caller = organization_caller(request, _O.ORGANIZATION_MANAGE)
    organizations.update_organization(
        organization_id=caller.organization_id, changes={}, unshare_all=True
    )
    messages.success(request, "All public links of the organization were revoked.")
    return redirect("settings-organization", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_transfer_ownership(request: PageRequest) -> HttpResponse:
    """Make another member an owner, and the current owner an admin."""
    caller = organization_caller(request, _O.OWNERS_MANAGE)
    memberships = Membership.objects.filter(organization_id=caller.organization_id)
    new_owner = get_or_404(memberships.select_related("user"), pk=request.POST.get("member", ""))
    members.transfer_ownership(
        organization_id=caller.organization_id, owner=request.user, to=new_owner
    )
    messages.success(
        request, f"Ownership was transferred to {new_owner.user.email}. You are now an admin."
    )
    return redirect("settings-organization", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_leave(request: PageRequest) -> HttpResponse:
    members.leave(organization_id=request.caller.organization_id, user=request.user)
    messages.success(request, "You have left the organization.")
    return redirect("home")


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_workspaces(request: PageRequest) -> HttpResponse:
    """List the workspaces; the form creates one."""
    caller = organization_caller(request, _O.ORGANIZATION_READ)
    form = NewWorkspaceForm(request.POST or None)
    if request.method == "POST":
        caller.require(_O.WORKSPACES_CREATE)

        def add() -> None:
            workspaces.create_workspace(
                organization_id=caller.organization_id,
                name=form.cleaned_data["name"],
                by=caller,
            )

        if save_form(form, add):
            messages.success(request, f"{form.cleaned_data['name']} was created.")
            return redirect("settings-workspaces", request.caller.workspace_id)
    open_to = Workspace.objects.open_to(request.user)
    rows = open_to.filter(organization_id=caller.organization_id).order_by("name")
    context = {
        "form": form,
        "rows": rows.annotate(member_count=Count("memberships")),
        "may_write": caller.may(_O.WORKSPACES_CREATE),
    }
    return form_page(request, "organizations/workspaces.html", context, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_roles(request: PageRequest) -> HttpResponse:
    """List the roles; the form creates a custom role, or changes the role in `?role=`."""
    caller = organization_caller(request, _O.ORGANIZATION_READ)
    organization_id = caller.organization_id
    edited = _get_edited_role(organization_id, request.GET.get("role", ""))
    if edited:
        level = Level(edited.level)
    elif request.GET.get("level") == Level.ORGANIZATION:
        level = Level.ORGANIZATION
    else:
        level = Level.WORKSPACE
    initial = (
        {name: getattr(edited, name) for name in ("display_name", "description", "permissions")}
        if edited
        else None
    )
    form = CustomRoleForm(request.POST or None, level=level, initial=initial)
    if request.method == "POST":
        caller.require(_O.ROLES_MANAGE)

        def save() -> None:
            if edited is not None:
                roles.update_role(role=edited, changes=form.cleaned_data, by=caller)
            else:
                roles.create_role(
                    organization_id=organization_id, level=level, by=caller, **form.cleaned_data
                )

        if save_form(form, save):
            messages.success(request, f"{form.cleaned_data['display_name']} was saved.")
            return redirect("settings-roles", request.caller.workspace_id)
    context = {
        "form": form,
        "level": level,
        "edited": edited,
        "groups": [
            (level, _roles_with_member_counts(organization_id, level)) for level in reversed(Level)
        ],
        "may_write": caller.may(_O.ROLES_MANAGE),
    }
    return form_page(request, "organizations/roles.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_role_delete(request: PageRequest, role_id: UUID) -> HttpResponse:
    # Looked up before the permission check: foreign and missing ids are indistinguishable.
    custom_roles = Role.objects.filter(organization_id=request.caller.organization_id)
    role = get_or_404(custom_roles, pk=role_id)
    organization_caller(request, _O.ROLES_MANAGE)
    roles.delete_role(role=role)
    messages.success(request, f"{role.display_name} was deleted.")
    return redirect("settings-roles", request.caller.workspace_id)


def _get_edited_role(organization_id: UUID, role_id: str) -> Role | None:
    try:
        key = UUID(role_id) if role_id else None
    except ValueError:
        raise errors.NotFound from None
    return get_or_404(Role.objects.filter(organization_id=organization_id), pk=key) if key else None


def _roles_with_member_counts(organization_id: UUID, level: Level) -> list[tuple[object, int]]:
    """List the roles of a level with their member counts."""
    rows = (
        Membership.objects.filter(organization_id=organization_id)
        if level == Level.ORGANIZATION
        else WorkspaceMembership.objects.filter(
            Q(workspace__deleted_at=None), workspace__organization_id=organization_id
        )
    )
    counts = rows.values_list("role", "custom_role_id").annotate(n=Count("pk"))
    member_counts = {custom_id or name: count for name, custom_id, count in counts}
    return [
        (role, member_counts.get(getattr(role, "key", None) or role.id, 0))
        for role in roles.list_roles(organization_id, level)
    ]


@never_cache
@require_http_methods(["GET", "POST"])
def organization_list(request: HttpRequest) -> HttpResponse:
    """List organizations and open invitations; the form creates an organization."""
    user = request.user
    if not isinstance(user, User):
        return to_sign_in(request)
    form, may_create = NewOrganizationForm(request.POST or None), may_create_organization(user)
    if request.method == "POST":
        if not may_create:
            raise errors.Forbidden("Only operators create organizations on this installation.")
        created: list[Workspace] = []

        def create() -> None:
            created.append(
                create_organization(name=form.cleaned_data["name"], owner=user).workspace
            )

        if save_form(form, create):
            messages.success(request, f"{form.cleaned_data['name']} was created.")
            return redirect("workspace-home", created[0].pk)
    memberships = Membership.objects.filter(user=user).order_by("organization__name")
    first_workspaces = {
        workspace.organization_id: workspace
        for workspace in Workspace.objects.open_to(user).order_by("-created_at")
    }
    rows = list(memberships.select_related("organization", "custom_role"))
    without_workspace = [
        row.organization_id for row in rows if row.organization_id not in first_workspaces
    ]
    emails = administrator_emails(without_workspace)
    for row in rows:
        row.administrator_emails = emails.get(row.organization_id, [])[:2]  # type: ignore[attr-defined]
    context = {
        "form": form,
        "rows": [(row, first_workspaces.get(row.organization_id)) for row in rows],
        "open_invitations": [
            (row, invitations.invitation_token(row)) for row in invitations.list_open_for(user)
        ],
        "is_email_unverified": user.email_verified_at is None,
        "may_create": may_create,
    }
    return form_page(request, "organizations/organization_list.html", context, form)
