"""Pages of organization members and invitations."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.audit.services import is_impersonated
from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.forms import InviteForm, RoleForm, role_choices
from apps.organizations.models import Invitation, Membership, User
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.queries import accessible_workspaces, workspace_roles_by_user
from apps.organizations.services import invitations, members, roles
from apps.organizations.services.roles import find_role
from apps.web_ui.pages import (
    PageRequest,
    form_page,
    organization_caller,
    save_form,
    to_sign_in,
    workspace_page,
)

_O = OrganizationPermission
PAGE_SIZE = 100


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_organization_members(request: PageRequest) -> HttpResponse:
    """List members and invitations; the form invites."""
    caller = organization_caller(request, _O.PEOPLE_READ)
    organization_id = caller.organization_id
    choices = role_choices(roles.list_roles(organization_id, Level.ORGANIZATION))
    form = InviteForm(
        request.POST or None,
        roles=choices,
        workspaces=[row.workspace for row in accessible_workspaces(caller)],
        workspace_roles=role_choices(roles.list_roles(organization_id, Level.WORKSPACE)),
        initial={
            "role": str(find_role(organization_id, Level.ORGANIZATION, "member").id),
            "workspace_role": str(find_role(organization_id, Level.WORKSPACE, "editor").id),
            "workspaces": [str(request.caller.workspace_id)],
        },
    )
    if request.method == "POST":
        caller.require(_O.PEOPLE_MANAGE)

        def invite() -> None:
            data = form.cleaned_data
            workspace_role = find_role(organization_id, Level.WORKSPACE, data["workspace_role"])
            invitations.invite(
                organization_id=organization_id,
                role=find_role(organization_id, Level.ORGANIZATION, data["role"]),
                email=data["email"],
                workspaces={UUID(pk): workspace_role for pk in data["workspaces"]},
                by=caller,
            )

        if save_form(form, invite):
            invited = form.cleaned_data["email"]
            messages.success(
                request, f"{invited} was invited." if invited else "Invitation link created."
            )
            return redirect("settings-organization-members", request.caller.workspace_id)
    offset = _parse_offset(request)
    members = Membership.objects.filter(organization_id=organization_id).order_by("user__email")
    text = request.GET.get("q", "").strip()[:200].replace("\0", "")
    if text:
        members = members.filter(user__email__icontains=text)
    rows = list(members.select_related("user", "custom_role")[offset : offset + PAGE_SIZE + 1])
    roles_by_user = workspace_roles_by_user(organization_id, [row.user_id for row in rows])
    may_write = caller.may(_O.PEOPLE_MANAGE)
    may_see_links = may_write and not is_impersonated()
    context = {
        "form": form,
        "rows": [(row, roles_by_user.get(row.user_id, [])) for row in rows[:PAGE_SIZE]],
        "open_invitations": [
            (row, invitations.invitation_url(row) if may_see_links else "")
            for row in _open_invitations(organization_id)
        ],
        "choices": choices,
        "text": text,
        "next_offset": offset + PAGE_SIZE if len(rows) > PAGE_SIZE else None,
        "previous_offset": max(0, offset - PAGE_SIZE) if offset else None,
        "may_write": may_write,
    }
    return form_page(request, "organizations/organization_members.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_organization_member_role(request: PageRequest, membership_id: UUID) -> HttpResponse:
    membership = _get_membership(request, membership_id)
    caller = organization_caller(request, _O.PEOPLE_MANAGE)
    organization_id = caller.organization_id
    form = RoleForm(
        request.POST, roles=role_choices(roles.list_roles(organization_id, Level.ORGANIZATION))
    )
    if not form.is_valid():
        raise errors.Invalid("Unknown role.")
    role = find_role(organization_id, Level.ORGANIZATION, form.cleaned_data["role"])
    members.change_role(membership=membership, role=role, by=caller)
    messages.success(
        request, f"The role of {membership.user.display_name} is now {role.display_name}."
    )
    return redirect("settings-organization-members", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_organization_member_remove(request: PageRequest, membership_id: UUID) -> HttpResponse:
    membership = _get_membership(request, membership_id)
    caller = organization_caller(request, _O.PEOPLE_MANAGE)
    members.remove_member(membership=membership, by=caller)
    if membership.user_id == request.user.pk:
        messages.success(request, "You have left the organization.")
        return redirect("home")
    messages.success(request, f"{membership.user.display_name} was removed from the organization.")
    return redirect("settings-organization-members", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_invitation_revoke(request: PageRequest, invitation_id: UUID) -> HttpResponse:
    rows = Invitation.objects.pending().filter(organization_id=request.caller.organization_id)
    invitation = get_or_404(rows.select_related("custom_role"), pk=invitation_id)
    caller = organization_caller(request, _O.PEOPLE_MANAGE)
    invitations.revoke(invitation=invitation, by=caller)
    messages.success(request, "The invitation was revoked.")
    return redirect("settings-organization-members", request.caller.workspace_id)


@never_cache
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Show the invitation of a link, and accept or decline it."""
    invited = invitations.get_by_token(token)
    user = request.user
    if not isinstance(user, User):
        return to_sign_in(request)
    is_for_another_user = bool(invited.email) and invited.email != user.email
    if request.method == "POST" and not is_for_another_user:
        if request.POST.get("answer") == "decline" and invited.email:
            invitations.decline(invitation=invited, user=user)
            messages.success(
                request, f"You declined the invitation to {invited.organization.name}."
            )
        else:
            invitations.accept_link(token=token, user=user)
            messages.success(request, f"Welcome to {invited.organization.name}.")
        return redirect("home")
    grants = invited.workspaces.select_related("workspace", "custom_role")
    context = {"invitation": invited, "grants": grants, "is_for_another_user": is_for_another_user}
    return render(
        request,
        "organizations/invitation.html",
        context,
        status=403 if is_for_another_user else 200,
    )


def _open_invitations(organization_id: UUID) -> list[Invitation]:
    rows = Invitation.objects.open().filter(organization_id=organization_id)
    rows = rows.select_related("organization", "custom_role", "invited_by")
    return list(rows.prefetch_related("workspaces__workspace").order_by("-created_at")[:200])


def _get_membership(request: PageRequest, membership_id: UUID) -> Membership:
    # Looked up before the permission check: foreign and missing ids are indistinguishable.
    rows = Membership.objects.filter(organization_id=request.caller.organization_id)
    return get_or_404(rows.select_related("user"), pk=membership_id)


def _parse_offset(request: HttpRequest) -> int:
    text = request.GET.get("offset", "")
    return int(text) if text.isdecimal() and len(text) < 7 else 0
