"""The user's organizations and open invitations."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from apps.core import errors
from apps.organizations.forms import NewOrganizationForm
from apps.organizations.models import Membership, User, Workspace
from apps.organizations.page_helpers import page, save_form
from apps.organizations.queries import administrator_emails
from apps.organizations.services import create_organization, invitations, may_create_organization
from apps.web_ui.pages import to_sign_in


@never_cache
@require_http_methods(["GET", "POST"])
def organizations(request: HttpRequest) -> HttpResponse:
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
    return page(request, "organizations/organization_list.html", context, form)
