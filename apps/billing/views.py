"""The billing page of an organization."""

from __future__ import annotations

from django.contrib import messages
from django.db import DatabaseError
from django.forms import ModelForm, Textarea
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.billing import services
from apps.billing.models import BillingAccount, Payment
from apps.billing.services import BillingUnavailable
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.web_ui.pages import PageRequest, form_page, organization_caller, workspace_page


class DetailsForm(ModelForm[BillingAccount]):
    """Invoice details."""

    class Meta:
        model = BillingAccount
        fields = ("name", "email", "address", "country", "tax_id")
        labels = {
            "name": "Company or name",
            "email": "Invoice email",
            "address": "Postal address",
            "tax_id": "Tax ID",
        }
        help_texts = {"country": "Two-letter country code."}
        widgets = {"address": Textarea(attrs={"rows": 3})}

    def clean_country(self) -> str:
        country: str = self.cleaned_data["country"].upper()
        if country and not (len(country) == 2 and country.isascii() and country.isalpha()):
            self.add_error("country", "Enter a two-letter country code, such as DE.")
        return country


PAYMENTS_PER_PAGE = 50


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_billing(request: PageRequest) -> HttpResponse:
    """Invoice details and payments, for owners of the organization."""
    organization_caller(request, OrganizationPermission.BILLING_MANAGE)
    try:
        account = services.get_account(request.caller.organization_id)
        form = DetailsForm(request.POST or None, instance=account)
        if request.method == "POST" and form.is_valid():
            services.update_account(account, form.cleaned_data)
            messages.success(request, "Invoice details saved.")
            return redirect("settings-billing", request.caller.workspace_id)
        page = _parse_page(request)
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
    return form_page(request, "billing/billing.html", context, form)


def _parse_page(request: PageRequest) -> int:
    page = request.GET.get("page", "")
    return int(page) if page.isdecimal() and len(page) < 6 else 0
