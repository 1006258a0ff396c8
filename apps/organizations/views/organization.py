"""Settings of an organization: its rules, its workspaces, its roles."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.forms import CustomRoleForm, NewWorkspaceForm, OrganizationForm
from apps.organizations.models import (
    Membership,
    Organization,
    Role,
    Workspace,
    WorkspaceMembership,
)
from apps.organizations.page_helpers import organization_caller, page, save_form
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.services import members, organizations, roles, workspaces
from apps.web_ui.pages import PageRequest, workspace_page

_O = OrganizationPermission


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def setting_organization(request: PageRequest) -> HttpResponse:
    """Name and rules; who owns it, how to hand it over, how to leave."""
    caller = organization_caller(request, _O.ORGANIZATION_READ)
    organization = Organization.objects.get(pk=caller.organization_id)
    initial = {name: getattr(organization, name) for name in organizations.RULES}
    form = OrganizationForm(request.POST or None, initial=initial)
    if request.method == "POST":
        caller.require(_O.ORGANIZATION_MANAGE)

        def save() -> None:
            organizations.update_organization(
                organization_id=organization.pk, changes=form.cleaned_data
            )

        if save_form(form, save):
            messages.success(request, "Organization saved.")
            return redirect("setting-organization", request.caller.workspace_id)
    members = Membership.objects.filter(organization=organization).select_related("user")
    own = members.get(user=request.user)
    context = {
        "form": form,
        "shown": organization,
        "owners": members.filter(role="owner").order_by("user__email"),
        "heirs": members.exclude(pk=own.pk).order_by("user__email")[:500],
        "is_owner": own.role == "owner",
        "may_write": caller.may(_O.ORGANIZATION_MANAGE),
    }
    return page(request, "organizations/organization.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def setting_revoke_public_links(request: PageRequest) -> HttpResponse:
    """Every public link of the organization ends."""
    caller = organization_caller(request, _O.ORGANIZATION_MANAGE)
    organizations.update_organization(
        organization_id=caller.organization_id, changes={}, unshare_all=True
    )
    messages.success(request, "All public links of the organization were revoked.")
    return redirect("setting-organization", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def setting_transfer_ownership(request: PageRequest) -> HttpResponse:
    """Another member becomes an owner, and the owner who does it an admin."""
    caller = organization_caller(request, _O.OWNERS_MANAGE)
    memberships = Membership.objects.filter(organization_id=caller.organization_id)
    heir = get_or_404(memberships.select_related("user"), pk=request.POST.get("member", ""))
    members.transfer_ownership(organization_id=caller.organization_id, owner=request.user, to=heir)
    messages.success(
        request, f"Ownership was transferred to {heir.user.email}. You are now an admin."
    )
    return redirect("setting-organization", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def setting_leave(request: PageRequest) -> HttpResponse:
    members.leave(organization_id=request.caller.organization_id, user=request.user)
    messages.success(request, "You have left the organization.")
    return redirect("home")


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def setting_workspaces(request: PageRequest) -> HttpResponse:
    """The organization's workspaces; the form makes another."""
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
            return redirect("setting-workspaces", request.caller.workspace_id)
    open_to = Workspace.objects.open_to(request.user)
    rows = open_to.filter(organization_id=caller.organization_id).order_by("name")
    context = {
        "form": form,
        "rows": rows.annotate(people=Count("memberships")),
        "may_write": caller.may(_O.WORKSPACES_CREATE),
    }
    return page(request, "organizations/workspaces.html", context, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def setting_roles(request: PageRequest) -> HttpResponse:
    """What roles there are; the form makes one of the organization's own, or changes `role`."""
    caller = organization_caller(request, _O.ORGANIZATION_READ)
    where = caller.organization_id
    edited = _edited(where, request.GET.get("role", ""))
    named = request.GET.get("level") == Level.ORGANIZATION
    level = Level(edited.level) if edited else Level.ORGANIZATION if named else Level.WORKSPACE
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
                    organization_id=where, level=level, by=caller, **form.cleaned_data
                )

        if save_form(form, save):
            messages.success(request, f"{form.cleaned_data['display_name']} was saved.")
            return redirect("setting-roles", request.caller.workspace_id)
    context = {
        "form": form,
        "level": level,
        "edited": edited,
        "groups": [(one, _with_holders(where, one)) for one in reversed(Level)],
        "may_write": caller.may(_O.ROLES_MANAGE),
    }
    return page(request, "organizations/roles.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def setting_role_delete(request: PageRequest, role_id: UUID) -> HttpResponse:
    # Found first: a stranger's role and none look the same.
    own = Role.objects.filter(organization_id=request.caller.organization_id)
    role = get_or_404(own, pk=role_id)
    organization_caller(request, _O.ROLES_MANAGE)
    roles.delete_role(role=role)
    messages.success(request, f"{role.display_name} was deleted.")
    return redirect("setting-roles", request.caller.workspace_id)


def _edited(organization_id: UUID, given: str) -> Role | None:
    try:
        key = UUID(given) if given else None
    except ValueError:
        raise errors.NotFound from None
    return get_or_404(Role.objects.filter(organization_id=organization_id), pk=key) if key else None


def _with_holders(organization_id: UUID, level: Level) -> list[tuple[object, int]]:
    """The roles of a level, each with how many people hold it."""
    rows = (
        Membership.objects.filter(organization_id=organization_id)
        if level == Level.ORGANIZATION
        else WorkspaceMembership.objects.filter(
            Q(workspace__deleted_at=None), workspace__organization_id=organization_id
        )
    )
    counted = rows.values_list("role", "custom_role_id").annotate(n=Count("pk"))
    holders = {custom or name: n for name, custom, n in counted}
    return [
        (role, holders.get(getattr(role, "key", None) or role.id, 0))
        for role in roles.list_roles(organization_id, level)
    ]
