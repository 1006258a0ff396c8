"""Read-only admin pages of deployments and revisions."""

from __future__ import annotations

from django.contrib import admin

from apps.core.admin_base import ReadOnly
from apps.deployments.models import Deployment, Revision, StatusChange


@admin.register(Deployment)
class DeploymentAdmin(ReadOnly[Deployment]):
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
class RevisionAdmin(ReadOnly[Revision]):
    list_display = ["__str__", "workspace", "status", "commit_sha", "attempt", "created_at"]
    list_filter = ["status"]
    list_select_related = ["workspace__organization", "deployment"]
    search_fields = ["deployment__name", "commit_sha"]
    inlines = [StatusChangeInline]
