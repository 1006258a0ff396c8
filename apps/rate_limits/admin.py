"""Admin of the limit factors of organizations."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.forms import ChoiceField, ModelForm
from django.http import HttpRequest

from apps.rate_limits.factors import record_change
from apps.rate_limits.models import LimitFactor
from apps.rate_limits.table import CATEGORIES


class LimitFactorForm(ModelForm[LimitFactor]):
    category = ChoiceField(
        required=False, choices=[("", "All rows"), *((name, name) for name in CATEGORIES)]
    )


@admin.register(LimitFactor)
class LimitFactorAdmin(admin.ModelAdmin[LimitFactor]):
    form = LimitFactorForm
    list_display = ("organization", "row", "factor", "updated_at")
    list_select_related = ("organization",)
    list_filter = ("category",)
    search_fields = ("organization__name",)
    autocomplete_fields = ("organization",)
    ordering = ("organization__name", "category")

    @admin.display(description="row", ordering="category")
    def row(self, factor: LimitFactor) -> str:
        return factor.category or "all rows"

    def get_readonly_fields(
        self, request: HttpRequest, obj: LimitFactor | None = None
    ) -> tuple[str, ...]:
        # A factor of another organization or category is a new row.
        return ("organization", "category") if obj is not None else ()

    def save_model(
        self,
        request: HttpRequest,
        obj: LimitFactor,
        form: Any,
        change: bool,  # noqa: FBT001  (Django's signature)
    ) -> None:
        before = form.initial.get("factor") if change else None
        super().save_model(request, obj, form, change)
        record_change(obj.organization, obj.category, before, obj.factor)

    def delete_model(self, request: HttpRequest, obj: LimitFactor) -> None:
        record_change(obj.organization, obj.category, obj.factor, None)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[LimitFactor]) -> None:
        for factor in queryset.select_related("organization"):
            self.delete_model(request, factor)
