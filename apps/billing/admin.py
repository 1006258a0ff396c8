"""Admin of billing accounts and payments; payments are writable in the US only."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest

from apps.billing.models import BillingAccount, Payment
from apps.core.regions import REGIONS


def _keeps_billing() -> bool:
    return REGIONS[settings.REGION].keeps_billing


@admin.register(BillingAccount)
class BillingAccountAdmin(admin.ModelAdmin[BillingAccount]):
    list_display = ("__str__", "organization_id", "region", "email", "country", "created_at")
    list_filter = ("region",)
    search_fields = ("name", "email", "organization_id")
    readonly_fields = ("organization_id", "region", "created_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # accounts are created automatically

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Payment)
class PaymentAdmin(admin.ModelAdmin[Payment]):
    list_display = ("invoice", "account", "amount", "currency", "status", "due_at", "paid_at")
    list_select_related = ("account",)
    list_filter = ("status", "currency")
    search_fields = ("invoice", "account__name", "account__organization_id")
    autocomplete_fields = ("account",)
    date_hierarchy = "created_at"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _keeps_billing() and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return _keeps_billing() and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        return False  # payments are corrected by another payment
