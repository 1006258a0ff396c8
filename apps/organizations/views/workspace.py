"""Settings of a workspace: name, members, secrets, deletion."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Prefetch, QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.forms import (
    AddMemberForm,
    RoleForm,
    SecretForm,
    TagKeyForm,
    TagValueForm,
    WorkspaceForm,
    role_choices,
)
from apps.organizations.models import (
    TagKey,
    TagValue,
    User,
    Workspace,
    WorkspaceMembership,
    WorkspaceSecret,
)
from apps.organizations.permissions import Level, Permission
from apps.organizations.queries import list_workspace_administrators
from apps.organizations.services import members, roles, tags, workspaces
from apps.organizations.services.roles import find_role
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page

MAX_MEMBERS_SHOWN = 500


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_general(request: PageRequest) -> HttpResponse:
    workspace = _get_workspace(request)
    initial = {"name": workspace.name, "handle": workspace.handle or ""}
    form = WorkspaceForm(request.POST or None, initial=initial)
    if request.method == "POST":
        request.caller.require(Permission.WORKSPACE_MANAGE)

        def save() -> None:
            workspaces.update_workspace(workspace=workspace, changes=form.cleaned_data)

        if save_form(form, save):
            messages.success(request, "Workspace saved.")
            return redirect("settings-general", workspace.pk)
    context = {
        "form": form,
        "workspace_row": workspace,
        "may_write": request.caller.may(Permission.WORKSPACE_MANAGE),
        "may_delete": request.caller.may(Permission.WORKSPACE_DELETE),
    }
    return form_page(request, "organizations/general.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_DELETE)
def settings_workspace_delete(request: PageRequest) -> HttpResponse:
    """Delete the workspace; the form repeats its name as confirmation."""
    workspace = _get_workspace(request)
    if request.POST.get("name") != workspace.name:
        raise errors.BadRequest("The name does not match. The workspace was not deleted.")
    workspaces.delete_workspace(workspace=workspace)
    messages.success(request, f"{workspace.name} was deleted.")
    return redirect("home")


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.MEMBERS_READ)
def settings_members(request: PageRequest) -> HttpResponse:
    """List the members; the form adds an organization member."""
    workspace = _get_workspace(request)
    rows = list(_query_members(request).order_by("user__email")[:MAX_MEMBERS_SHOWN])
    administrators = list_workspace_administrators(workspace.organization_id)
    member_ids = {row.user_id for row in rows} | {row.user_id for row in administrators}
    choices = role_choices(roles.list_roles(workspace.organization_id, Level.WORKSPACE))
    candidates = User.objects.filter(memberships__organization=workspace.organization)
    candidates = candidates.exclude(pk__in=member_ids).order_by("email")[:MAX_MEMBERS_SHOWN]
    form = AddMemberForm(
        request.POST or None,
        users=[(str(user.pk), user.email) for user in candidates],
        roles=choices,
        initial={"role": str(find_role(workspace.organization_id, Level.WORKSPACE, "editor").id)},
    )
    if request.method == "POST":
        request.caller.require(Permission.MEMBERS_MANAGE)

        def add() -> None:
            members.add_to_workspace(
                workspace=workspace,
                user=get_or_404(User.objects.all(), pk=form.cleaned_data["user"]),
                role=find_role(
                    workspace.organization_id, Level.WORKSPACE, form.cleaned_data["role"]
                ),
                by=request.caller,
            )

        if save_form(form, add):
            messages.success(request, "Member added.")
            return redirect("settings-members", workspace.pk)
    context = {
        "form": form,
        "rows": rows,
        "administrators": administrators,
        "choices": choices,
        "may_write": request.caller.may(Permission.MEMBERS_MANAGE),
    }
    return form_page(request, "organizations/workspace_members.html", context, form)


@require_POST
@workspace_page(Permission.MEMBERS_MANAGE)
def settings_member_role(request: PageRequest, identity_id: UUID) -> HttpResponse:
    membership = get_or_404(_query_members(request), pk=identity_id)
    organization_id = request.caller.organization_id
    form = RoleForm(
        request.POST, roles=role_choices(roles.list_roles(organization_id, Level.WORKSPACE))
    )
    if not form.is_valid():
        raise errors.Invalid("Unknown role.")
    role = find_role(organization_id, Level.WORKSPACE, form.cleaned_data["role"])
    members.change_workspace_role(membership=membership, role=role, by=request.caller)
    messages.success(
        request, f"The role of {membership.user.display_name} is now {role.display_name}."
    )
    return redirect("settings-members", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.MEMBERS_READ)
def settings_member_remove(request: PageRequest, identity_id: UUID) -> HttpResponse:
    """Remove a member, or leave."""
    membership = get_or_404(_query_members(request), pk=identity_id)
    is_own = membership.user_id == request.user.pk
    if not is_own:
        request.caller.require(Permission.MEMBERS_MANAGE)
    members.remove_from_workspace(membership=membership, by=request.caller)
    messages.success(
        request,
        "You have left the workspace."
        if is_own
        else f"{membership.user.display_name} was removed from the workspace.",
    )
    return redirect("home") if is_own else redirect("settings-members", request.caller.workspace_id)


@sensitive_post_parameters("value")
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.SECRETS_READ)
def settings_secrets(request: PageRequest) -> HttpResponse:
    """List the names of secrets; the form creates or replaces one.

    A form of another page sends it by htmx and gets the result as a notice.
    """
    workspace_id = request.caller.workspace_id
    form = SecretForm(request.POST or None)
    if request.method == "POST":
        request.caller.require(Permission.SECRETS_WRITE)

        def save() -> None:
            _save_secrets(request, {form.cleaned_data["key"]: form.cleaned_data["value"]})

        is_saved = save_form(form, save)
        if request.htmx:
            return form_page(request, "organizations/secret_result.html", {"form": form}, form)
        if is_saved:
            messages.success(request, f"{form.cleaned_data['key']} was saved.")
            return redirect("settings-secrets", workspace_id)
    rows = WorkspaceSecret.objects.for_workspace(workspace_id).select_related("updated_by")
    context = {
        "form": form,
        "rows": rows.order_by("key"),
        "may_write": request.caller.may(Permission.SECRETS_WRITE),
    }
    return form_page(request, "organizations/secrets.html", context, form)


@require_POST
@workspace_page(Permission.SECRETS_WRITE)
def settings_secret_delete(request: PageRequest) -> HttpResponse:
    key = request.POST.get("key", "").replace("\0", "")
    try:
        _save_secrets(request, {key: None})
    except errors.Conflict as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, f"{key} was deleted.")
    return redirect("settings-secrets", request.caller.workspace_id)


def _save_secrets(request: PageRequest, values: dict[str, str | None]) -> None:
    workspaces.set_secrets(
        workspace_id=request.caller.workspace_id, values=values, user_id=request.user.pk
    )


def _get_workspace(request: PageRequest) -> Workspace:
    return Workspace.objects.select_related("organization").get(pk=request.caller.workspace_id)


def _query_members(request: PageRequest) -> QuerySet[WorkspaceMembership]:
    rows = WorkspaceMembership.objects.filter(workspace_id=request.caller.workspace_id)
    return rows.select_related("user", "custom_role")


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.TAGS_READ)
def settings_tags(request: PageRequest) -> HttpResponse:
    """List the keys with their values; the form adds a key."""
    workspace_id = request.caller.workspace_id
    form = TagKeyForm(request.POST or None)
    if request.method == "POST":
        request.caller.require(Permission.TAGS_WRITE)

        def add() -> None:
            tags.create_key(workspace_id=workspace_id, **form.cleaned_data)

        if save_form(form, add):
            messages.success(request, f"{form.cleaned_data['key']} was added.")
            return redirect("settings-tags", workspace_id)
    values = TagValue.objects.for_workspace(workspace_id).annotate(uses=Count("taggings"))
    keys = TagKey.objects.for_workspace(workspace_id).order_by("key")
    context = {
        "form": form,
        "keys": keys.prefetch_related(Prefetch("values", values.order_by("value"))),
        "may_write": request.caller.may(Permission.TAGS_WRITE),
    }
    return form_page(request, "organizations/tags.html", context, form)


@require_POST
@workspace_page(Permission.TAGS_WRITE)
def settings_tag_key_delete(request: PageRequest, tag_key_id: UUID) -> HttpResponse:
    row = get_or_404(TagKey.objects.for_workspace(request.caller.workspace_id), pk=tag_key_id)
    tags.delete_key(row=row)
    messages.success(request, f"{row.key} was deleted and removed from all resources.")
    return redirect("settings-tags", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.TAGS_WRITE)
def settings_tag_value_add(request: PageRequest, tag_key_id: UUID) -> HttpResponse:
    key = get_or_404(TagKey.objects.for_workspace(request.caller.workspace_id), pk=tag_key_id)
    form = TagValueForm(request.POST)
    if not form.is_valid():
        raise errors.Invalid("The value must have 1 to 100 characters.")
    tags.create_value(key=key, value=form.cleaned_data["value"])
    return redirect("settings-tags", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.TAGS_WRITE)
def settings_tag_value_delete(
    request: PageRequest, tag_key_id: UUID, tag_value_id: UUID
) -> HttpResponse:
    rows = TagValue.objects.for_workspace(request.caller.workspace_id)
    row = get_or_404(rows, pk=tag_value_id, tag_key_id=tag_key_id)
    tags.delete_value(row=row)
    messages.success(request, f"{row.value} was deleted and removed from all resources.")
    return redirect("settings-tags", request.caller.workspace_id)
