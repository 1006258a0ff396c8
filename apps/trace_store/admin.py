"""Admin pages of the trace store."""

from __future__ import annotations

from django.contrib import admin

from apps.trace_store.models import RunCount


@admin.register(RunCount)
class RunCountAdmin(admin.ModelAdmin[RunCount]):
    list_display = ("hour", "project_id", "workspace", "runs", "traces", "merged")
    list_filter = ("hour",)
