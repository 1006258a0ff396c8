"""Pages of rate limits, and of the installation's IP addresses."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.core.regions import REGIONS
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.rate_limits.usage_report import DAYS, build_usage_report
from apps.web_ui.pages import PageRequest, organization_caller, workspace_page


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def settings_limits(request: PageRequest) -> HttpResponse:
    """Show the organization's use of each row, and recent rejections."""
    organization_caller(request, OrganizationPermission.USAGE_READ)
    context = {
        "tab": "limits",
        "report": build_usage_report(request.caller.organization_id),
        "days": DAYS,
        "region": REGIONS[settings.REGION],
    }
    return render(request, "rate_limits/limits.html", context)


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def settings_addresses(request: PageRequest) -> HttpResponse:
    """Show the addresses that the operator announces, for customers' firewall rules."""
    organization_caller(request, OrganizationPermission.ORGANIZATION_READ)
    context = {
        "tab": "addresses",
        "region": REGIONS[settings.REGION],
        "addresses": settings.ANNOUNCED_ADDRESSES,
    }
    return render(request, "rate_limits/addresses.html", context)
