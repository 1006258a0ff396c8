"""Admin pages of threads and runs for operators, without their contents."""

from __future__ import annotations

from django.contrib import admin

from apps.agent_server.models import AgentRun, Assistant, Thread, WebhookDelivery
from apps.core.admin_base import ReadOnly


@admin.register(Assistant)
class AssistantAdmin(ReadOnly[Assistant]):
    list_display = ["name", "deployment", "graph_id", "version", "created_at"]
    list_select_related = ["deployment"]
    search_fields = ["name", "graph_id", "deployment__slug"]
    fields = ["workspace", "deployment", "assistant_id", "graph_id", "name", "version"]


@admin.register(Thread)
class ThreadAdmin(ReadOnly[Thread]):
    list_display = ["thread_id", "deployment", "status", "runs_received", "updated_at"]
    list_filter = ["status", "temporary"]
    list_select_related = ["deployment"]
    search_fields = ["=thread_id", "deployment__slug"]
    show_full_result_count = False
    fields = ["workspace", "deployment", "thread_id", "status", "temporary", "runs_received"]


@admin.register(AgentRun)
class AgentRunAdmin(ReadOnly[AgentRun]):
    list_display = ["id", "deployment", "graph_id", "status", "attempt", "created_at", "ended_at"]
    list_filter = ["status", "multitask_strategy"]
    list_select_related = ["deployment"]
    search_fields = ["=id", "deployment__slug"]
    show_full_result_count = False
    fields = [
        "workspace",
        "deployment",
        "thread",
        "graph_id",
        "revision",
        "sequence",
        "status",
        "attempt",
        "lease_owner",
        "lease_expires_at",
        "available_at",
        "created_at",
        "started_at",
        "ended_at",
    ]


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnly[WebhookDelivery]):
    list_display = ["id", "deployment", "status", "attempts", "response_status", "created_at"]
    list_filter = ["status"]
    list_select_related = ["deployment"]
    search_fields = ["=id", "=run_id", "deployment__slug"]
    show_full_result_count = False
    fields = [
        "workspace",
        "deployment",
        "run_id",
        "status",
        "attempts",
        "response_status",
        "last_error",
        "due_at",
        "created_at",
        "delivered_at",
    ]
