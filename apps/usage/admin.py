"""Read-only admin of usage and usage limits."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from apps.core.admin_base import ReadOnly
from apps.usage.models import UsageDay, UsageDayQuerySet, UsageLimit


@admin.register(UsageDay)
class UsageDayAdmin(ReadOnly[UsageDay]):
    list_display = (
        "day",
        "workspace",
        "runs",
        "traces",
        "longlived_traces",
        "bytes",
        "agent_runs",
        "agent_seconds",
    )
    list_select_related = ("workspace__organization",)
    list_filter = ("day",)
    search_fields = ("workspace__name", "workspace__organization__name")
    ordering = ("-day", "-runs")

    def get_queryset(self, request: HttpRequest) -> UsageDayQuerySet:
        return UsageDay.objects.across_workspaces(reason="operators see all")


@admin.register(UsageLimit)
class UsageLimitAdmin(ReadOnly[UsageLimit]):
    list_display = ("limit_type", "limit_value", "organization", "workspace", "updated_at")
    list_select_related = ("organization", "workspace__organization")
    list_filter = ("limit_type",)
    search_fields = ("organization__name", "workspace__name")
