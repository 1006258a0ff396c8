"""The billing page of an organization."""

from __future__ import annotations

from django.contrib import messages
from django.db import DatabaseError
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.billing import services
from apps.billing.errors import BillingUnavailable
from apps.billing.forms import DetailsForm
from apps.billing.models import Payment
from apps.core import errors
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.organizations.services import organization_caller_for
from apps.web_ui.pages import PageRequest, workspace_page

PAYMENTS_PER_PAGE = 50


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def setting_billing(request: PageRequest) -> HttpResponse:
    """Invoice details and payments, for owners of the organization."""
    organization_id = request.caller.organization_id
    owner = organization_caller_for(user=request.user, organization_id=organization_id)
    if owner is None:
        raise errors.Forbidden
    owner.require(OrganizationPermission.BILLING_MANAGE)
    try:
        account = services.get_account(organization_id)
        form = DetailsForm(request.POST or None, instance=account)
        if request.method == "POST" and form.is_valid():
            services.update_account(account, form.cleaned_data)
            messages.success(request, "Invoice details saved.")
            return redirect("setting-billing", request.caller.workspace_id)
        page = _page(request)
        start = page * PAYMENTS_PER_PAGE
        payments = list(account.payments.all()[start : start + PAYMENTS_PER_PAGE + 1])
    except (BillingUnavailable, DatabaseError):
        return render(request, "billing/billing.html", {"tab": "billing"}, status=503)
    context = {
        "tab": "billing",
        "account": account,
        "form": form,
        "payments": payments[:PAYMENTS_PER_PAGE],
        "paid": Payment.Status.PAID,
        "next_page": page + 1 if len(payments) > PAYMENTS_PER_PAGE else None,
    }
    return render(request, "billing/billing.html", context, status=422 if form.errors else 200)


def _page(request: PageRequest) -> int:
    page = request.GET.get("page", "")
    return min(int(page), 10_000) if page.isascii() and page.isdigit() else 0
