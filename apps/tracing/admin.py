"""Admin pages of tracing."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from apps.tracing.models import Project
from apps.tracing.querysets import ProjectQuerySet


@admin.register(Project)
class ProjectAdmin(admin.ModelAdmin[Project]):
    list_display = ("name", "workspace", "start_time", "trace_tier", "deleted_at")
    list_select_related = ("workspace__organization",)
    search_fields = ("name", "id")
    readonly_fields = ("id", "workspace", "created_at", "updated_at")

    def get_queryset(self, request: HttpRequest) -> ProjectQuerySet:
        return Project.objects.across_workspaces(reason="operators see projects of all workspaces")
