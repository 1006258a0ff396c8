"""Pages of rate limits, and of the region's IP addresses."""

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
    """Show the organization's use of each row, and recent rejections."""
    _require(request, OrganizationPermission.USAGE_READ)
    context = {
        "tab": "limits",
        "report": build_usage_report(request.caller.organization_id),
        "days": DAYS,
        "region": REGIONS[settings.REGION],
    }
    return render(request, "rate_limits/limits.html", context)


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def setting_addresses(request: PageRequest) -> HttpResponse:
    """Show the fixed addresses of this region, for firewall rules."""
    _require(request, OrganizationPermission.ORGANIZATION_READ)
    context = {"tab": "addresses", "region": REGIONS[settings.REGION]}
    return render(request, "rate_limits/addresses.html", context)


def _require(request: PageRequest, permission: str) -> None:
    """Raise `Forbidden` without the permission on the workspace's organization."""
    organization_id = request.caller.organization_id
    caller = organization_caller_for(user=request.user, organization_id=organization_id)
    if caller is None:
        raise errors.Forbidden
    caller.require(permission)
