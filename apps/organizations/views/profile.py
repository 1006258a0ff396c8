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
    person = request.user
    if not isinstance(person, User):
        return to_sign_in(request)
    form, may_create = NewOrganizationForm(request.POST or None), may_create_organization(person)
    if request.method == "POST":
        if not may_create:
            raise errors.Forbidden("Only operators create organizations on this installation.")
        created: list[Workspace] = []

        def create() -> None:
            created.append(
                create_organization(name=form.cleaned_data["name"], owner=person).workspace
            )

        if save_form(form, create):
            messages.success(request, f"{form.cleaned_data['name']} was created.")
            return redirect("workspace-home", created[0].pk)
    memberships = Membership.objects.filter(user=person).order_by("organization__name")
    first = {
        workspace.organization_id: workspace
        for workspace in Workspace.objects.open_to(person).order_by("-created_at")
    }
    rows = list(memberships.select_related("organization", "custom_role"))
    without = [row.organization_id for row in rows if row.organization_id not in first]
    helpers = administrator_emails(without)
    for row in rows:
        row.helpers = helpers.get(row.organization_id, [])[:2]  # type: ignore[attr-defined]
    context = {
        "form": form,
        "rows": [(row, first.get(row.organization_id)) for row in rows],
        "waiting": [
            (one, invitations.invitation_token(one)) for one in invitations.list_open_for(person)
        ],
        "is_unproved": person.email_verified_at is None,
        "may_create": may_create,
    }
    return page(request, "organizations/organization_list.html", context, form)
