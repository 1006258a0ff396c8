"""Admin of keys: operators can list and revoke them."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.api_keys.models import ApiKey
from apps.api_keys.services import revoke_key


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin[ApiKey]):
    list_display = (
        "name",
        "prefix",
        "organization",
        "workspace",
        "scopes",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )
    list_select_related = ("organization", "workspace__organization")
    list_filter = ("revoked_at",)
    search_fields = ("name", "prefix", "organization__name")
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # the secret is shown once, which the admin cannot do

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    @admin.action(description="Revoke the selected keys", permissions=["delete"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            revoke_key(key=key)
