"""Read-only admin of the whole audit log."""

from __future__ import annotations

from django.contrib import admin

from apps.audit.models import Entry
from apps.core.admin_base import ReadOnly


@admin.register(Entry)
class EntryAdmin(ReadOnly[Entry]):
    list_display = (
        "at",
        "actor_label",
        "impersonator_label",
        "action",
        "target_kind",
        "target_name",
        "ip",
    )
    list_filter = ("actor_kind", "target_kind")
    search_fields = (
        "=organization_id",
        "=actor_id",
        "=target_id",
        "=request_id",
        "actor_label",
        "target_name",
        "^action",
    )
    ordering = ("-at", "-id")
