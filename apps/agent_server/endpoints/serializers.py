"""JSON of an Agent Server's resources."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from apps.agent_server.models import Assistant, AssistantVersion, Cron
from apps.agent_server.services.assistants import AssistantRow
from apps.agent_server.services.runs import AgentRunRow
from apps.agent_server.services.threads import ThreadRow
from apps.core.json import Fragment

JSONObject = dict[str, Any]
THREAD_JSON = frozenset({"metadata", "config", "values", "interrupts", "error", "extracted", "ttl"})


def format_timestamp(value: datetime) -> str:
    """Format as ISO 8601 with microseconds and offset."""
    return value.isoformat(timespec="microseconds")


def format_optional_timestamp(value: datetime | None) -> str | None:
    return format_timestamp(value) if value else None


def json_fragment(value: str | None) -> Fragment | None:
    """JSON text from PostgreSQL, which `dumps` embeds unchanged."""
    return None if value is None else Fragment(value.encode())


def assistant_json(assistant: Assistant | AssistantRow) -> JSONObject:
    return {
        "assistant_id": assistant.assistant_id,
        "graph_id": assistant.graph_id,
        "name": assistant.name,
        "description": assistant.description,
        "config": assistant.config,
        "context": assistant.context,
        "metadata": assistant.metadata,
        "version": assistant.version,
        "created_at": format_timestamp(assistant.created_at),
        "updated_at": format_timestamp(assistant.updated_at),
    }


def version_json(assistant: Assistant, version: AssistantVersion) -> JSONObject:
    return {
        "assistant_id": assistant.assistant_id,
        "version": version.version,
        "graph_id": version.graph_id,
        "name": version.name,
        "description": version.description,
        "config": version.config,
        "context": version.context,
        "metadata": version.metadata,
        "created_at": format_timestamp(version.created_at),
    }


def cron_json(cron: Cron) -> JSONObject:
    return {
        "cron_id": cron.pk,
        "assistant_id": cron.assistant_id,
        "thread_id": cron.thread and cron.thread.thread_id,
        "user_id": cron.user_id,
        "schedule": cron.schedule,
        "timezone": cron.timezone,
        "end_time": cron.end_time and format_timestamp(cron.end_time),
        "enabled": cron.enabled,
        "on_run_completed": cron.on_run_completed,
        "payload": cron.payload,
        "metadata": cron.metadata,
        "next_run_date": format_timestamp(cron.next_run_date),
        "created_at": format_timestamp(cron.created_at),
        "updated_at": format_timestamp(cron.updated_at),
    }


def thread_json(row: ThreadRow) -> JSONObject:
    return thread_fields(row._asdict())


def thread_fields(fields: JSONObject) -> JSONObject:
    """Some or all columns of a thread as JSON; JSON columns are still text."""
    return {
        name: json_fragment(value) if name in THREAD_JSON else _plain(value)
        for name, value in fields.items()
        if name != "interrupts" or value is not None  # absent before the first run
    }


def _plain(value: Any) -> Any:
    return format_timestamp(value) if isinstance(value, datetime) else value


def run_json(row: AgentRunRow) -> JSONObject:
    return {
        "run_id": row.run_id,
        "thread_id": row.thread_id,
        "assistant_id": row.assistant_id,
        "status": row.status,
        "metadata": json_fragment(row.metadata),
        "kwargs": json_fragment(row.kwargs),
        "multitask_strategy": row.multitask_strategy,
        "created_at": format_timestamp(row.created_at),
        "updated_at": format_timestamp(row.updated_at),
    }


def select_fields(row: JSONObject, select: Collection[str] | None) -> JSONObject:
    """The selected fields; all without a selection."""
    return row if select is None else {name: row.get(name) for name in select}
