"""For operators: what is deployed, and how each revision went."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.deployments.models import Deployment, Revision, StatusChange


class ReadOnly(admin.ModelAdmin[Any]):
    """Deployments change by services, which keep their rules; here they are looked at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Deployment)
class DeploymentAdmin(ReadOnly):
    list_display = ["name", "workspace", "slug", "status", "active_revision", "created_at"]
    list_filter = ["status", "deployment_type"]
    list_select_related = ["workspace__organization", "active_revision__deployment"]
    search_fields = ["name", "slug", "repo_url"]
    exclude = ["ingest_key"]


class StatusChangeInline(admin.TabularInline[StatusChange, Revision]):
    model = StatusChange
    fields = ("created_at", "status", "detail")
    readonly_fields = ("created_at", "status", "detail")
    ordering = ["created_at"]
    can_delete = False
    extra = 0


@admin.register(Revision)
class RevisionAdmin(ReadOnly):
    list_display = ["__str__", "workspace", "status", "commit_sha", "attempt", "created_at"]
    list_filter = ["status"]
    list_select_related = ["workspace__organization", "deployment"]
    search_fields = ["deployment__name", "commit_sha"]
    inlines = [StatusChangeInline]
