"""Admin pages for operators."""

from __future__ import annotations

from django.contrib import admin

from apps.ingest.models import DeferredOperation


@admin.register(DeferredOperation)
class DeferredOperationAdmin(admin.ModelAdmin[DeferredOperation]):
    list_display = ("run_id", "awaited_run_id", "workspace", "created_at")
    readonly_fields = ("id", "workspace", "run_id", "awaited_run_id", "created_at")
    exclude = ("body",)
