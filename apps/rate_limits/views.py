"""Pages about limits and addresses: what an organization uses, and what to allow in a firewall."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.core.regions import REGIONS
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.organizations.services import organization_caller_for
from apps.rate_limits.usage_report import DAYS, build_usage_report
from apps.web_ui.pages import PageRequest, workspace_page


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def setting_limits(request: PageRequest) -> HttpResponse:
    """Each row of the table as it stands for the organization now, and which were hit."""
    _require(request, OrganizationPermission.USAGE_READ)
    context = {
        "tab": "limits",
        "use": build_usage_report(request.caller.organization_id),
        "days": DAYS,
        "region": REGIONS[settings.REGION],
    }
    return render(request, "rate_limits/limits.html", context)


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def setting_addresses(request: PageRequest) -> HttpResponse:
    """The fixed addresses of this region, for allow-listing on either side."""
    _require(request, OrganizationPermission.ORGANIZATION_READ)
    context = {"tab": "addresses", "region": REGIONS[settings.REGION]}
    return render(request, "rate_limits/addresses.html", context)


def _require(request: PageRequest, permission: str) -> None:
    """Refuse with 403 whoever may not do this in the workspace's organization."""
    organization_id = request.caller.organization_id
    person = organization_caller_for(user=request.user, organization_id=organization_id)
    if person is None:
        raise errors.Forbidden
    person.require(permission)
